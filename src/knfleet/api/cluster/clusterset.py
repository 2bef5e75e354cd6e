"""ManagedClusterSet and ManagedClusterSetBinding: clusters in groups, and where a group is used."""

from typing import Annotated, ClassVar, Literal

from msgspec import Struct

from knfleet.api.cluster.managedcluster import GROUP, NAME_PATTERN, SET_LABEL
from knfleet.api.conditions import BY_TYPE, StandardCondition
from knfleet.api.meta import Key, Resource
from knfleet.api.schema import ObjectMeta, doc

CLUSTER_SETS = Resource(
    GROUP, "v1beta2", "ManagedClusterSet", "managedclustersets", namespaced=False
)
BINDINGS = Resource(GROUP, "v1beta2", "ManagedClusterSetBinding", "managedclustersetbindings")

DEFAULT_SET = "default"
GLOBAL_SET = "global"
AUTO_UPDATE = "cluster.open-cluster-management.io/autoupdate"
"""Annotation of the two built-in sets: `"false"` lets their spec be changed."""

CLUSTER_SET_EMPTY = "ClusterSetEmpty"
BOUND = "Bound"

BINDING_RULES: list[dict[str, str]] = [
    {
        "rule": "self.metadata.name == self.spec.clusterSet",
        "fieldPath": ".spec.clusterSet",
        "message": "the binding must be named like the set in spec.clusterSet",
    }
]


class ManagedNamespace(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A namespace that a set wants on its clusters."""

    name: Annotated[str, doc("Name of the namespace.", maxLength=63, pattern=NAME_PATTERN)]


class LabelRequirement(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A condition on one label."""

    key: Annotated[str, doc("Name of the label.")]
    operator: Annotated[str, doc("In, NotIn, Exists or DoesNotExist.")]
    values: Annotated[list[str], doc("Values for In and NotIn.")] = []

    def matches(self, labels: dict[str, str]) -> bool:
        """Whether an object's labels fulfil it; an operator that we do not know never holds."""
        if self.operator == "In":
            return labels.get(self.key) in self.values
        if self.operator == "NotIn":
            return labels.get(self.key) not in self.values
        if self.operator == "Exists":
            return self.key in labels
        return self.operator == "DoesNotExist" and self.key not in labels


class LabelSelector(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Selects objects by their labels; an empty one selects all."""

    match_labels: Annotated[dict[str, str], doc("Labels that an object must have.")] = {}
    match_expressions: Annotated[
        list[LabelRequirement], doc("Requirements, all of which must be met.")
    ] = []

    def matches(self, labels: dict[str, str]) -> bool:
        """Whether an object with these labels is meant."""
        return self.match_labels.items() <= labels.items() and all(
            requirement.matches(labels) for requirement in self.match_expressions
        )


class ManagedClusterSelector(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Which clusters belong to a set."""

    selector_type: Annotated[
        Literal["ExclusiveClusterSetLabel", "LabelSelector"],
        doc("By the label that assigns a cluster to one set, or by any labels."),
    ] = "ExclusiveClusterSetLabel"
    label_selector: Annotated[
        LabelSelector | None, doc("Label selector, for the type LabelSelector.")
    ] = None


class ManagedClusterSetSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a set consists of."""

    cluster_selector: Annotated[
        ManagedClusterSelector, doc("Selector of the clusters in the set.")
    ] = ManagedClusterSelector()
    managed_namespaces: Annotated[
        list[ManagedNamespace],
        doc(
            "Namespaces that its clusters are to have.",
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = []


class ConditionsStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A status that consists of conditions."""

    conditions: Annotated[
        list[StandardCondition], doc("Conditions, keyed by type.", **BY_TYPE)
    ] = []


class ManagedClusterSet(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Some clusters of the fleet."""

    resource: ClassVar[Resource] = CLUSTER_SETS

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[
        ManagedClusterSetSpec, doc("Selection of clusters, and namespaces on them.")
    ] = ManagedClusterSetSpec()
    status: Annotated[ConditionsStatus, doc("Observed state.")] = ConditionsStatus()

    def has(self, labels: dict[str, str]) -> bool:
        """Whether a cluster with these labels belongs to the set."""
        selector = self.spec.cluster_selector
        if selector.selector_type == "ExclusiveClusterSetLabel":
            return labels.get(SET_LABEL) == self.metadata.name
        return (selector.label_selector or LabelSelector()).matches(labels)


class BindingSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The set that is bound."""

    cluster_set: Annotated[str, doc("Name of the set.", minLength=1)]


class ManagedClusterSetBinding(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """Makes a set usable in a namespace: its clusters get profiles there."""

    resource: ClassVar[Resource] = BINDINGS

    spec: Annotated[BindingSpec, doc("The set that is bound.")]
    metadata: ObjectMeta = ObjectMeta()
    status: Annotated[ConditionsStatus, doc("Observed state.")] = ConditionsStatus()

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.metadata.key
