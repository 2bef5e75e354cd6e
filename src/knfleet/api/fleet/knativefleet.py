"""KnativeFleet: Knative Serving and Eventing on many clusters, changed in waves.

It is cluster-scoped, because what it makes lives in several namespaces: the namespace of a
KnativeServing on the hub is the one that Knative is installed in on its cluster.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

from knfleet.api.fleet.component_templates import (
    EventingTemplate,
    FleetOverride,
    ServingTemplate,
    Template,
)
from knfleet.api.fleet.fleet_members import FleetClusters
from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS, RETRY
from knfleet.api.fleet.fleet_rules import BY_NAME, RULES, exactly_one
from knfleet.api.fleet.knativefleet_status import KnativeFleetStatus
from knfleet.api.fleet.wave_strategy import FailurePolicy, FleetStrategy
from knfleet.api.knative.resources import Component
from knfleet.api.meta import Key, Resource
from knfleet.api.schema import ObjectMeta, doc

RETRY_CHARACTERS = 64
"""So much of an annotation is repeated in the status."""


class KnativeFleetSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is installed, on which clusters, and how changes reach them."""

    clusters: Annotated[
        FleetClusters,
        doc(
            "The clusters of the fleet.",
            **{RULES: [exactly_one("placementRef", "selector", "names")]},
        ),
    ]
    serving: Annotated[ServingTemplate | None, doc("Knative Serving.")] = None
    eventing: Annotated[EventingTemplate | None, doc("Knative Eventing.")] = None
    overrides: Annotated[
        list[FleetOverride],
        doc("Differences of some clusters, applied in this order.", maxItems=100, **BY_NAME),
    ] = []
    strategy: Annotated[FleetStrategy, doc("How changes reach the clusters.")] = FleetStrategy()
    on_failure: Annotated[
        FailurePolicy,
        doc(
            "What happens when a rollout fails.",
            **{
                RULES: [
                    {
                        "rule": "self.action == 'Rollback' || !has(self.scope)",
                        "message": "scope is only for action Rollback",
                    }
                ]
            },
        ),
    ] = FailurePolicy()
    paused: Annotated[
        bool, doc("Whether nothing new is begun; clusters that are being changed are finished.")
    ] = False
    drift_policy: Annotated[
        Literal["Enforce", "Keep"],
        doc(
            "What happens when the spec of a child is edited: it is reverted at once, or kept"
            " until the cluster gets another revision."
        ),
    ] = "Enforce"
    joining: Annotated[
        Literal["LastGood", "Wave"],
        doc(
            "What a cluster gets that joins during a rollout: the last good revision at once, or"
            " nothing until its wave."
        ),
    ] = "LastGood"
    deletion_policy: Annotated[
        Literal["Delete", "Orphan"],
        doc(
            "What happens to the installation of a cluster that leaves the fleet, and to all when"
            " the fleet is deleted: it is removed, or stays without the fleet."
        ),
    ] = "Delete"
    revision_history_limit: Annotated[
        Annotated[int, Meta(ge=0, le=100)], doc("How many unused revisions are kept.")
    ] = 10

    def template(self, component: Component) -> Template | None:
        """The template of a component, if the fleet has it."""
        return self.serving if component == "serving" else self.eventing


class KnativeFleet(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Knative on many clusters."""

    resource: ClassVar[Resource] = KNATIVE_FLEETS

    spec: Annotated[KnativeFleetSpec, doc("What is installed, where, and how it changes.")]
    metadata: ObjectMeta = ObjectMeta()
    status: Annotated[KnativeFleetStatus, doc("How far the fleet is.")] = KnativeFleetStatus()

    @property
    def key(self) -> Key:
        """The name; there is no namespace."""
        return self.metadata.key

    @property
    def retry(self) -> str:
        """The last request to try again what failed, as the status repeats it."""
        return self.metadata.annotations.get(RETRY, "")[:RETRY_CHARACTERS]

    @property
    def is_observed(self) -> bool:
        """Whether the status is about the spec as it is, and about the last request to retry."""
        status = self.status
        generation = status.observed_generation == self.metadata.generation
        return generation and status.observed_retry == self.retry
