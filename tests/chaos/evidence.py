"""What was seen of a fleet under faults, as values: nothing but facts, with their times.

Times are those of the wall clock, which all servers of this machine share, and which API servers
write into their audit logs.
"""

import math

from msgspec import Struct, field


class Write(Struct, frozen=True):
    """A write that an API server accepted, from its own audit log."""

    cluster: str
    user: str
    at: float
    """When the server received it."""
    what: str


class Taken(Struct, frozen=True):
    """The Lease got another holder, from the hub's audit log."""

    at: float
    user: str
    holder: str
    """Empty when it was given back."""


class Started(Struct, frozen=True):
    """An operator was started."""

    at: float
    user: str


class Span(Struct, frozen=True):
    """Something lasted from one moment to another; for ever while it goes on."""

    begin: float
    end: float = math.inf

    def covers(self, at: float) -> bool:
        """Whether a moment is in it."""
        return self.begin <= at < self.end


class Held(Struct, frozen=True):
    """What was sent to a cluster waited on the way, from one user or from all."""

    cluster: str
    span: Span
    user: str = ""


class Said(Struct, frozen=True):
    """What a custom resource said at a moment."""

    at: float
    resource: str
    spoke: str
    type: str
    status: str


class Removed(Struct, frozen=True):
    """A custom resource was gone from the hub, and what was found of it then on its spoke."""

    at: float
    resource: str
    left: tuple[str, ...]


class Foreign(Struct, frozen=True):
    """An object that is nobody's business but its owner's, as it was at a moment."""

    cluster: str
    name: str
    uid: str
    version: str


class Violation(Struct, frozen=True):
    """Something that must never be."""

    at: float
    invariant: str
    text: str


class Evidence(Struct):
    """Everything that was seen so far."""

    writes: list[Write] = field(default_factory=list[Write])
    taken: list[Taken] = field(default_factory=list[Taken])
    started: list[Started] = field(default_factory=list[Started])
    held: list[Held] = field(default_factory=list[Held])
    silent: dict[str, list[Span]] = field(default_factory=dict[str, list[Span]])
    """When each spoke answered nobody, or at least no operator."""
    troubled: list[Span] = field(default_factory=list[Span])
    """When the hub or an operator was struck."""
    removed: list[Removed] = field(default_factory=list[Removed])
