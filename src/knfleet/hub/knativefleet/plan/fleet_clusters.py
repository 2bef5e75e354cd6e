"""Which clusters a fleet has now, and in which waves they are. Pure."""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from knfleet.api import durations
from knfleet.api.fleet.fleet_members import FleetClusters
from knfleet.api.fleet.fleet_names import REMAINING_WAVE
from knfleet.api.fleet.fleet_rules import NO_DEADLINE
from knfleet.api.fleet.knativefleet import KnativeFleetSpec
from knfleet.api.fleet.wave_strategy import FleetStrategy, FleetWave, WaveSettings
from knfleet.api.inventory import CONTROL_PLANE_HEALTHY
from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items, part
from knfleet.expressions.selectors import label_selector_problem
from knfleet.hub.knativefleet.plan.fleet_rollout import RolloutWave
from knfleet.hub.knativefleet.template.variables import ProfileFacts
from knfleet.hub.placement.decisions.decision_groups import agrees, decided_groups
from knfleet.hub.rollout.rollout_model import Group, Strategy

DEFAULT_DEADLINE_SECONDS = 600.0

VERSION_LENGTH = 64


class Member(Struct, frozen=True):
    """A cluster of a fleet, as its profile describes it."""

    facts: ProfileFacts
    problem: str = ""
    """Why it cannot be reached, as far as the profile says."""
    kubernetes: str = ""
    """Its version of Kubernetes, if the profile says."""


class FleetSelection(Struct, frozen=True, kw_only=True):
    """The clusters of a fleet."""

    members: Mapping[str, Member] = {}
    groups: tuple[Group, ...] = ()
    """The decision groups of a Placement."""
    reason: str = "ClustersFound"
    message: str = ""
    is_certain: bool = True
    """Whether clusters that are not in here have left."""


def member(name: str, namespace: str, profile: Object | None) -> Member:
    """What a profile says of a cluster."""
    if profile is None:
        return Member(ProfileFacts(name), f"ClusterProfile {namespace}/{name} is missing")
    properties = {
        str(each.get("name", "")): str(each.get("value", ""))
        for each in items(profile, "status", "properties")
    }
    facts = ProfileFacts(name, part(profile, "metadata", "labels"), properties)
    conditions = {each.get("type"): each for each in items(profile, "status", "conditions")}
    healthy = conditions.get(CONTROL_PLANE_HEALTHY) or Object()
    version = str(part(profile, "status", "version").get("kubernetes") or "")[:VERSION_LENGTH]
    if healthy.get("status") == "True":
        return Member(facts, kubernetes=version)
    text = healthy.get("message") or healthy.get("reason") or "ControlPlaneHealthy is not True"
    problem = f"ClusterProfile {namespace}/{name} is not healthy: {text}"
    return Member(facts, problem, version)


def selection(
    wanted: FleetClusters,
    profiles: Mapping[str, Object],
    placement: Object | None,
    decisions: Iterable[Object],
    read: Callable[[str, str, Object | None], Member] = member,
) -> FleetSelection:
    """The clusters that a fleet has; profiles are those of its namespace, by name.

    `read` is how a profile is read; it may remember what it has read.
    """
    if wanted.selector is not None and (problem := label_selector_problem(wanted.selector)):
        return FleetSelection(
            reason="InvalidFleet", message=f"clusters.selector: {problem}", is_certain=False
        )
    groups: tuple[Group, ...] = ()
    if wanted.placement_ref is not None:
        name = f"{wanted.namespace}/{wanted.placement_ref.name}"
        if placement is None or placement["metadata"].get("deletionTimestamp"):
            return FleetSelection(
                reason="PlacementNotFound", message=f"Placement {name} is missing", is_certain=False
            )
        groups = decided_groups(decisions)
        names = [cluster for group in groups for cluster in group.clusters]
        is_certain = agrees(placement, groups)
    elif wanted.selector is not None:
        names = [
            name
            for name, profile in sorted(profiles.items())
            if wanted.selector.matches(part(profile, "metadata", "labels"))
            and not profile["metadata"].get("deletionTimestamp")
        ]
        is_certain = True
    else:
        names, is_certain = list(dict.fromkeys(wanted.names)), True
    members = {name: read(name, wanted.namespace, profiles.get(name)) for name in names}
    if not members:
        text = "no cluster is selected; installations that there are stay as they are"
        return FleetSelection(reason="NoClustersSelected", message=text, is_certain=False)
    if not is_certain:
        return FleetSelection(
            members=members,
            groups=groups,
            reason="PlacementUndecided",
            message="the Placement is being decided; no cluster is removed meanwhile",
            is_certain=False,
        )
    return FleetSelection(members=members, groups=groups, message=f"{len(members)} clusters")


def waves_of(strategy: FleetStrategy, chosen: FleetSelection) -> tuple[RolloutWave, ...]:
    """The waves of a fleet; each cluster is in the first that has it."""
    left = dict(chosen.members)
    found: list[RolloutWave] = []
    gates = tuple(each.name for each in strategy.gates)

    def add(name: str, clusters: Iterable[str], settings: WaveSettings) -> None:
        own = tuple(each for each in clusters if left.pop(each, None) is not None)
        found.append(RolloutWave(name, own, engine_strategy(settings, strategy), gates))

    for wave in strategy.waves:
        add(wave.name, [name for name in left if is_in(wave, left[name], chosen.groups)], wave)
    if not strategy.waves and chosen.groups:
        for group in chosen.groups:
            add(f"{group.name or 'group'}-{group.index}", group.clusters, strategy)
    if left:
        add(REMAINING_WAVE, list(left), strategy)
    return tuple(found)


def is_in(wave: FleetWave, cluster: Member, groups: Iterable[Group]) -> bool:
    """Whether a cluster belongs to a wave."""
    name = cluster.facts.name
    if wave.selector is not None:
        return wave.selector.matches(dict(cluster.facts.labels))
    if wave.decision_groups:
        return any(name in each.clusters for each in groups if each.name in wave.decision_groups)
    return name in wave.names


def engine_strategy(wave: WaveSettings, default: WaveSettings) -> Strategy:
    """How a wave is changed, as the engine has it."""
    concurrency = default.max_concurrency if wave.max_concurrency is None else wave.max_concurrency
    failures = default.max_failures if wave.max_failures is None else wave.max_failures
    soak = default.min_success_time if wave.min_success_time is None else wave.min_success_time
    deadline = (
        default.progress_deadline if wave.progress_deadline is None else wave.progress_deadline
    )
    return Strategy(
        type="Progressive",
        max_concurrency=concurrency,
        max_failures=failures or 0,
        min_success_seconds=durations.seconds(soak or "0") or 0.0,
        deadline_seconds=deadline_seconds(deadline),
    )


def deadline_seconds(text: str | None) -> float | None:
    """How long a cluster may take; None: without limit."""
    if text == NO_DEADLINE:
        return None
    found = durations.seconds(text or "")
    return DEFAULT_DEADLINE_SECONDS if found is None else found


def selector_problem(spec: KnativeFleetSpec) -> str:
    """What is wrong with the selectors of waves and overrides; empty when nothing is."""
    selectors = [
        *((f"strategy.waves {each.name}", each.selector) for each in spec.strategy.waves),
        *((f"overrides {each.name}", each.clusters.selector) for each in spec.overrides),
    ]
    for where, selector in selectors:
        if selector is not None and (problem := label_selector_problem(selector)):
            return f"{where}: {problem}"
    return ""
