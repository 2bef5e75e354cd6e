"""The sockets of a port, and the connections that come in on them."""

import asyncio
import errno
import socket
from collections.abc import Callable

from knfleet.runtime.logs import log

BACKLOG = 128
NOT_HERE = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""What a system without IPv6 says to one of its addresses."""
RETRY_SECONDS = 1.0
"""When to accept again after the system refused to."""
Take = Callable[[socket.socket, str, asyncio.TaskGroup], None]
"""Called with each connection, the address of its client, and where its tasks run."""


class ListeningSockets:
    """Accepts connections, whatever goes wrong with one of them."""

    def __init__(self, refused: str = "no connection accepted") -> None:
        self.refused = refused
        """What the log says when the system refuses a connection."""
        self.sockets: list[socket.socket] = []

    async def open(self, host: str | None, port: int) -> tuple[str, int]:
        """Take an address, all of the machine's when there is no host; raises `OSError`."""
        self.sockets = await bound(host, port)
        name, number = self.sockets[0].getsockname()[:2]
        return name, number

    async def run(self, take: Take) -> None:
        """Pass on connections as they come, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for each in self.sockets:
                    group.create_task(self.accept(each, take, group))
        finally:
            self.close()

    async def accept(self, listening: socket.socket, take: Take, group: asyncio.TaskGroup) -> None:
        """Pass on the connections of one socket."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listening)
            except ConnectionError:
                continue
            except OSError as error:
                log.warning(self.refused, error=error.strerror or type(error).__name__)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            take(accepted, str(peer[0]), group)

    def close(self) -> None:
        """Give the address up."""
        for each in self.sockets:
            each.close()
        self.sockets = []


async def bound(host: str | None, port: int) -> list[socket.socket]:
    """Sockets that listen on all addresses of a host."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    problem: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(found):
        try:
            sockets.append(socket.create_server(address, family=family, backlog=BACKLOG))
        except OSError as error:
            problem = error
            if error.errno not in NOT_HERE:
                break
    if not sockets or (problem is not None and problem.errno not in NOT_HERE):
        for each in sockets:
            each.close()
        raise problem or OSError(errno.EADDRNOTAVAIL, "the host has no address")
    for each in sockets:
        each.setblocking(False)
    return sockets
