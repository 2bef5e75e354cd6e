"""Connections into the network of a cluster, and relays that lead there."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeVar, cast

from knfleet.dev.egress import SplicedSide
from testbed.serve.networks import ClusterNetwork

DIAL_SECONDS = 5.0

P = TypeVar("P", bound=asyncio.BaseProtocol)
Dial = Callable[[], Awaitable[SplicedSide]]
"""Makes the other end of a relayed connection; raises `OSError` when there is none."""


async def connected(network: ClusterNetwork, make: Callable[[], P], host: str, port: int) -> P:
    """A connection to an address of a cluster's network."""
    loop = asyncio.get_running_loop()
    made = network.namespace.stream()
    try:
        async with asyncio.timeout(DIAL_SECONDS):
            await loop.sock_connect(made, (host, port))
            _, protocol = await loop.create_connection(make, sock=made)
    except BaseException:
        made.close()
        raise
    return protocol


class RelaySide(SplicedSide):
    """The side that came; the other one is made now."""

    tasks: ClassVar[set[asyncio.Task[None]]] = set()
    """Relays that are being made: the event loop itself keeps no task alive."""

    def __init__(self, dial: Dial) -> None:
        super().__init__()
        self.dial = dial
        self.early = b""
        """What came before the other side was there: event loops may read on a little."""

    def data_received(self, data: bytes) -> None:
        """Hand data on, or keep it until there is another side."""
        if self.peer is None:
            self.early += data
        else:
            super().data_received(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make the other side before anything is read."""
        super().connection_made(transport)
        cast("asyncio.Transport", transport).pause_reading()
        task = asyncio.get_running_loop().create_task(self.complete())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def complete(self) -> None:
        """Splice both sides, or end this one as a closed port would."""
        try:
            far = await self.dial()
        except (OSError, TimeoutError):
            if self.transport is not None:
                self.transport.abort()
            return
        if self.transport is None:
            if far.transport is not None:
                far.transport.abort()
            return
        self.join(far)
        if self.early and far.transport is not None:
            far.transport.write(self.early)
            self.early = b""
        self.transport.resume_reading()


def relay_to(network: ClusterNetwork, host: str, port: int) -> Callable[[], RelaySide]:
    """Relays connections to one address of a cluster."""
    return lambda: RelaySide(lambda: connected(network, SplicedSide, host, port))
