"""Placement, PlacementDecision and AddOnPlacementScore: which clusters a workload goes to.

The API is that of Open Cluster Management.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Struct

from knfleet.api.cluster.clusterset import LabelRequirement, LabelSelector
from knfleet.api.cluster.managedcluster import GROUP, TAINT_KEY, Effect
from knfleet.api.conditions import BY_TYPE, StandardCondition
from knfleet.api.meta import Key, Resource
from knfleet.api.schema import Int32, IntOrString, ObjectMeta, doc

PLACEMENTS = Resource(GROUP, "v1beta1", "Placement", "placements")
DECISIONS = Resource(GROUP, "v1beta1", "PlacementDecision", "placementdecisions")
SCORES = Resource(GROUP, "v1alpha1", "AddOnPlacementScore", "addonplacementscores")

PLACEMENT_LABEL = "cluster.open-cluster-management.io/placement"
"""Label of a PlacementDecision: the name of its Placement."""
GROUP_INDEX_LABEL = "cluster.open-cluster-management.io/decision-group-index"
GROUP_NAME_LABEL = "cluster.open-cluster-management.io/decision-group-name"
SCHEDULING_DISABLED = "cluster.open-cluster-management.io/experimental-scheduling-disable"
"""Annotation of a Placement: `"true"` leaves its decisions to another scheduler."""

SATISFIED = "PlacementSatisfied"
MISCONFIGURED = "PlacementMisconfigured"

MOST_DECISIONS = 100
"""Decisions in one PlacementDecision, at most."""

ATOMIC = {"x-kubernetes-map-type": "atomic"}
GROUP_NAME = "^[a-zA-Z0-9][-A-Za-z0-9_.]{0,61}[a-zA-Z0-9]$"
GROUP_SIZE = "^((100|[1-9][0-9]{0,1})%|[1-9][0-9]*)$"
TOPOLOGY_KEY = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
)


class ClaimSelector(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Selects clusters by their claims; an empty one selects all."""

    match_expressions: Annotated[
        list[LabelRequirement],
        doc("Requirements on the claims of a cluster, all of which must hold."),
    ] = []

    def matches(self, claims: dict[str, str]) -> bool:
        """Whether a cluster with these claims is selected."""
        return all(requirement.matches(claims) for requirement in self.match_expressions)


