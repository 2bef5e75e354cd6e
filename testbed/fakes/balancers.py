"""A load balancer in front of several servers, which can cut connections in the middle."""

import asyncio
import random
from collections import deque
from contextlib import suppress

from testbed.fakes.proxies import Relay


class Balancer(Relay):
    """Leads each connection to one of some servers that answers."""

    def __init__(self, *targets_on_loopback: int) -> None:
        super().__init__()
        self.targets = list(targets_on_loopback)
        self.allowances: deque[int] = deque()
        """How many bytes each of the next connections carries before it is cut."""
        self.cuts = 0
        """How many connections were cut so: open ones, with data on their way."""

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for port in random.sample(self.targets, len(self.targets)):
            with suppress(ConnectionError):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
                break
        else:
            return
        allowed = self.allowances.popleft() if self.allowances else None
        left = [allowed]
        ways = [
            asyncio.create_task(metered(reader, far_writer, left)),
            asyncio.create_task(metered(far_reader, writer, left)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if left[0] is not None and left[0] <= 0:
                self.cuts += 1
            elif allowed is not None:
                # It ended by itself: the next one gets what it was meant to carry.
                self.allowances.appendleft(allowed)
        finally:
            far_writer.transport.abort()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)


async def metered(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: list[int | None]
) -> None:
    """Carry bytes one way until it ends, or as many are carried as both ways may."""
    with suppress(ConnectionError):
        while chunk := await reader.read(4096):
            writer.write(chunk)
            await writer.drain()
            if left[0] is not None:
                left[0] -= len(chunk)
                if left[0] <= 0:
                    return
