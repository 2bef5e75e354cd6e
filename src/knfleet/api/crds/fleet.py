"""The CustomResourceDefinitions of the fleet: those of the hub, and those of a spoke."""

from knfleet.api.addon.addondeploymentconfig import (
    CONFIGS,
    CONFIGS_BETA,
    AddOnDeploymentConfig,
)
from knfleet.api.addon.addontemplate import (
    ADDON_TEMPLATES,
    ADDON_TEMPLATES_BETA,
    AddOnTemplate,
)
from knfleet.api.addon.clustermanagementaddon import (
    CLUSTER_ADDONS,
    CLUSTER_ADDONS_BETA,
    ClusterManagementAddOn,
    ClusterManagementAddOnBeta,
)
from knfleet.api.addon.conversion import CONVERSION_PATH
from knfleet.api.addon.managedclusteraddon import (
    ADDONS,
    ADDONS_BETA,
    ManagedClusterAddOn,
    ManagedClusterAddOnBeta,
)
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
    OtherVersion,
    condition,
    custom_resource_definition,
)
from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS
from knfleet.api.fleet.fleet_rules import SPEC_RULES
from knfleet.api.fleet.knativefleet import KnativeFleet
from knfleet.api.inventory import PUBLISHED_DECISIONS, PublishedDecision
from knfleet.api.meta import Object
from knfleet.api.operator import (
    CLUSTER_MANAGERS,
    KLUSTERLETS,
    OPERATOR_NAMESPACE,
    ClusterManager,
    Klusterlet,
)
from knfleet.api.work.appliedmanifestwork import APPLIED_WORKS, AppliedManifestWork
from knfleet.api.work.manifestwork import APPLIED, WORKS, ManifestWork
from knfleet.api.work.manifestwork import AVAILABLE as WORK_AVAILABLE
from knfleet.api.work.replicaset import (
    MANIFESTWORK_APPLIED,
    PLACEMENT_VERIFIED,
    REPLICA_SETS,
    ManifestWorkReplicaSet,
)

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
)
CLUSTER_ADDON_COLUMNS = (
    Column("DISPLAY NAME", ".spec.addOnMeta.displayName"),
    Column("CRD NAME", ".spec.addOnConfiguration.crdName"),
)
TEMPLATE_COLUMNS = (Column("ADDON NAME", ".spec.addonName"),)
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
REPLICA_SET_COLUMNS = (
    Column("Placement", condition(PLACEMENT_VERIFIED, "reason"), description="Reason"),
    Column("Found", condition(PLACEMENT_VERIFIED, "status"), description="Configured"),
    Column("ManifestWorks", condition(MANIFESTWORK_APPLIED, "reason"), description="Reason"),
    Column("Applied", condition(MANIFESTWORK_APPLIED, "status"), description="Applied"),
    AGE,
)
FLEET_COLUMNS = (
    Column("Revision", ".status.rollout.number", "integer", "Number of the revision."),
    Column("Clusters", ".status.clusters.total", "integer"),
    Column("Done", ".status.clusters.done", "integer", "Clusters that have the revision."),
    Column("Failed", ".status.clusters.failed", "integer"),
    Column("Ready", condition("Ready", "status")),
    Column("Rollout", ".status.phase"),
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
    Definition(REPLICA_SETS, ManifestWorkReplicaSet, REPLICA_SET_COLUMNS, short_names=("mwrs",)),
    Definition(
        CLUSTER_ADDONS,
        ClusterManagementAddOn,
        CLUSTER_ADDON_COLUMNS,
        short_names=("cma", "cmas"),
        others=(
            OtherVersion(
                CLUSTER_ADDONS_BETA, ClusterManagementAddOnBeta, CLUSTER_ADDON_COLUMNS[:1]
            ),
        ),
        conversion_path=CONVERSION_PATH,
    ),
    Definition(
        ADDONS,
        ManagedClusterAddOn,
        ADDON_COLUMNS,
        short_names=("mca", "mcas"),
        others=(OtherVersion(ADDONS_BETA, ManagedClusterAddOnBeta, ADDON_COLUMNS),),
        conversion_path=CONVERSION_PATH,
    ),
    Definition(
        CONFIGS,
        AddOnDeploymentConfig,
        (),
        has_status=False,
        others=(OtherVersion(CONFIGS_BETA, AddOnDeploymentConfig, ()),),
    ),
    Definition(
        ADDON_TEMPLATES,
        AddOnTemplate,
        TEMPLATE_COLUMNS,
        has_status=False,
        others=(OtherVersion(ADDON_TEMPLATES_BETA, AddOnTemplate, TEMPLATE_COLUMNS),),
    ),
    Definition(
        KNATIVE_FLEETS, KnativeFleet, FLEET_COLUMNS, tuple(SPEC_RULES), short_names=("knf",)
    ),
    Definition(CLUSTER_MANAGERS, ClusterManager, INSTALLATION_COLUMNS),
)

SPOKE_DEFINITIONS = (
    Definition(CLAIMS, ClusterClaim, (AGE,), has_status=False),
    Definition(APPLIED_WORKS, AppliedManifestWork, (AGE,)),
    Definition(KLUSTERLETS, Klusterlet, INSTALLATION_COLUMNS),
)


def hub_definitions(namespace: str = OPERATOR_NAMESPACE) -> list[Object]:
    """The CRDs that the fleet needs on the hub, beside those of `api.crd`.

    `namespace` is the hub's own: its webhook converts between versions.
    """
    return [custom_resource_definition(definition, namespace) for definition in HUB_DEFINITIONS]


def spoke_definitions() -> list[Object]:
    """The CRDs that an agent needs on its cluster."""
    return [custom_resource_definition(definition) for definition in SPOKE_DEFINITIONS]
