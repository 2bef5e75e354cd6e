"""How many connections a server has, in all and from one address. Pure: it opens none itself.

A server that is full ends the connection that has waited longest for its request, so that idle
connections, however many, do not keep requests out.
"""

import asyncio
from collections.abc import Callable

from msgspec import Struct


class ConnectionLimits(Struct, frozen=True):
    """What a server's clients may take of it."""

    connections: int = 64
    per_address: int = 32
    header_seconds: float = 10.0
    """How long the first request may take to arrive."""
    keep_seconds: float = 75.0
    """How long an answer and the next request may take together."""


class AcceptedConnection(Struct, eq=False):
    """A connection."""

    address: str
    close: Callable[[], None]
    is_waiting: bool = True
    """Whether it has sent no request that is being answered."""


class PendingTask:
    """What a connection that is being set up is ended by."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None

    def end(self) -> None:
        """End the connection to make room for another."""
        if self.task is not None:
            self.task.cancel()


class ConnectionAdmission:
    """The connections of a server."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.guests: dict[AcceptedConnection, None] = {}
        """Those that have waited for longest come first."""

    def admit(self, address: str, close: Callable[[], None]) -> AcceptedConnection | None:
        """A new connection; None when the limit does not permit it."""
        neighbours = [each for each in self.guests if each.address == address]
        if len(neighbours) >= self.limits.per_address:
            rivals = neighbours
        elif len(self.guests) >= self.limits.connections:
            rivals = list(self.guests)
        else:
            rivals = None
        if rivals is not None:
            idle = next((each for each in rivals if each.is_waiting), None)
            if idle is None:
                return None
            self.leave(idle)
            idle.close()
        guest = AcceptedConnection(address, close)
        self.guests[guest] = None
        return guest

    def leave(self, guest: AcceptedConnection) -> None:
        self.guests.pop(guest, None)

    def begin(self, guest: AcceptedConnection) -> None:
        """A request has come."""
        guest.is_waiting = False

    def end(self, guest: AcceptedConnection) -> None:
        """A request is answered."""
        guest.is_waiting = True
        if guest in self.guests:
            self.guests[guest] = self.guests.pop(guest)
