"""ManifestWorkReplicaSet: a ManifestWork for each cluster that Placements select.

Fields, defaults and validation are those of Open Cluster Management.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Struct

from knfleet.api.cluster.rollout import RolloutAll, RolloutStrategy
from knfleet.api.conditions import BY_TYPE, StandardCondition
from knfleet.api.meta import Key, Resource
from knfleet.api.schema import ObjectMeta, doc
from knfleet.api.work.manifestwork import GROUP, ManifestWorkSpec

REPLICA_SETS = Resource(GROUP, "v1alpha1", "ManifestWorkReplicaSet", "manifestworkreplicasets")

REPLICA_SET_LABEL = "work.open-cluster-management.io/manifestworkreplicaset"
"""Label of a work: `NAMESPACE.NAME` of its replica set."""
PLACEMENT_NAME_LABEL = "work.open-cluster-management.io/placementname"
"""Label of a work: the Placement that selects its cluster."""
REPLICA_SET_FINALIZER = "work.open-cluster-management.io/manifest-work-cleanup"

REPLICA_SET = "knfleet.dev/replica-set"
"""Annotation of a work: `NAMESPACE/NAME` of its replica set, however long."""
TEMPLATE_HASH = "knfleet.dev/template-hash"
"""Annotation of a work: the template that it was made from."""
ROLLOUT_STARTED = "knfleet.dev/rollout-started"
"""Annotation of a work: when it was made from that template."""
ROLLOUT_PAUSED = "knfleet.dev/rollout-paused"
"""Annotation of a replica set: `"true"` begins nothing new."""
TEMPLATE_VARIABLES = "knfleet.dev/template-variables"
"""Annotation of a replica set: `"true"` replaces `{{cluster.name}}` and the like in manifests."""

PLACEMENT_VERIFIED = "PlacementVerified"
PLACEMENT_ROLLED_OUT = "PlacementRolledOut"
MANIFESTWORK_APPLIED = "ManifestworkApplied"

ALL = RolloutStrategy(type="All", all=RolloutAll(progress_deadline="None"))


class PlacementReference(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A Placement in the same namespace, and how its clusters are reached."""

    name: Annotated[str, doc("Name of the Placement.", minLength=1)]
    rollout_strategy: Annotated[
        RolloutStrategy, doc("In which order its clusters get the work.")
    ] = ALL


class ReplicaSetSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Which works are wanted, and where."""

    placement_refs: Annotated[
        list[PlacementReference], doc("Placements that select the clusters.", minItems=1)
    ]
    manifest_work_template: Annotated[
        ManifestWorkSpec, doc("The spec of the ManifestWork of each cluster.")
    ] = ManifestWorkSpec()
    cascade_deletion_policy: Annotated[
        Literal["Background", "Foreground"],
        doc("Whether the replica set is deleted before its works are gone, or after that."),
    ] = "Background"


class ReplicaSetSummary(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How many works there are, and how they are."""

    total: Annotated[int, doc("Works that exist.")] = 0
    desired_total: Annotated[int, doc("Clusters that are selected.")] = 0
    updated: Annotated[int, doc("Works that are made from the current template.")] = 0
    applied: Annotated[int, doc("Works whose condition Applied is True.")] = 0
    available: Annotated[int, doc("Works whose condition Available is True.")] = 0
    progressing: Annotated[int, doc("Works that are not done yet.")] = 0
    degraded: Annotated[int, doc("Works that failed or took too long.")] = 0


class ReplicaSetPlacement(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The works of one Placement."""

    name: Annotated[str, doc("Name of the Placement.")] = ""
    available_decision_groups: Annotated[
        str, doc("How many decision groups are available, and how many clusters are applied.")
    ] = ""
    summary: Annotated[ReplicaSetSummary, doc("Works of the Placement.")] = ReplicaSetSummary()


class ReplicaSetStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What became of the works."""

    conditions: Annotated[
        list[StandardCondition], doc("Conditions, keyed by type.", **BY_TYPE)
    ] = []
    summary: Annotated[ReplicaSetSummary, doc("Works of all Placements.")] = ReplicaSetSummary()
    placement_summary: Annotated[list[ReplicaSetPlacement], doc("Works of each Placement.")] = []


class ManifestWorkReplicaSet(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A ManifestWork for each cluster that Placements select."""

    resource: ClassVar[Resource] = REPLICA_SETS

    spec: Annotated[ReplicaSetSpec, doc("Which works are wanted, and where.")]
    metadata: ObjectMeta = ObjectMeta()
    status: Annotated[ReplicaSetStatus, doc("What became of the works.")] = ReplicaSetStatus()

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.metadata.key
