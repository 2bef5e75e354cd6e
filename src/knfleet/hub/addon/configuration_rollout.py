"""Which clusters get new configurations of an add-on now, and how far the rollout is. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from knfleet.api.addon.addon_configuration import ConfigReferent, ConfigSpecHash, ConfigType
from knfleet.api.addon.clustermanagementaddon import (
    ClusterManagementAddOn,
    ClusterManagementAddOnStatus,
    DefaultConfigReference,
    InstallConfigReference,
    InstallProgression,
    PlacementStrategy,
)
from knfleet.api.addon.managedclusteraddon import ConfigReference, ManagedClusterAddOn
from knfleet.api.addon.names import AVAILABLE, PROGRESSING
from knfleet.api.conditions import StandardCondition, find, is_true, put
from knfleet.api.meta import Key
from knfleet.api.moments import as_moment
from knfleet.hub.addon.delivery import work_conditions
from knfleet.hub.addon.resolution import (
    BUILT_IN,
    Hashes,
    chosen_configs,
    default_configs,
    desired,
    is_applied,
    missing,
    wanted_references,
)
from knfleet.hub.rollout import rollout_plan
from knfleet.hub.rollout.rollout_model import Group, Plan, Progress, State
from knfleet.hub.rollout.strategy import WrongStrategy, strategy_of


class PlacementSelection(Struct, frozen=True):
    """What a Placement of the install strategy selected."""

    strategy: PlacementStrategy
    groups: tuple[Group, ...] = ()
    clusters_per_group: int | str = "100%"
    problem: str = ""
    """Why it selects nothing."""

    @property
    def clusters(self) -> list[str]:
        """All clusters that it selected."""
        return [each for group in self.groups for each in group.clusters]


class AddOnChange(Struct, frozen=True):
    """What is written about the configurations of an add-on on one cluster."""

    addon: ManagedClusterAddOn
    references: list[ConfigReference]
    configured: StandardCondition
    begins: bool = False
    """Whether the cluster gets other configurations now."""


class ConfigurationPlan(Struct, frozen=True):
    """What follows from the configurations of an add-on and from how far they are."""

    changes: tuple[AddOnChange, ...]
    status: ClusterManagementAddOnStatus
    next_look: datetime | None = None


class AddOnMember(Struct, frozen=True):
    """An add-on on a cluster, what it should have, and how far that is."""

    addon: ManagedClusterAddOn
    references: list[ConfigReference]
    progress: Progress


def chosen_strategies(selections: Sequence[PlacementSelection]) -> dict[str, int]:
    """By cluster the number of the selection that counts: the last one that has it."""
    return {
        cluster: number
        for number, selection in enumerate(selections)
        for cluster in selection.clusters
    }


def plan_configurations(
    cluster_addon: ClusterManagementAddOn,
    addons: Sequence[ManagedClusterAddOn],
    selections: Sequence[PlacementSelection],
    hashes: Hashes,
    now: datetime,
) -> ConfigurationPlan:
    """What is written now about an add-on and about each of its clusters."""
    chosen = chosen_strategies(selections)
    known = known_hashes(cluster_addon, hashes)
    members = {
        each.cluster: member(
            cluster_addon,
            each,
            selections[chosen[each.cluster]].strategy if each.cluster in chosen else None,
            known,
        )
        for each in addons
    }
    changes = [
        change(each, begins=each.progress.state is State.TO_APPLY)
        for cluster, each in members.items()
        if cluster not in chosen
    ]
    progressions: list[InstallProgression] = []
    looks: list[datetime] = []
    for number, selection in enumerate(selections):
        own = {name: each for name, each in members.items() if chosen.get(name) == number}
        groups = [
            replace(group, clusters=tuple(c for c in group.clusters if chosen[c] == number))
            for group in selection.groups
        ]
        planned = plan_of(selection, groups, own, now)
        progressions.append(progression(cluster_addon, selection, planned, own, known, now))
        if isinstance(planned, Plan):
            changes += [
                change(each, begins=name in planned.act, waits=planned.waiting.get(name, ""))
                for name, each in own.items()
            ]
            looks += [planned.next_look] if planned.next_look else []
    status = ClusterManagementAddOnStatus(
        default_config_references=default_references(cluster_addon, known),
        install_progressions=progressions,
    )
    return ConfigurationPlan(tuple(changes), status, min(looks, default=None))


def known_hashes(cluster_addon: ClusterManagementAddOn, hashes: Hashes) -> Hashes:
    """Hashes of our own kinds, and those that the add-on's manager wrote into the status."""
    written = {
        (str(each), each.desired_config.referent): each.desired_config.spec_hash
        for references in (
            cluster_addon.status.default_config_references,
            *(each.config_references for each in cluster_addon.status.install_progressions),
        )
        for each in references
        if each.desired_config is not None
    }

    def found(type_: ConfigType, referent: ConfigReferent) -> str:
        if type_ in BUILT_IN:
            return hashes(type_, referent)
        return written.get((str(type_), referent), "")

    return found


def member(
    cluster_addon: ClusterManagementAddOn,
    addon: ManagedClusterAddOn,
    strategy: PlacementStrategy | None,
    hashes: Hashes,
) -> AddOnMember:
    """An add-on on a cluster, what it should have, and how far that is."""
    known = addon.status.config_references
    references = wanted_references(chosen_configs(cluster_addon, addon, strategy), hashes, known)
    return AddOnMember(addon, references, progress_of(addon, references))


