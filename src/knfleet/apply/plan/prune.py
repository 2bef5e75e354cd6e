"""What must be deleted, and in which order.

Never deleted: CRDs, because all objects of their kind would go with them; Namespaces that we did
not create, or that hold the parent of the set; anything that does not carry the label of the set,
or carries it as a copy of one of our objects that somebody else made. Those that stay are released:
they lose the label, so that a later set can have them.
"""

from collections.abc import Collection, Iterable
from enum import IntEnum, StrEnum

from msgspec import Struct

from knfleet.api.meta import Resource
from knfleet.apply.applyset import ApplySet
from knfleet.apply.observe.metadata import Observed
from knfleet.apply.refs import CLUSTER_ROLE, CRD, NAMESPACE, WEBHOOK_CONFIGURATIONS, GroupKind, Ref

RBAC = "rbac.authorization.k8s.io"
AGGREGATION = "clusterrole-aggregation-controller"


class Removal(IntEnum):
    """A step of the way out; each is gone before the next begins."""

    CUSTOM = 0
    """Custom resources, while their controllers and webhooks still work."""
    WEBHOOKS = 1
    """Webhook configurations, before what answers for them."""
    WORKLOADS = 2
    MATERIAL = 3
    BINDINGS = 4
    AGGREGATED = 5
    """ClusterRoles that the cluster fills, before those that it fills them from."""
    ROLES = 6
    NAMESPACES = 7


WORKLOADS = frozenset(
    {
        GroupKind("apps", "DaemonSet"),
        GroupKind("apps", "Deployment"),
        GroupKind("apps", "StatefulSet"),
        GroupKind("batch", "CronJob"),
        GroupKind("batch", "Job"),
    }
)
RUNNING = WORKLOADS - {GroupKind("batch", "CronJob"), GroupKind("batch", "Job")}
"""Workloads that run all the time."""
REMOVAL_OF: dict[GroupKind, Removal] = {
    **dict.fromkeys(WEBHOOK_CONFIGURATIONS, Removal.WEBHOOKS),
    GroupKind("apiregistration.k8s.io", "APIService"): Removal.WEBHOOKS,
    **dict.fromkeys(WORKLOADS, Removal.WORKLOADS),
    GroupKind("autoscaling", "HorizontalPodAutoscaler"): Removal.WORKLOADS,
    GroupKind(RBAC, "ClusterRoleBinding"): Removal.BINDINGS,
    GroupKind(RBAC, "RoleBinding"): Removal.BINDINGS,
    GroupKind(RBAC, "ClusterRole"): Removal.ROLES,
    GroupKind(RBAC, "Role"): Removal.ROLES,
    GroupKind("", "ServiceAccount"): Removal.ROLES,
    NAMESPACE: Removal.NAMESPACES,
}


class Member(Struct, frozen=True):
    """An object that carries the label of the set."""

    resource: Resource
    observed: Observed

    @property
    def ref(self) -> Ref:
        """Which object it is."""
        return self.observed.ref


class Fate(StrEnum):
    """What becomes of a member."""

    KEEP = "keep"
    DELETE = "delete"
    RELEASE = "release"


class Pruning(Struct, frozen=True):
    """What must be deleted, step by step, and what must be released."""

    removals: dict[Removal, tuple[Member, ...]]
    released: tuple[Member, ...] = ()

    @property
    def members(self) -> list[Member]:
        """Everything that is to be deleted, in order."""
        return [member for members in self.removals.values() for member in members]

    @property
    def second_look(self) -> frozenset[str]:
        """ClusterRoles that the cluster may bring back once they are deleted."""
        return frozenset(member.ref.name for member in self.removals.get(Removal.AGGREGATED, ()))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done."""
        return not self.removals and not self.released


def fate(observed: Observed, wanted: Collection[Ref], applyset: ApplySet) -> Fate:
    """What becomes of an object."""
    ref = observed.ref
    if observed.part_of != applyset.id or ref in wanted or ref == applyset.ref:
        return Fate.KEEP
    if ref.group_kind == CRD or not observed.is_ours:
        return Fate.RELEASE
    if ref.group_kind == NAMESPACE and not may_delete_namespace(observed, applyset):
        return Fate.RELEASE
    return Fate.DELETE


def may_delete_namespace(observed: Observed, applyset: ApplySet) -> bool:
    """Whether a Namespace is there because of this set alone."""
    return observed.created_by == applyset.id and observed.ref.name != applyset.key.namespace


def prune(members: Iterable[Member], wanted: Collection[Ref], applyset: ApplySet) -> Pruning:
    """What must be done so that only wanted objects are members."""
    removals: dict[Removal, list[Member]] = {step: [] for step in Removal}
    released: list[Member] = []
    for member in members:
        match fate(member.observed, wanted, applyset):
            case Fate.DELETE:
                removals[removal_of(member.observed)].append(member)
            case Fate.RELEASE:
                released.append(member)
            case Fate.KEEP:
                pass
    ordered = {step: tuple(each) for step, each in removals.items() if each}
    return Pruning(ordered, tuple(released))


def losses(members: Iterable[Member], pruning: Pruning) -> list[Ref]:
    """The running workloads that a prune deletes, if those are most of them."""
    lost = [each.ref for each in pruning.members if each.ref.group_kind in RUNNING]
    running = [each for each in members if each.ref.group_kind in RUNNING]
    return lost if 2 * len(lost) > len(running) else []


def removal_of(observed: Observed) -> Removal:
    """The step in which an object goes."""
    kind = observed.ref.group_kind
    if kind.is_custom:
        return Removal.CUSTOM
    if kind == CLUSTER_ROLE and is_aggregated(observed):
        return Removal.AGGREGATED
    return REMOVAL_OF.get(kind, Removal.MATERIAL)


def is_aggregated(observed: Observed) -> bool:
    """Whether the cluster writes the rules of a ClusterRole, which metadata tells well enough."""
    return "f:aggregationRule" in observed.own or any(
        entry.get("manager") == AGGREGATION for entry in observed.managed
    )


def is_ghost(observed: Observed) -> bool:
    """Whether nobody but the aggregation controller ever wrote an object."""
    managers = {entry.get("manager") for entry in observed.managed}
    return observed.part_of == "" and managers == {AGGREGATION}
