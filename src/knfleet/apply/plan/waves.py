"""In which order objects are applied, so that each finds what it needs.

| Wave       | Kinds                                      | because                               |
|------------|--------------------------------------------|---------------------------------------|
| foundation | Namespaces, CRDs, PriorityClasses          | everything else lives in them         |
| addresses  | Services                                   | an API server hands out addresses one |
|            |                                            | at a time; no caller waits for them
| | rules      | roles, webhook configurations              | a binding is refused when its role
| |            |                                            | cannot be read; a stale webhook of an
| |            |                                            | earlier install blocks what comes
| | material   | bindings, accounts, ConfigMaps, Secrets    | pods start with them
| | work       | everything else; custom resources when     | pods first, since they take longest
| |            | their CRDs are established                 |
| | gated      | custom resources that a webhook of the set | the webhook must answer first
| |            | looks at                                   |
|
"""

from collections.abc import Callable, Iterable
from enum import IntEnum

from knfleet.apply.desired import Desired
from knfleet.apply.refs import WEBHOOK_CONFIGURATIONS, GroupKind

RBAC = "rbac.authorization.k8s.io"


class Wave(IntEnum):
    """A step of the way; objects of one wave are applied at the same time."""

    FOUNDATION = 0
    ADDRESSES = 1
    RULES = 2
    MATERIAL = 3
    WORK = 4
    GATED = 5


WAVE_OF: dict[GroupKind, Wave] = {
    GroupKind("", "Namespace"): Wave.FOUNDATION,
    GroupKind("apiextensions.k8s.io", "CustomResourceDefinition"): Wave.FOUNDATION,
    GroupKind("scheduling.k8s.io", "PriorityClass"): Wave.FOUNDATION,
    GroupKind("", "Service"): Wave.ADDRESSES,
    GroupKind(RBAC, "ClusterRole"): Wave.RULES,
    GroupKind(RBAC, "Role"): Wave.RULES,
    **dict.fromkeys(WEBHOOK_CONFIGURATIONS, Wave.RULES),
    GroupKind(RBAC, "ClusterRoleBinding"): Wave.MATERIAL,
    GroupKind(RBAC, "RoleBinding"): Wave.MATERIAL,
    GroupKind("", "ServiceAccount"): Wave.MATERIAL,
    GroupKind("", "ConfigMap"): Wave.MATERIAL,
    GroupKind("", "Secret"): Wave.MATERIAL,
    GroupKind("", "LimitRange"): Wave.MATERIAL,
    GroupKind("", "ResourceQuota"): Wave.MATERIAL,
    GroupKind("", "PersistentVolumeClaim"): Wave.MATERIAL,
    GroupKind("networking.k8s.io", "NetworkPolicy"): Wave.MATERIAL,
}

SLOW = (GroupKind("batch", "Job"), GroupKind("apps", "Deployment"))
"""What the cluster goes on with for longest after it is written, the slowest first."""


def wave_of(desired: Desired, is_gated: Callable[[Desired], bool]) -> Wave:
    """The wave of an object."""
    if is_gated(desired):
        return Wave.GATED
    return WAVE_OF.get(desired.ref.group_kind, Wave.WORK)


def in_waves(
    objects: Iterable[Desired], is_gated: Callable[[Desired], bool]
) -> dict[Wave, list[Desired]]:
    """Objects by wave, first wave first; empty waves are left out."""
    waves: dict[Wave, list[Desired]] = {wave: [] for wave in Wave}
    for desired in objects:
        waves[wave_of(desired, is_gated)].append(desired)
    waves[Wave.WORK].sort(key=haste)
    return {wave: members for wave, members in waves.items() if members}


def haste(desired: Desired) -> int:
    """Where in its wave an object is written; what takes longest comes first."""
    kind = desired.ref.group_kind
    return SLOW.index(kind) if kind in SLOW else len(SLOW)
