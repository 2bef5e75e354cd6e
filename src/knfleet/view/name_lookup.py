"""Which cluster or installation a name refers to: NAME, NAMESPACE/NAME, KIND/NAME, or all three."""

from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.view.fleet_model import ClusterRow, FleetView, InstallRow
from knfleet.view.suggestions import meant

KINDS: dict[str, str] = {
    **dict.fromkeys(("knativeserving", "knativeservings", "serving"), SERVINGS.kind),
    **dict.fromkeys(("knativeeventing", "knativeeventings", "eventing"), EVENTINGS.kind),
    **dict.fromkeys(("managedcluster", "managedclusters", "cluster"), CLUSTERS.kind),
    **dict.fromkeys(("clusterprofile", "clusterprofiles", "profile"), PROFILES.kind),
}
"""What people write for a kind."""

Row = ClusterRow | InstallRow


class NotNamed(ValueError):
    """A name that leads to nothing, or to several things; the message says which there are."""


def find(fleet: FleetView, name: str) -> Row:
    """The one row that a name means; raises `NotNamed` when it is none, or not the only one."""
    found = rows_of(fleet, name)
    if len(found) == 1:
        return found[0]
    if not found:
        known = [each for row in (*fleet.installs, *fleet.clusters) for each in short_names(row)]
        raise NotNamed(f"nothing on this hub is called {name}; {meant(name, known)}")
    choices = ", ".join(sorted(full_name(row) for row in found))
    raise NotNamed(f"{name} can mean {len(found)} things; write one of {choices}")


def find_install(fleet: FleetView, name: str) -> InstallRow:
    """The one installation that a name means."""
    row = find(FleetView((), fleet.installs, fleet.when), name)
    assert isinstance(row, InstallRow)
    return row


def rows_of(fleet: FleetView, name: str) -> list[Row]:
    """All rows that a name can mean; what is installed comes before a cluster of that name."""
    return [row for row in (*fleet.installs, *fleet.clusters) if name in names_of(row, name)]


def names_of(row: Row, name: str) -> set[str]:
    """All that a row may be called; kinds in the spelling of the name that is looked for."""
    first = name.partition("/")[0]
    kind = KINDS.get(first.lower(), "")
    if isinstance(row, ClusterRow):
        names = {row.name}
        if kind == CLUSTERS.kind:
            names.add(f"{first}/{row.name}")
        if kind == PROFILES.kind or "/" in row.name:
            names.update(f"{first}/{each}" for each in row.profiles)
        return names | set(row.profiles)
    names = {row.name, f"{row.namespace}/{row.name}"}
    if kind == row.kind:
        names |= {f"{first}/{each}" for each in list(names)}
    return names


def short_names(row: Row) -> tuple[str, ...]:
    """Suggestions for a mistyped name."""
    return (row.name,) if isinstance(row, ClusterRow) else (row.name, f"{row.namespace}/{row.name}")


def full_name(row: Row) -> str:
    """A name that leads to this row alone."""
    if isinstance(row, InstallRow):
        return row.ref
    return f"{PROFILES.kind if '/' in row.name else CLUSTERS.kind}/{row.name}"
