"""The sockets of one client.

A peer that vanished is noticed by TCP itself after about a minute, even where nobody waits for an
answer; and when a client is closed, connections that still wait for the other side's farewell are
closed with it.
"""

import socket
from contextlib import suppress
from weakref import WeakSet

Address = tuple[int, int, int, str, tuple[object, ...]]
"""As `socket.getaddrinfo` gives it."""

KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Ask after so many seconds of silence, then again, so many times; where the system knows them."""


class Sockets:
    """Opens sockets, and remembers those that are still open."""

    def __init__(self) -> None:
        self.alive: WeakSet[socket.socket] = WeakSet()

    def open(self, address: Address) -> socket.socket:
        """A socket for an address."""
        family, kind, protocol, _, _ = address
        opened = socket.socket(family, kind, protocol)
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

    def shut(self) -> None:
        """End every connection now."""
        for one in self.alive:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
