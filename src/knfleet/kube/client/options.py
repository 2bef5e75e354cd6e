"""How a client behaves, and who observes what it does."""

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from msgspec import Struct

from knfleet.api.meta import ClusterName, Resource
from knfleet.kube.errors import KubeError, ResponseTooLarge

MIB = 1024 * 1024
USER_AGENT = "knfleet"


class ClientObserver(Protocol):
    """Receives everything that a client does, for metrics."""

    def request(self, cluster: ClusterName, verb: str, code: int, seconds: float) -> None:
        """One attempt ended; code 0 means that there was no answer."""
        ...

    def watch_restarted(
        self, cluster: ClusterName, resource: Resource, error: KubeError | None
    ) -> None:
        """A watch is opened again: after an error, or because the server ended it."""
        ...

    def credential_refreshed(self, cluster: ClusterName) -> None:
        """A new credential was fetched."""
        ...


class SilentClient:
    """The observer that does nothing."""

    def request(self, cluster: ClusterName, verb: str, code: int, seconds: float) -> None:
        """One attempt ended."""

    def watch_restarted(
        self, cluster: ClusterName, resource: Resource, error: KubeError | None
    ) -> None:
        """A watch is opened again."""

    def credential_refreshed(self, cluster: ClusterName) -> None:
        """A new credential was fetched."""


SILENT = SilentClient()


class SlotUse(Enum):
    """What a request is for."""

    READ = "read"
    WRITE = "write"
    WATCH = "watch"


class RequestGate(Protocol):
    """Stands before every attempt; a cluster that does not answer keeps it closed."""

    async def enter(self, use: SlotUse) -> None:
        """Return when the attempt may be made; what it raises is raised, and nothing is sent."""
        ...


class OpenGate:
    """The gate that is always open."""

    async def enter(self, use: SlotUse) -> None:
        """Come in."""


OPEN = OpenGate()


class ClientOptions(Struct, frozen=True):
    """How a client behaves."""

    manager: str = "knfleet"
    """The field manager of all writes that name no other."""
    concurrency: int = 32
    """Requests in flight at once; watches do not count."""
    reserve: int = 2
    """How many of them only `Client.urgent` may use."""
    requests_per_second: float = 0
    """How many requests are sent in a second at most; 0 means no limit."""
    burst: int = 0
    """How many may be sent at once when there were none before."""
    deadline_seconds: float = 30
    """How long a call may take in all, with waiting and retries."""
    connect_seconds: float = 10
    """How long one attempt may take to connect, TLS included."""
    attempts: int = 5
    """How often a request is sent at most."""
    backoff_seconds: float = 0.1
    """The longest wait after the first failure; it doubles with each further one."""
    backoff_limit_seconds: float = 5
    answer_limit_bytes: int = 64 * MIB
    """The largest answer that is read."""
    line_limit_bytes: int = 8 * MIB
    """The largest event that is read from a watch."""
    memory_limit_bytes: int = 1024 * MIB
    """How much memory everything may take that is being read, listed or kept by informers."""
    read_bytes_per_second: float = 0
    """How fast lists and watches are read after a burst of four seconds; 0 means no limit.

    Counted in memory, by which the time goes that objects take to be decoded and handled: who sends
    without end must not keep the event loop from all others.
    """
    list_seconds: float = 300
    """How long a list may take with all its pages."""
    watch_backoff_limit_seconds: float = 30
    """The longest wait before a list or watch is begun again."""
    silence_seconds: float = 100
    """A watch without even a bookmark for so long is given up; they come every 60 to 75 s."""
    user_agent: str = USER_AGENT
    observe: ClientObserver = SILENT
    before_write: Callable[[], None] = lambda: None
    """Called before every attempt to write; what it raises is raised, and nothing is sent.

    With `Leader.require` here, a process that lost its Lease cannot write. Not for the client that
    the leader itself renews its Lease with.
    """
    exceeded: Callable[[ResponseTooLarge], None] = lambda _: None
    """Called when the server sent more than the limits allow."""
    gate: RequestGate = OPEN
    """Asked before every attempt, except those of `Client.urgent`, which find out how things are.

    A watch is asked for once, before its deadline begins to count.
    """
