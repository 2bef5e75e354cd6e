"""The sockets of one client.

A peer that vanished is noticed by TCP itself after about a minute, even where nobody waits for an
answer; and when a client is closed, connections that still wait for the other side's farewell are
closed with it.

A file that was closed without the event loop's knowledge leaves a number that the loop believes to
be in use. The next socket gets that very number, cannot be used, is closed, and so is the next one:
no connection could be made any more. Such a socket is set aside, so that others get other numbers.
"""

import asyncio
import socket
from contextlib import suppress
from weakref import WeakSet

import structlog

Address = tuple[int, int, int, str, tuple[object, ...]]
"""As `socket.getaddrinfo` gives it."""

KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Ask after so many seconds of silence, then again, so many times; where the system knows them."""


MOST_ASIDE = 64

log = structlog.get_logger()


class Sockets:
    """Opens sockets, and remembers those that are still open."""

    def __init__(self) -> None:
        self.alive: WeakSet[socket.socket] = WeakSet()
        self.aside: list[socket.socket] = []
        """Sockets whose numbers are in use by connections that have lost them."""

    def open(self, address: Address) -> socket.socket:
        """A socket for an address."""
        family, kind, protocol, _, _ = address
        opened = socket.socket(family, kind, protocol)
        while not is_usable(opened) and len(self.aside) < MOST_ASIDE:
            log.warning("a connection has lost its file", number=opened.fileno())
            self.aside.append(opened)
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
        for one in self.aside:
            # Its number is the other connection's to close.
            one.detach()
        self.aside.clear()


def is_usable(opened: socket.socket) -> bool:
    """Whether the event loop lets a socket be used."""
    try:
        asyncio.get_running_loop().remove_writer(opened)
    except RuntimeError:
        return False
    return True
