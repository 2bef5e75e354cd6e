"""What to do for a replica set: which works are written, deleted, or waited for. Pure.

Each cluster has one work, for the first Placement that selects it. A work is deleted only when it
is certain that no Placement selects its cluster: not while a Placement is missing or is being
decided anew, nor at once when it selects nothing any more.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from knfleet.hub.rollout.rollout_model import Group, Plan, Progress, State, Strategy
from knfleet.hub.rollout.rollout_plan import plan
from knfleet.hub.work.replicasets.replica_state import ReplicaWork, progress_of

EMPTY_SECONDS = 60.0
"""How long a Placement must have selected nothing before its works are deleted."""


class PlacementSource(Struct, frozen=True, kw_only=True):
    """What is known of a Placement that a replica set refers to."""

    name: str
    exists: bool = True
    has_decisions: bool = True
    """Whether there is a decision object, even an empty one."""
    groups: tuple[Group, ...] = ()
    is_complete: bool = True
    """Whether the decision objects have as many clusters as the Placement says."""
    empty_since: datetime | None = None
    """Since when it is not satisfied, if that is so."""
    strategy: Strategy | None = None
    """None: it makes no sense."""
    problem: str = ""
    """What is wrong with the strategy."""

    @property
    def clusters(self) -> list[str]:
        """The selected clusters."""
        return [cluster for group in self.groups for cluster in group.clusters]


class ReplicaSetView(Struct, frozen=True, kw_only=True):
    """What is known of a replica set."""

    placements: tuple[PlacementSource, ...]
    works: tuple[ReplicaWork, ...]
    hashes: Mapping[str, str]
    """By cluster: the template that its work should be made from."""
    unfit: Mapping[str, str] = {}
    """Clusters that cannot get a work, and why."""
    written: Mapping[str, Progress] = {}
    """Clusters whose work was written a moment ago, and is not seen yet."""
    edited: frozenset[str] = frozenset()
    """Clusters whose work was changed by another client."""
    work_name: str = ""
    """The name that works should have."""
    has_progress_rule: bool = False
    paused: bool = False


class PlacementPlan(Struct, frozen=True):
    """The rollout to the clusters of one Placement."""

    placement: PlacementSource
    plan: Plan
    works: Mapping[str, ReplicaWork]
    """The works of its clusters, by cluster."""


class ReplicaSetPlan(Struct, frozen=True):
    """What to do for a replica set."""

    placements: tuple[PlacementPlan, ...]
    deleted: tuple[ReplicaWork, ...]
    kept: tuple[ReplicaWork, ...]
    """Works that are no longer wanted, and not deleted yet."""
    next_look: datetime | None = None


def plan_replicas(view: ReplicaSetView, now: datetime) -> ReplicaSetPlan:
    """What to do for a replica set now."""
    by_cluster = chosen_works(view)
    taken: set[str] = set()
    placements: list[PlacementPlan] = []
    moments: list[datetime] = []
    for placement in view.placements:
        groups = tuple(
            Group(each.index, tuple(name for name in each.clusters if name not in taken), each.name)
            for each in placement.groups
        )
        own = {cluster for group in groups for cluster in group.clusters}
        taken |= own
        states = {
            cluster: state
            for cluster in own
            if (state := state_of(cluster, by_cluster.get(cluster), view)) is not None
        }
        strategy = placement.strategy
        decided = plan(
            groups,
            strategy or Strategy(),
            states,
            now,
            paused=view.paused or strategy is None,
        )
        if decided.next_look is not None:
            moments.append(decided.next_look)
        works = {name: by_cluster[name] for name in own if name in by_cluster}
        placements.append(PlacementPlan(placement, decided, works))
    spare = [each for each in view.works if by_cluster[each.cluster] is not each]
    unwanted = [each for cluster, each in by_cluster.items() if cluster not in taken]
    holding = [each for each in view.placements if not is_settled(each, now)]
    moments += [
        each.empty_since + timedelta(seconds=EMPTY_SECONDS)
        for each in holding
        if unwanted and each.empty_since is not None and is_known(each)
    ]
    removable = () if holding else tuple(unwanted)
    return ReplicaSetPlan(
        placements=tuple(placements),
        deleted=(*spare, *removable),
        kept=tuple(unwanted) if holding else (),
        next_look=min(moments, default=None),
    )


def chosen_works(view: ReplicaSetView) -> dict[str, ReplicaWork]:
    """The work of each cluster; of several, the one with the right name."""
    found: dict[str, ReplicaWork] = {}
    for work in sorted(view.works, key=lambda each: each.metadata.name):
        if work.cluster not in found or work.metadata.name == view.work_name:
            found[work.cluster] = work
    return found


def state_of(cluster: str, work: ReplicaWork | None, view: ReplicaSetView) -> Progress | None:
    """How far a cluster is; None when it has nothing."""
    if cluster in view.unfit:
        return Progress(State.FAILED)
    wanted = view.hashes.get(cluster, "")
    if cluster in view.written and (work is None or work.hash != wanted):
        return view.written[cluster]
    if work is None or cluster in view.edited:
        return None
    return progress_of(work, wanted, has_progress_rule=view.has_progress_rule)


def is_known(placement: PlacementSource) -> bool:
    """Whether it is certain what a Placement selects."""
    return placement.exists and placement.has_decisions and placement.is_complete


def is_settled(placement: PlacementSource, now: datetime) -> bool:
    """Whether it is certain what a Placement selects, and not only for a moment."""
    if not is_known(placement):
        return False
    if placement.clusters or placement.empty_since is None:
        return True
    return now >= placement.empty_since + timedelta(seconds=EMPTY_SECONDS)