def progress_of(addon: ManagedClusterAddOn, wanted: Sequence[ConfigReference]) -> Progress:
    """How far the wanted configurations are on the cluster, and since when."""
    known = addon.status.config_references
    if desired(wanted) != desired(known):
        return Progress(State.TO_APPLY)
    current = find(addon.status.conditions, PROGRESSING)
    reason = current.reason if current else ""
    since = moment(current)
    if is_applied(known):
        return Progress(State.SUCCEEDED, since if reason == work_conditions.COMPLETED else None)
    if reason == work_conditions.FAILED:
        return Progress(State.FAILED, since)
    return Progress(State.PROGRESSING, since)


def moment(condition: StandardCondition | None) -> datetime | None:
    """When a condition last changed."""
    return as_moment(condition.last_transition_time) if condition else None


def plan_of(
    selection: PlacementSelection,
    groups: Sequence[Group],
    members: Mapping[str, AddOnMember],
    now: datetime,
) -> Plan | str:
    """Which clusters of a Placement get new configurations now; a problem if none can."""
    if selection.problem:
        return selection.problem
    try:
        strategy = strategy_of(selection.strategy.rollout_strategy, selection.clusters_per_group)
    except WrongStrategy as error:
        return f"rolloutStrategy: {error}"
    states = {name: each.progress for name, each in members.items()}
    return rollout_plan.plan(groups, strategy, states, now)


def change(member: AddOnMember, *, begins: bool, waits: str = "") -> AddOnChange:
    """What is written about one cluster: references only change when its turn has come."""
    absent = missing(member.references)
    if absent or not begins:
        return AddOnChange(
            member.addon,
            member.addon.status.config_references,
            work_conditions.configured(absent, waits=waits),
        )
    return AddOnChange(member.addon, member.references, work_conditions.configured([]), begins=True)


def default_references(
    cluster_addon: ClusterManagementAddOn, hashes: Hashes
) -> list[DefaultConfigReference]:
    """The default configurations as they are now."""
    return [
        DefaultConfigReference(
            group=each.group,
            resource=each.resource,
            desired_config=ConfigSpecHash(
                name=each.name,
                namespace=each.namespace,
                spec_hash=hashes(each.type, each.referent),
            ),
        )
        for each in default_configs(cluster_addon)
    ]


def progression(
    cluster_addon: ClusterManagementAddOn,
    selection: PlacementSelection,
    planned: Plan | str,
    members: Mapping[str, AddOnMember],
    hashes: Hashes,
    now: datetime,
) -> InstallProgression:
    """How far the configurations of a Placement are."""
    old = old_progression(cluster_addon, selection.strategy.key)
    is_done = isinstance(planned, Plan) and 0 < len(planned.done) == planned.total
    is_good = is_done and all(
        is_true(each.addon.status.conditions, AVAILABLE) for each in members.values()
    )
    references: list[InstallConfigReference] = []
    for config in selection.strategy.configs:
        wanted = ConfigSpecHash(
            name=config.name,
            namespace=config.namespace,
            spec_hash=hashes(config.type, config.referent),
        )
        known = next(
            (
                each
                for each in old.config_references
                if (each.group, each.resource) == (config.group, config.resource)
                and each.desired_config is not None
                and each.desired_config.referent == wanted.referent
            ),
            None,
        )
        references.append(
            InstallConfigReference(
                group=config.group,
                resource=config.resource,
                desired_config=wanted,
                last_applied_config=(
                    wanted if is_done else known.last_applied_config if known else None
                ),
                last_known_good_config=(
                    wanted if is_good else known.last_known_good_config if known else None
                ),
            )
        )
    return InstallProgression(
        namespace=selection.strategy.namespace,
        name=selection.strategy.name,
        config_references=references,
        conditions=put(old.conditions, rollout_condition(planned, is_done=is_done), now),
    )


def old_progression(cluster_addon: ClusterManagementAddOn, key: Key) -> InstallProgression:
    """What the status says about a Placement."""
    found = (each for each in cluster_addon.status.install_progressions if each.key == key)
    return next(found, InstallProgression(namespace=key.namespace, name=key.name))


def rollout_condition(planned: Plan | str, *, is_done: bool) -> StandardCondition:
    """How far a rollout is, and what it waits for."""
    if isinstance(planned, str):
        return work_conditions.condition(PROGRESSING, "False", "RolloutNotPossible", planned)
    failed, late = len(planned.failed), len(planned.timed_out)
    counts = f"{failed} failed {late} timeout."
    if is_done:
        text = f"{len(planned.done)}/{planned.total} completed with no errors, {counts}"
        return work_conditions.condition(PROGRESSING, "False", work_conditions.COMPLETED, text)
    active = len(planned.act) + len(planned.progressing) + len(planned.done)
    reasons = [planned.stopped, *dict.fromkeys(planned.waiting.values())]
    if planned.missing_groups:
        reasons.append(f"decision groups that do not exist: {', '.join(planned.missing_groups)}")
    if not planned.total:
        reasons.append("no cluster is selected")
    why = "; ".join(dict.fromkeys(each for each in reasons if each))
    text = f"{active}/{planned.total} progressing..., {counts}" + (f" {why}" if why else "")
    return work_conditions.condition(PROGRESSING, "True", work_conditions.IN_PROGRESS, text)