class CelSelector(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Selects clusters by CEL expressions; an empty one selects all."""

    cel_expressions: Annotated[
        list[str],
        doc("CEL expressions over the variable managedCluster that must be true, all of them."),
    ] = []


class ClusterSelector(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Selects clusters that all of its selectors select."""

    label_selector: Annotated[
        LabelSelector, doc("Selector of labels of the ManagedCluster.", **ATOMIC)
    ] = LabelSelector()
    claim_selector: Annotated[
        ClaimSelector, doc("Selector of the claims in status.clusterClaims of the ManagedCluster.")
    ] = ClaimSelector()
    cel_selector: Annotated[CelSelector, doc("Selector by CEL expressions.")] = CelSelector()


class GroupSelector(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Selects the clusters of a decision group."""

    label_selector: Annotated[
        LabelSelector, doc("Selector of labels of the ManagedCluster.", **ATOMIC)
    ] = LabelSelector()
    claim_selector: Annotated[
        ClaimSelector, doc("Selector of the claims in status.clusterClaims of the ManagedCluster.")
    ] = ClaimSelector()


class Predicate(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A condition that selected clusters meet."""

    required_cluster_selector: Annotated[
        ClusterSelector, doc("Selector that a cluster must match at any time to be selected.")
    ] = ClusterSelector()


class AddOnScore(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A score that an add-on publishes."""

    resource_name: Annotated[
        str, doc("Name of the AddOnPlacementScore in the namespace of each cluster.")
    ]
    score_name: Annotated[str, doc("Name of the score within the AddOnPlacementScore.")]


class ScoreCoordinate(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where a score comes from."""

    type: Annotated[
        Literal["BuiltIn", "AddOn"], doc("A prioritizer of the scheduler, or a score of an add-on.")
    ] = "BuiltIn"
    built_in: Annotated[
        str,
        doc(
            "Name of a prioritizer: Balance, Steady, ResourceAllocatableCPU,"
            " ResourceAllocatableMemory or Spread."
        ),
    ] = ""
    add_on: Annotated[AddOnScore | None, doc("With type AddOn: the score to use.")] = None


class PrioritizerConfig(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A prioritizer and its weight."""

    score_coordinate: Annotated[ScoreCoordinate, doc("Where the score comes from.")]
    weight: Annotated[
        int,
        doc(
            "Factor of the score, from -10 to 10. Zero switches the prioritizer off; a negative one"
            " prefers clusters with low scores.",
            format="int32",
            minimum=-10,
            maximum=10,
        ),
    ] = 1


class PrioritizerPolicy(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How clusters are ranked."""

    mode: Annotated[
        str,
        doc(
            "Additive: the prioritizers Balance and Steady count with weight 1 unless configured."
            " Exact: only the configured prioritizers count."
        ),
    ] = "Additive"
    configurations: Annotated[list[PrioritizerConfig], doc("Prioritizers and their weights.")] = []


class ClusterToleration(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Lets tainted clusters be selected."""

    key: Annotated[
        str,
        doc(
            "Key of the taint; empty with operator Exists matches all taints.",
            maxLength=316,
            pattern=TAINT_KEY,
        ),
    ] = ""
    operator: Annotated[str, doc("Equal compares the value, Exists does not.")] = "Equal"
    value: Annotated[str, doc("Value of the taint.", maxLength=1024)] = ""
    effect: Annotated[Effect | None, doc("Effect of the taint; absent matches all effects.")] = None
    toleration_seconds: Annotated[
        int | None,
        doc("How long the taint is tolerated, from its timeAdded; absent: always.", format="int64"),
    ] = None


class SpreadConstraint(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How evenly selected clusters are distributed over the values of a label or claim."""

    topology_key: Annotated[
        str,
        doc("Name of the label or the claim.", maxLength=316, pattern=TOPOLOGY_KEY),
    ]
    topology_key_type: Annotated[
        Literal["Label", "Claim"], doc("Whether topologyKey names a label or a claim.")
    ]
    max_skew: Annotated[
        int,
        doc(
            "Largest allowed difference between the number of selected clusters of a topology and"
            " the smallest number of any topology.",
            format="int32",
            minimum=1,
        ),
    ] = 1
    when_unsatisfiable: Annotated[
        Literal["DoNotSchedule", "ScheduleAnyway"],
        doc("Whether more clusters are selected when maxSkew cannot be kept."),
    ] = "ScheduleAnyway"


class SpreadPolicy(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How selected clusters are distributed over topologies."""

    spread_constraints: Annotated[
        list[SpreadConstraint], doc("Constraints, the most important first.", maxItems=8)
    ] = []


class DecisionGroup(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A named group of the selected clusters."""

    group_name: Annotated[
        str, doc("Name of the group, for the label of its PlacementDecisions.", pattern=GROUP_NAME)
    ]
    group_cluster_selector: Annotated[
        GroupSelector, doc("Selector of the group among the selected clusters.")
    ]


class GroupStrategy(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How selected clusters are divided into groups."""

    decision_groups: Annotated[
        list[DecisionGroup],
        doc("Named groups; a cluster belongs to the first that selects it. Others come after."),
    ] = []
    clusters_per_decision_group: Annotated[
        IntOrString,
        doc(
            "Largest size of a group, as a number or as a percentage of the selected clusters;"
            " larger groups are divided.",
            pattern=GROUP_SIZE,
        ),
    ] = "100%"


class DecisionStrategy(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How decisions are grouped."""

    group_strategy: Annotated[
        GroupStrategy, doc("How selected clusters are divided into groups.")
    ] = GroupStrategy()


class PlacementSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Which clusters to select."""

    cluster_sets: Annotated[
        list[str],
        doc("Cluster sets to select from, as far as they are bound to the namespace; empty: all."),
    ] = []
    number_of_clusters: Annotated[
        Int32 | None, doc("How many clusters to select; absent: all that match.")
    ] = None
    predicates: Annotated[
        list[Predicate], doc("Conditions, one of which a cluster must meet; empty: none.")
    ] = []
    prioritizer_policy: Annotated[PrioritizerPolicy, doc("How clusters are ranked.")] = (
        PrioritizerPolicy()
    )
    spread_policy: Annotated[
        SpreadPolicy, doc("How selected clusters are distributed over topologies.")
    ] = SpreadPolicy()
    tolerations: Annotated[
        list[ClusterToleration], doc("Taints that selected clusters may have.")
    ] = []
    decision_strategy: Annotated[DecisionStrategy, doc("How decisions are grouped.")] = (
        DecisionStrategy()
    )
    sort_by: Annotated[
        Literal["ClusterName", "Score"], doc("Order of the decisions within a group.")
    ] = "ClusterName"
    score_rate_limit: Annotated[
        str,
        doc(
            "How often scores in decisions are updated, if the selected clusters stay the same.",
            pattern="^[0-9]+[hms]$",
        ),
    ] = "1m"


class GroupStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """A group of the selected clusters."""

    decision_group_index: Annotated[Int32, doc("Position of the group, from 0.")] = 0
    decision_group_name: Annotated[str, doc("Name of the group; empty for unnamed ones.")] = ""
    decisions: Annotated[list[str], doc("Names of the PlacementDecisions of the group.")] = []
    cluster_count: Annotated[Int32, doc("How many clusters the group has.")] = 0


class PlacementStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What was selected."""

    number_of_selected_clusters: Annotated[Int32, doc("How many clusters are selected.")] = 0
    decision_groups: Annotated[list[GroupStatus], doc("Groups of the selected clusters.")] = []
    conditions: Annotated[
        list[StandardCondition], doc("Conditions, keyed by type.", **BY_TYPE)
    ] = []
    last_score_update_time: Annotated[
        str, doc("When the scores in the decisions were last updated.", format="date-time")
    ] = ""


class Placement(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Selects clusters from the cluster sets that are bound to its namespace."""

    resource: ClassVar[Resource] = PLACEMENTS

    spec: Annotated[PlacementSpec, doc("Which clusters to select.")]
    metadata: ObjectMeta = ObjectMeta()
    status: Annotated[PlacementStatus, doc("What was selected.")] = PlacementStatus()

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.metadata.key

    @property
    def scheduling_disabled(self) -> bool:
        """Whether another scheduler decides."""
        return self.metadata.annotations.get(SCHEDULING_DISABLED) == "true"


class ClusterDecision(Struct, frozen=True, kw_only=True, rename="camel"):
    """A selected cluster."""

    cluster_name: Annotated[str, doc("Name of the ManagedCluster.")]
    reason: Annotated[str, doc("Why the cluster was selected.")]
    score: Annotated[int, doc("Sum of its weighted scores.", format="int64")] = 0


class DecisionStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """Selected clusters."""

    decisions: Annotated[list[ClusterDecision], doc("Selected clusters, at most 100.")]


class PlacementDecision(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Clusters that a Placement selected; a Placement has one or more."""

    resource: ClassVar[Resource] = DECISIONS

    metadata: ObjectMeta = ObjectMeta()
    status: Annotated[DecisionStatus | None, doc("Selected clusters.")] = None

    @property
    def decisions(self) -> list[ClusterDecision]:
        """The selected clusters."""
        return [] if self.status is None else self.status.decisions


class Score(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A score of a cluster."""

    name: Annotated[str, doc("Name of the score.")]
    value: Annotated[
        int, doc("The score, from -100 to 100.", format="int32", minimum=-100, maximum=100)
    ]


class ScoreStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Scores of a cluster."""

    conditions: Annotated[
        list[StandardCondition], doc("Conditions, keyed by type.", **BY_TYPE)
    ] = []
    scores: Annotated[
        list[Score],
        doc(
            "The scores.",
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = []
    valid_until: Annotated[
        str, doc("When the scores expire; absent: never.", format="date-time")
    ] = ""


class AddOnPlacementScore(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Scores of one cluster, which an add-on publishes in the namespace of the cluster."""

    resource: ClassVar[Resource] = SCORES

    metadata: ObjectMeta = ObjectMeta()
    status: Annotated[ScoreStatus, doc("Scores of the cluster.")] = ScoreStatus()
