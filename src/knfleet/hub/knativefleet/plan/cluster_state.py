"""How far one cluster is with one revision. Pure."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from knfleet.api.knative.resources import Component
from knfleet.hub.knativefleet.plan.child_state import BY_ACCESS, Child
from knfleet.hub.knativefleet.plan.fleet_rollout import ChildWrite, ClusterView
from knfleet.hub.knativefleet.template.fleet_template import DesiredChildren, RenderedChild
from knfleet.hub.knativefleet.template.upgrade_steps import is_reached, next_version
from knfleet.hub.rollout.rollout_model import Progress, State
from knfleet.release.version import parse

LOST_SECONDS = 30.0
"""How long a cluster that is being changed may be away before its change is suspended."""
SUSPENDED_SECONDS = 300.0
"""When a cluster is tried again that cannot be reached though its profile says nothing of it."""
SLOT_SECONDS = 600.0
"""How long a cluster keeps its slot that is never done, where there is no deadline."""


class RevisionState(Struct, frozen=True, kw_only=True):
    """How far a cluster is with a revision."""

    progress: Progress
    message: str = ""
    pending: tuple[ChildWrite, ...] = ()
    """What is still to be written on a cluster that has a part of the revision."""
    deletes: tuple[Child, ...] = ()
    """Children whose component the revision does not have."""
    is_invalid: bool = False


def state_of(
    cluster: ClusterView, revision: str, desired: DesiredChildren, begun: datetime | None
) -> RevisionState:
    """How far a cluster is with a revision; its time does not begin before a rollout does."""
    problem = cluster.conflict or desired.problem
    if problem:
        return RevisionState(progress=Progress(State.FAILED), message=problem, is_invalid=True)
    has: dict[Component, Child] = {
        component: child
        for component, rendered in desired.components.items()
        if (child := cluster.children.get(component)) is not None
        and has_revision(child, revision, rendered)
    }
    if not has:
        return RevisionState(progress=Progress(State.TO_APPLY))
    deletes = unwanted(cluster, desired)
    pending = [*missing(cluster, revision, desired, has), *steps(cluster, revision, desired, has)]
    started = latest([*(child.started for child in has.values()), begun])
    if refused := next((each.refused for each in has.values() if each.refused), ""):
        progress, message = Progress(State.FAILED, None), refused
    elif not pending and not deletes and all(is_done(has[c], r) for c, r in pairs(desired)):
        since = latest([started_of(has), *(child.ready_since for child in has.values())])
        progress, message = Progress(State.SUCCEEDED, since), ""
    else:
        progress = Progress(State.PROGRESSING, started)
        message = next((each.message for each in has.values() if not each.is_settled), "")
    return RevisionState(
        progress=progress, message=message, pending=tuple(pending), deletes=deletes
    )


def pairs(desired: DesiredChildren) -> list[tuple[Component, RenderedChild]]:
    """The components of a revision."""
    return list(desired.components.items())


def has_revision(child: Child, revision: str, rendered: RenderedChild) -> bool:
    """Whether a child is what a revision means for its cluster, and may be worked on."""
    return (
        child.revision == revision
        and child.hash == rendered.hash
        and not child.suspended
        and not child.deleting
    )


def is_done(child: Child, rendered: RenderedChild) -> bool:
    """Whether a child is ready in the version of its revision."""
    return child.is_settled and is_reached(rendered.version, child.installed)


def unwanted(cluster: ClusterView, desired: DesiredChildren) -> tuple[Child, ...]:
    """Children of the fleet whose component a revision does not have."""
    return tuple(
        child
        for component, child in cluster.children.items()
        if component not in desired.components and child.fleet
    )


def missing(
    cluster: ClusterView, revision: str, desired: DesiredChildren, has: Mapping[Component, Child]
) -> list[ChildWrite]:
    """Writes for components that do not have a revision which others of the cluster have."""
    return [
        write_of(cluster, component, revision, rendered)
        for component, rendered in pairs(desired)
        if component not in has
    ]


def steps(
    cluster: ClusterView, revision: str, desired: DesiredChildren, has: Mapping[Component, Child]
) -> list[ChildWrite]:
    """Writes for components that have reached a version on the way to their own."""
    return [
        write_of(cluster, component, revision, desired.components[component])
        for component, child in has.items()
        if child.is_settled and is_step(child, desired.components[component])
    ]


def is_step(child: Child, rendered: RenderedChild) -> bool:
    """Whether a child is in a version on the way, which the fleet writes as `MAJOR.MINOR`."""
    version = parse(child.version)
    return (
        child.version != rendered.version
        and version is not None
        and version.parts == 2
        and is_reached(child.version, child.installed)
        and not is_reached(rendered.version, child.installed)
    )


def is_on_path(child: Child, rendered: RenderedChild) -> bool:
    """Whether a child asks for the version of its revision, or for one on the way to it."""
    steps = (rendered.version, next_version(child.installed, rendered.version))
    return child.version in steps or is_step(child, rendered)


def all_writes(cluster: ClusterView, revision: str, desired: DesiredChildren) -> list[ChildWrite]:
    """Writes that give a cluster a revision."""
    return [
        write_of(cluster, component, revision, rendered) for component, rendered in pairs(desired)
    ]


def write_of(
    cluster: ClusterView,
    component: Component,
    revision: str,
    rendered: RenderedChild,
    *,
    suspended: str = "",
    reverts: bool = False,
) -> ChildWrite:
    """The write that gives a component of a cluster a revision, or the next step to it."""
    child = cluster.children.get(component)
    installed = "" if child is None else child.installed
    return ChildWrite(
        cluster=cluster.name,
        component=component,
        revision=revision,
        rendered=rendered.with_version(next_version(installed, rendered.version)),
        suspended=suspended,
        child=child,
        reverts=reverts,
    )


def own_revision(cluster: ClusterView) -> str:
    """The revision that a cluster was given last; empty when it has none."""
    given = [child for child in cluster.children.values() if child.revision]
    newest = max(given, key=lambda child: (child.started is not None, child.started), default=None)
    return "" if newest is None else newest.revision


def lost(cluster: ClusterView, now: datetime) -> tuple[str, datetime | None]:
    """Why a cluster cannot be changed now, and when that is looked at again."""
    if cluster.problem:
        return cluster.problem, None
    for child in cluster.children.values():
        if child.suspended == BY_ACCESS and child.started is not None:
            again = child.started + timedelta(seconds=SUSPENDED_SECONDS)
            if now < again:
                return child.lost or "it could not be reached", again
        elif child.lost and not child.suspended:
            return child.lost, None
    return "", None


def has_slot(
    cluster: ClusterView, own: DesiredChildren, deadline: float | None, now: datetime
) -> bool:
    """Whether a cluster is being changed, by whichever revision."""
    seconds = SLOT_SECONDS if deadline is None else deadline
    children = [child for child in cluster.children.values() if child.fleet and child.started]
    active = [child for child in children if not child.suspended and not child.refused]
    revisions = {child.revision for child in children}
    return any(
        child.started is not None
        and now < child.started + timedelta(seconds=seconds)
        and (
            len(revisions) > 1
            or len(children) < len(own.components)
            or not child.is_settled
            or is_on_the_way(child, own)
        )
        for child in active
    )


def is_on_the_way(child: Child, own: DesiredChildren) -> bool:
    """Whether a child is ready in a version that is only a step to that of its revision."""
    rendered = own.components.get(child.component)
    return (
        rendered is not None
        and child.hash == rendered.hash
        and not is_reached(rendered.version, child.installed)
    )


def drift(cluster: ClusterView, own: DesiredChildren) -> list[Component]:
    """Components whose spec is not what their revision means for the cluster."""
    found: list[Component] = []
    for component, rendered in pairs(own):
        child = cluster.children.get(component)
        if child is None or child.hash != rendered.hash or child.suspended or child.deleting:
            continue
        if (
            child.value is None
            or rendered.with_version(child.version).value != child.value
            or not is_on_path(child, rendered)
        ):
            found.append(component)
    return found


def started_of(has: Mapping[Component, Child]) -> datetime | None:
    """When the last of some children was written."""
    return latest([child.started for child in has.values()])


def latest(moments: list[datetime | None]) -> datetime | None:
    """The last of the moments that are known."""
    return max((each for each in moments if each is not None), default=None)
