"""What must be deleted, and in which order.

Never deleted: CRDs, because all objects of their kind would go with them; Namespaces that we did
not create, or that hold the parent of the set; anything that does not carry the label of the set,
or carries it as a copy of one of our objects that another client made. Those that stay are
released: they lose the label, so that a later set can have them.
"""

from collections.abc import Collection, Iterable
from enum import IntEnum, StrEnum

from msgspec import Struct

from knfleet.api.meta import Resource
from knfleet.apply.applyset import ApplySet
from knfleet.apply.observe.metadata import ObservedObject
from knfleet.apply.refs import CLUSTER_ROLE, CRD, NAMESPACE, WEBHOOK_CONFIGURATIONS, GroupKind, Ref

RBAC = "rbac.authorization.k8s.io"
AGGREGATION = "clusterrole-aggregation-controller"


class RemovalWave(IntEnum):
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
REMOVAL_OF: dict[GroupKind, RemovalWave] = {
    **dict.fromkeys(WEBHOOK_CONFIGURATIONS, RemovalWave.WEBHOOKS),
    GroupKind("apiregistration.k8s.io", "APIService"): RemovalWave.WEBHOOKS,
    **dict.fromkeys(WORKLOADS, RemovalWave.WORKLOADS),
    GroupKind("autoscaling", "HorizontalPodAutoscaler"): RemovalWave.WORKLOADS,
    GroupKind(RBAC, "ClusterRoleBinding"): RemovalWave.BINDINGS,
    GroupKind(RBAC, "RoleBinding"): RemovalWave.BINDINGS,
    GroupKind(RBAC, "ClusterRole"): RemovalWave.ROLES,
    GroupKind(RBAC, "Role"): RemovalWave.ROLES,
    GroupKind("", "ServiceAccount"): RemovalWave.ROLES,
    NAMESPACE: RemovalWave.NAMESPACES,
}


class SetMember(Struct, frozen=True):
    """An object that carries the label of the set."""

    resource: Resource
    observed: ObservedObject

    @property
    def ref(self) -> Ref:
        """Which object it is."""
        return self.observed.ref


class MemberAction(StrEnum):
    """What becomes of a member."""

    KEEP = "keep"
    DELETE = "delete"
    RELEASE = "release"


class PrunePlan(Struct, frozen=True):
    """What must be deleted, step by step, and what must be released."""

    removals: dict[RemovalWave, tuple[SetMember, ...]]
    released: tuple[SetMember, ...] = ()

    @property
    def members(self) -> list[SetMember]:
        """Everything that is to be deleted, in order."""
        return [member for members in self.removals.values() for member in members]

    @property
    def second_look(self) -> frozenset[str]:
        """ClusterRoles that the cluster may bring back once they are deleted."""
        return frozenset(
            member.ref.name for member in self.removals.get(RemovalWave.AGGREGATED, ())
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done."""
        return not self.removals and not self.released


def member_action(
    observed: ObservedObject, wanted: Collection[Ref], applyset: ApplySet
) -> MemberAction:
    """What becomes of an object."""
    ref = observed.ref
    if observed.part_of != applyset.id or ref in wanted or ref == applyset.ref:
        return MemberAction.KEEP
    if ref.group_kind == CRD or not observed.is_ours:
        return MemberAction.RELEASE
    if ref.group_kind == NAMESPACE and not may_delete_namespace(observed, applyset):
        return MemberAction.RELEASE
    return MemberAction.DELETE


def may_delete_namespace(observed: ObservedObject, applyset: ApplySet) -> bool:
    """Whether a Namespace is there because of this set alone."""
    return observed.created_by == applyset.id and observed.ref.name != applyset.key.namespace


def prune(members: Iterable[SetMember], wanted: Collection[Ref], applyset: ApplySet) -> PrunePlan:
    """What must be done so that only wanted objects are members."""
    removals: dict[RemovalWave, list[SetMember]] = {step: [] for step in RemovalWave}
    released: list[SetMember] = []
    for member in members:
        match member_action(member.observed, wanted, applyset):
            case MemberAction.DELETE:
                removals[removal_of(member.observed)].append(member)
            case MemberAction.RELEASE:
                released.append(member)
            case MemberAction.KEEP:
                pass
    ordered = {step: tuple(each) for step, each in removals.items() if each}
    return PrunePlan(ordered, tuple(released))


def losses(members: Iterable[SetMember], pruning: PrunePlan) -> list[Ref]:
    """The running workloads that a prune deletes, if those are most of them."""
    lost = [each.ref for each in pruning.members if each.ref.group_kind in RUNNING]
    running = [each for each in members if each.ref.group_kind in RUNNING]
    return lost if 2 * len(lost) > len(running) else []


def removal_of(observed: ObservedObject) -> RemovalWave:
    """The step in which an object goes."""
    kind = observed.ref.group_kind
    if kind.is_custom:
        return RemovalWave.CUSTOM
    if kind == CLUSTER_ROLE and is_aggregated(observed):
        return RemovalWave.AGGREGATED
    return REMOVAL_OF.get(kind, RemovalWave.MATERIAL)


def is_aggregated(observed: ObservedObject) -> bool:
    """Whether the cluster writes the rules of a ClusterRole, which metadata tells well enough."""
    return "f:aggregationRule" in observed.own or any(
        entry.get("manager") == AGGREGATION for entry in observed.managed
    )


def is_ghost(observed: ObservedObject) -> bool:
    """Whether only the aggregation controller ever wrote an object."""
    managers = {entry.get("manager") for entry in observed.managed}
    return observed.part_of == "" and managers == {AGGREGATION}
