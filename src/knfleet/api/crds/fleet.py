"""The CustomResourceDefinitions of the fleet: those of the hub, and those of a spoke."""

from knfleet.api.addon import ADDONS, ManagedClusterAddOn
from knfleet.api.cluster.clusterset import (
    BINDING_RULES,
    BINDINGS,
    BOUND,
    CLUSTER_SET_EMPTY,
    CLUSTER_SETS,
    ManagedClusterSet,
    ManagedClusterSetBinding,
)
from knfleet.api.cluster.managedcluster import (
    AVAILABLE,
    CLAIMS,
    CLUSTER_RULES,
    CLUSTERS,
    JOINED,
    ClusterClaim,
    ManagedCluster,
)
from knfleet.api.cluster.placement import (
    DECISIONS,
    PLACEMENTS,
    SATISFIED,
    SCORES,
    AddOnPlacementScore,
    Placement,
    PlacementDecision,
)
from knfleet.api.crds.generator import (
    AGE,
    Column,
    Definition,
    condition,
    custom_resource_definition,
)
from knfleet.api.inventory import PUBLISHED_DECISIONS, PublishedDecision
from knfleet.api.meta import Object
from knfleet.api.operator import CLUSTER_MANAGERS, KLUSTERLETS, ClusterManager, Klusterlet
from knfleet.api.work.appliedmanifestwork import APPLIED_WORKS, AppliedManifestWork
from knfleet.api.work.manifestwork import APPLIED, WORKS, ManifestWork
from knfleet.api.work.manifestwork import AVAILABLE as WORK_AVAILABLE

CLUSTER_COLUMNS = (
    Column("Hub Accepted", ".spec.hubAcceptsClient", "boolean"),
    Column("Managed Cluster URLs", ".spec.managedClusterClientConfigs[*].url"),
    Column("Joined", condition(JOINED, "status")),
    Column("Available", condition(AVAILABLE, "status")),
    AGE,
)
SET_COLUMNS = (
    Column("Empty", condition(CLUSTER_SET_EMPTY, "status")),
    AGE,
)
BINDING_COLUMNS = (Column("Bound", condition(BOUND, "status")), AGE)
ADDON_COLUMNS = (
    Column("Available", condition("Available", "status")),
    Column("Degraded", condition("Degraded", "status")),
    Column("Progressing", condition("Progressing", "status")),
    AGE,
)
WORK_COLUMNS = (
    Column("Applied", condition(APPLIED, "status")),
    Column("Available", condition(WORK_AVAILABLE, "status")),
    AGE,
)
PLACEMENT_COLUMNS = (
    Column("Succeeded", condition(SATISFIED, "status")),
    Column("Reason", condition(SATISFIED, "reason")),
    Column("SelectedClusters", ".status.numberOfSelectedClusters", "integer"),
    AGE,
)
INSTALLATION_COLUMNS = (Column("Applied", condition("Applied", "status")), AGE)

HUB_DEFINITIONS = (
    Definition(
        CLUSTERS,
        ManagedCluster,
        CLUSTER_COLUMNS,
        tuple(CLUSTER_RULES),
        short_names=("mcl", "mcls"),
    ),
    Definition(CLUSTER_SETS, ManagedClusterSet, SET_COLUMNS, short_names=("mclset", "mclsets")),
    Definition(
        BINDINGS,
        ManagedClusterSetBinding,
        BINDING_COLUMNS,
        tuple(BINDING_RULES),
        short_names=("mclsetbinding", "mclsetbindings"),
    ),
    Definition(PLACEMENTS, Placement, PLACEMENT_COLUMNS),
    Definition(DECISIONS, PlacementDecision, (AGE,)),
    Definition(SCORES, AddOnPlacementScore, (AGE,)),
    Definition(PUBLISHED_DECISIONS, PublishedDecision, (AGE,), has_status=False),
    Definition(WORKS, ManifestWork, WORK_COLUMNS),
    Definition(ADDONS, ManagedClusterAddOn, ADDON_COLUMNS, short_names=("mca", "mcas")),
    Definition(CLUSTER_MANAGERS, ClusterManager, INSTALLATION_COLUMNS),
)

SPOKE_DEFINITIONS = (
    Definition(CLAIMS, ClusterClaim, (AGE,), has_status=False),
    Definition(APPLIED_WORKS, AppliedManifestWork, (AGE,)),
    Definition(KLUSTERLETS, Klusterlet, INSTALLATION_COLUMNS),
)


def hub_definitions() -> list[Object]:
    """The CRDs that the fleet needs on the hub, beside those of `api.crd`."""
    return [custom_resource_definition(definition) for definition in HUB_DEFINITIONS]


def spoke_definitions() -> list[Object]:
    """The CRDs that an agent needs on its cluster."""
    return [custom_resource_definition(definition) for definition in SPOKE_DEFINITIONS]
