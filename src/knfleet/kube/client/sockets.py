"""The sockets of one client.

A peer that vanished is noticed by TCP itself after about a minute, even when no request waits for
an answer.

A file that is handed to the event loop is the loop's to close. uvloop closes it without telling the
Python socket when a connection ends in the moment in which it is made, for instance when the other
side resets it; the number then belongs to the next file that a client opens. So a socket of ours
never closes its file by itself when it is collected, and is never shut down through its number.
"""

import socket
from collections.abc import Callable
from weakref import WeakSet

Address = tuple[int, int, int, str, tuple[object, ...]]
"""As `socket.getaddrinfo` gives it."""

KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Ask after so many seconds of silence, then again, so many times; where the system knows them."""


class LoopSocket(socket.socket):
    """A socket for a connection of the event loop; who gives up before that closes it."""

    def __del__(self) -> None:
        self.detach()


class Sockets:
    """Opens sockets, and remembers those that are still open."""

    def __init__(self, open_elsewhere: Callable[[], int] | None = None) -> None:
        self.open_elsewhere = open_elsewhere
        """Makes sockets of another network, as files."""
        self.alive: WeakSet[LoopSocket] = WeakSet()

    def open(self, address: Address) -> LoopSocket:
        family, kind, protocol, _, _ = address
        descriptor = self.open_elsewhere() if self.open_elsewhere is not None else None
        opened = LoopSocket(family, kind, protocol, descriptor)
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEP_ALIVE.items():
            if hasattr(socket, name):
                opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.alive.add(opened)
        return opened

    def connected(self) -> bool:
        """Whether at least one of them is open."""
        return any(one.fileno() != -1 for one in self.alive)
