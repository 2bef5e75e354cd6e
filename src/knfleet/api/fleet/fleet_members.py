"""Which clusters a KnativeFleet has, and how some of them are named."""

from typing import Annotated

from msgspec import Struct

from knfleet.api.cluster.clusterset import LabelSelector
from knfleet.api.fleet.fleet_rules import IMMUTABLE
from knfleet.api.schema import doc


class PlacementName(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A Placement in the namespace of the ClusterProfiles."""

    name: Annotated[str, doc("Name of the Placement.", minLength=1, maxLength=253)]


Names = Annotated[list[str], doc("Names of ClusterProfiles.", minItems=1, maxItems=5000)]


class FleetClusters(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Which clusters a fleet consists of; each is known by its ClusterProfile."""

    namespace: Annotated[
        str,
        doc(
            "Namespace of the ClusterProfiles, and of the Placement. It cannot be changed.",
            minLength=1,
            **IMMUTABLE,
        ),
    ]
    placement_ref: Annotated[PlacementName | None, doc("Clusters that a Placement selects.")] = None
    selector: Annotated[
        LabelSelector | None,
        doc("Clusters by the labels of their ClusterProfiles; an empty selector selects all."),
    ] = None
    names: Names = []


class ClusterChoice(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Some of the clusters of a fleet."""

    selector: Annotated[
        LabelSelector | None, doc("Clusters by the labels of their ClusterProfiles.")
    ] = None
    names: Names = []

    def has(self, name: str, labels: dict[str, str]) -> bool:
        """Whether a cluster is meant."""
        if self.selector is not None:
            return self.selector.matches(labels)
        return name in self.names
