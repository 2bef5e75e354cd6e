"""What the agent says of its cluster, as a function of what it saw. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal

import msgspec
from msgspec import Struct

from knfleet.api.cluster.managedcluster import (
    ACCEPTED,
    AVAILABLE,
    CLOCK_SYNCED,
    JOINED,
    SKIP_CLOCK_CHECK,
    ManagedCluster,
)
from knfleet.api.conditions import StandardCondition, find, is_true, put
from knfleet.api.meta import Object
from knfleet.api.quantity import quantity
from knfleet.apply.manifest_fields import items, part

RESERVED_CLAIMS = (
    "id.k8s.io",
    "kubeversion.open-cluster-management.io",
    "platform.open-cluster-management.io",
    "product.open-cluster-management.io",
)
SPOKE_ONLY = "open-cluster-management.io/spoke-only"
CUSTOM_CLAIMS = 20
LONGEST_VALUE = 1024
BINARY = [(f"{unit}i", Decimal(1024) ** power) for power, unit in enumerate("KMGTPE", start=1)]

Amounts = Mapping[str, str]


class ClusterFacts(Struct, frozen=True):
    """What the agent saw of its cluster."""

    problem: str = ""
    """Why the API server is not well; empty when it is."""
    version: str = ""
    nodes: tuple[Object, ...] = ()
    claims: tuple[Object, ...] = ()
    properties: tuple[Object, ...] = ()
    """ClusterProperties, which count for more than claims of the same name."""


class ClaimFilter(Struct, frozen=True):
    """Which claims are reported to the hub."""

    custom: int = CUSTOM_CLAIMS
    """How many, beside those with reserved names."""
    suffixes: tuple[str, ...] = ()
    """Names that end like this are reserved as well."""

    def is_reserved(self, name: str) -> bool:
        """Whether a name is always reported."""
        return name in RESERVED_CLAIMS or name.endswith(self.suffixes)


def is_accepted(cluster: ManagedCluster) -> bool:
    return is_true(cluster.status.conditions, ACCEPTED)


def relevant_state(manifest: Object | None) -> object:
    """The parts of a ManagedCluster that decide what the agent does: not messages, nor times."""
    if manifest is None:
        return None
    conditions = [
        (each["type"], each["status"]) for each in items(manifest, "status", "conditions")
    ]
    return part(manifest, "spec"), conditions


def is_clock_off(cluster: ManagedCluster) -> bool:
    """Whether the hub finds our clock too far from its own to be trusted."""
    if cluster.metadata.annotations.get(SKIP_CLOCK_CHECK) == "true":
        return False
    synced = find(cluster.status.conditions, CLOCK_SYNCED)
    return synced is not None and synced.status == "False"


def conditions(
    cluster: ManagedCluster,
    facts: ClusterFacts,
    now: datetime,
    further: StandardCondition | None = None,
) -> list[StandardCondition]:
    """The cluster's conditions with ours among them; those of the hub stay as they are."""
    ours = [joined()]
    if not is_clock_off(cluster):
        ours.append(availability(facts))
    if further is not None:
        ours.append(further)
    wanted = list(cluster.status.conditions)
    for each in ours:
        wanted = put(wanted, each, now)
    return wanted


def joined() -> StandardCondition:
    """The agent has joined."""
    return StandardCondition(
        type=JOINED,
        status="True",
        reason="ManagedClusterJoined",
        message="Managed cluster joined",
    )


def availability(facts: ClusterFacts) -> StandardCondition:
    """Whether the cluster's API server is well."""
    if facts.problem:
        return StandardCondition(
            type=AVAILABLE,
            status="False",
            reason="ManagedClusterKubeAPIServerUnavailable",
            message=f"The kube-apiserver is not available: {facts.problem}",
        )
    return StandardCondition(
        type=AVAILABLE,
        status="True",
        reason="ManagedClusterAvailable",
        message="Managed cluster is available",
    )


def patch_of(
    cluster: ManagedCluster,
    facts: ClusterFacts,
    now: datetime,
    *,
    further: StandardCondition | None = None,
    claim_filter: ClaimFilter = ClaimFilter(),  # noqa: B008 - a frozen value
) -> Object:
    """The merge patch that makes the status say what was seen; empty when it does already."""
    wanted = conditions(cluster, facts, now, further)
    changes: Object = {}
    if wanted != cluster.status.conditions:
        changes["conditions"] = msgspec.to_builtins(wanted)
    if not facts.problem and not is_clock_off(cluster):
        changes |= resources(cluster, facts)
        claims = reported_claims(facts, claim_filter)
        if claims != msgspec.to_builtins(cluster.status.cluster_claims):
            changes["clusterClaims"] = claims
    if not changes:
        return {}
    return {
        "metadata": {"resourceVersion": cluster.metadata.resource_version},
        "status": changes,
    }


def resources(cluster: ManagedCluster, facts: ClusterFacts) -> Object:
    """What is new about version and sizes. Capacities that others added stay."""
    changes: Object = {}
    if facts.version and cluster.status.version.kubernetes != facts.version:
        changes["version"] = {"kubernetes": facts.version}
    capacity = total(facts.nodes, "capacity")
    if any(cluster.status.capacity.get(name) != amount for name, amount in capacity.items()):
        changes["capacity"] = capacity
    schedulable = [each for each in facts.nodes if not part(each, "spec").get("unschedulable")]
    allocatable = total(schedulable, "allocatable")
    if allocatable != cluster.status.allocatable:
        removed = dict.fromkeys(set(cluster.status.allocatable) - set(allocatable))
        changes["allocatable"] = {**removed, **allocatable}
    return changes


def total(nodes: Iterable[Object], kind: str) -> dict[str, str]:
    """The sum of what nodes have, by resource."""
    sums: dict[str, Decimal] = {}
    binary: set[str] = set()
    for node in nodes:
        for name, text in part(node, "status", kind).items():
            amount = quantity(str(text))
            if amount is None:
                continue
            sums[name] = sums.get(name, Decimal(0)) + amount
            if str(text).endswith("i"):
                binary.add(name)
    return {name: written(amount, name in binary) for name, amount in sorted(sums.items())}


def written(amount: Decimal, is_binary: bool) -> str:
    """A number as Kubernetes writes quantities: the largest unit that leaves it whole."""
    if amount != amount.to_integral_value():
        return f"{(amount * 1000).to_integral_value(rounding='ROUND_UP')}m"
    if is_binary and amount:
        for unit, factor in reversed(BINARY):
            if amount % factor == 0:
                return f"{amount / factor:f}{unit}"
    return f"{amount.to_integral_value():f}"


def reported_claims(facts: ClusterFacts, claim_filter: ClaimFilter) -> list[dict[str, str]]:
    """The claims that are reported to the hub: the reserved names, and so many others, by name."""
    logged = {**values(facts.claims), **values(facts.properties)}
    reserved = sorted(name for name in logged if claim_filter.is_reserved(name))
    others = sorted(name for name in logged if not claim_filter.is_reserved(name))
    names = [*reserved, *others[: claim_filter.custom]]
    return [{"name": name, "value": logged[name]} for name in names]


def values(claims: Iterable[Object]) -> dict[str, str]:
    """What claims or properties say, by name; without those that stay on the cluster."""
    found: dict[str, str] = {}
    for each in claims:
        meta = each["metadata"]
        value = str(part(each, "spec").get("value") or "")
        if SPOKE_ONLY not in part(meta, "labels") and 0 < len(value) <= LONGEST_VALUE:
            found[meta["name"]] = value
    return found
