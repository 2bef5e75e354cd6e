"""What all connections to spokes are made with, and how often they look at them."""

from collections.abc import Callable

from msgspec import Struct, field

from knfleet.clusters.plugin_credentials import PluginPrograms
from knfleet.kube import supported_versions
from knfleet.kube.auth.exec_process import ProcessRunner, run
from knfleet.kube.client.options import SILENT, USER_AGENT, ClientObserver
from knfleet.runtime.start_limit import StartLimit


class ClusterTiming(Struct, frozen=True):
    """How often, and how long, in seconds."""

    probe: float = 10.0
    """Between two probes of a spoke that is up, at least."""
    spread: float = 0.3
    """At most so much longer, so that spokes that came up together are not probed together."""
    soonest: float = 1.0
    """Between two probes when something went wrong in between."""
    answer: float = 4.0
    """How long a probe may take, unless the spoke is known to be slow."""
    slow_answer: float = 12.0
    """How long a probe of a slow spoke may take."""
    connect: float = 10.0
    """How long each request of a new connection may take."""
    retry: float = 0.5
    """The longest wait after the first failure; it doubles with each further one."""
    retry_limit: float = 10.0
    plugin_retry_limit: float = 15.0
    excess: float = 10.0
    """The longest wait after a spoke sent too much; it doubles each time."""
    excess_limit: float = 300.0
    patience: float = 10.0
    """How long a caller waits for a connection that is being made."""
    reading: float = 4 * 1024 * 1024
    """How many bytes of lists and watches are read from a spoke in a second; 0: as many as come."""
    look: float = 1.0
    """How often to see whether a plugin that failed was replaced."""


class ConnectionSetup(Struct, frozen=True):
    """What all sessions are made with; nothing in it can be held by one of them."""

    plugin_starts: StartLimit
    """Plugins that are started at once."""
    connection_starts: StartLimit
    """Connections that are made at once."""
    observe: ClientObserver = SILENT
    before_write: Callable[[], None] = lambda: None
    minimum: str = supported_versions.MINIMUM
    """The oldest Kubernetes that is accepted."""
    timing: ClusterTiming = ClusterTiming()
    run: ProcessRunner = run
    """How plugins are run."""
    user_agent: str = USER_AGENT
    programs: PluginPrograms = field(default_factory=PluginPrograms)
    """The programs of all plugins, of which many are the same."""
