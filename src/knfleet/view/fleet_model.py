"""The fleet as people see it: a row for each cluster, a row for each installation.

The values are read from the hub's objects alone (see `overview.reading`), hold no manifests, and
become JSON as they are.
"""

from typing import Literal

from msgspec import Struct

from knfleet.api.knative.conditions import Condition, Status

Health = Literal["True", "False", "Unknown", ""]
"""What the hub says of a cluster; empty when nothing was reported yet."""
Stand = Literal["bad", "unknown", "busy", "ok"]
"""How something stands: broken, not known, on its way, as it should be."""

STANDS: tuple[Stand, ...] = ("bad", "unknown", "busy", "ok")
"""The order of rows: what needs a person comes first."""


class ClusterRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One cluster of the fleet."""

    name: str
    """Of the ManagedCluster; `namespace/name` of a profile that another manager publishes."""
    profiles: tuple[str, ...] = ()
    """Its ClusterProfiles as `namespace/name`."""
    stand: Stand
    health: Health = ""
    reason: str = ""
    message: str = ""
    since: str = ""
    """When the health last changed, as Kubernetes writes it."""
    kubernetes: str = ""
    sets: tuple[str, ...] = ()
    accepted: bool = False
    joined: bool = False
    deleting: bool = False
    serving: str = ""
    """The release of Knative Serving that is installed there from this hub."""
    eventing: str = ""
    reached_by: str = ""
    """`direct` or `tunnel`; empty when its hub has no tunnel, or did not publish it."""
    tunnel_since: str = ""
    """When its tunnel opened; empty while it has none."""
    round_trip_milliseconds: str = ""
    """As it was measured then."""

    @property
    def reach(self) -> str:
        """How the hub reaches the cluster, for people."""
        if self.reached_by != "tunnel":
            return "directly" if self.reached_by else ""
        if not self.tunnel_since:
            return "through the tunnel, which is not open"
        trip = self.round_trip_milliseconds
        return f"through the tunnel, round trip {trip} ms" if trip else "through the tunnel"


class InstallProgress(Struct, frozen=True, rename="camel"):
    """What is in progress."""

    what: str
    done: int = 0
    total: int = 0
    """Zero without a limit."""
    waiting: tuple[str, ...] = ()
    """The names that are waited for."""

    def __str__(self) -> str:
        return f"{self.what} {self.done}/{self.total}" if self.total else self.what


class InstallRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One KnativeServing or KnativeEventing."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    target: str
    """`hub`, or the ClusterProfile as `namespace/name`."""
    cluster: str = ""
    """The name of the row of its cluster; empty when it has none."""
    wanted: str = ""
    """The release that is asked for; empty for the newest one."""
    installed: str = ""
    stand: Stand
    ready: Status = "Unknown"
    reason: str = ""
    message: str = ""
    since: str = ""
    """Since when, as Kubernetes writes it."""
    conditions: tuple[Condition, ...] = ()
    progress: InstallProgress | None = None
    paused: bool = False
    deleting: bool = False

    @property
    def ref(self) -> str:
        """What commands take as its name, without doubt."""
        return f"{self.kind}/{self.namespace}/{self.name}"


class FleetView(Struct, frozen=True, rename="camel"):
    """All clusters and all installations at one moment: broken ones first, then by name."""

    clusters: tuple[ClusterRow, ...]
    installs: tuple[InstallRow, ...]
    when: str
    warnings: tuple[str, ...] = ()
    """What could not be read, and why."""


def cluster_order(row: ClusterRow) -> tuple[int, str]:
    """Broken ones first, then by name."""
    return STANDS.index(row.stand), row.name


def install_order(row: InstallRow) -> tuple[int, str, str, str]:
    """Broken ones first, then by name."""
    return STANDS.index(row.stand), row.namespace, row.name, row.kind
