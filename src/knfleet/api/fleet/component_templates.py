"""What a KnativeFleet installs: templates, and what is different on some clusters."""

from typing import Annotated

from msgspec import Struct

from knfleet.api.crds.structural import shape
from knfleet.api.fleet.fleet_members import ClusterChoice
from knfleet.api.fleet.fleet_names import EVENTING_NAMESPACE, SERVING_NAMESPACE
from knfleet.api.fleet.fleet_rules import IMMUTABLE, RULES, exactly_one
from knfleet.api.knative.resources import Component, EventingSpec, ServingSpec
from knfleet.api.meta import Object
from knfleet.api.schema import Free, doc


class ServingTemplate(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Knative Serving on all clusters."""

    namespace: Annotated[
        str,
        doc(
            "Namespace on the clusters, and of the KnativeServings on the hub. It cannot be"
            " changed.",
            minLength=1,
            maxLength=63,
            **IMMUTABLE,
        ),
    ] = SERVING_NAMESPACE
    spec: Annotated[
        Object,
        shape(ServingSpec),
        doc(
            "The spec of each KnativeServing, without clusterProfileRef.",
            **{
                RULES: [
                    {
                        "rule": "!has(self.clusterProfileRef)",
                        "message": "clusterProfileRef is set for each cluster by the fleet",
                    }
                ]
            },
        ),
    ] = {}


class EventingTemplate(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Knative Eventing on all clusters."""

    namespace: Annotated[
        str,
        doc(
            "Namespace on the clusters, and of the KnativeEventings on the hub. It cannot be"
            " changed.",
            minLength=1,
            maxLength=63,
            **IMMUTABLE,
        ),
    ] = EVENTING_NAMESPACE
    spec: Annotated[
        Object,
        shape(EventingSpec),
        doc(
            "The spec of each KnativeEventing, without clusterProfileRef.",
            **{
                RULES: [
                    {
                        "rule": "!has(self.clusterProfileRef)",
                        "message": "clusterProfileRef is set for each cluster by the fleet",
                    }
                ]
            },
        ),
    ] = {}


Template = ServingTemplate | EventingTemplate


class FleetOverride(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is different on some clusters."""

    name: Annotated[str, doc("Name of the override, for messages.", minLength=1, maxLength=63)]
    clusters: Annotated[
        ClusterChoice,
        doc("The clusters that it applies to.", **{RULES: [exactly_one("selector", "names")]}),
    ]
    serving: Annotated[
        Free | None, doc("Merge patch (RFC 7386) of the spec of the KnativeServing.")
    ] = None
    eventing: Annotated[
        Free | None, doc("Merge patch (RFC 7386) of the spec of the KnativeEventing.")
    ] = None

    def patch(self, component: Component) -> Object | None:
        """The patch of a component's spec."""
        return self.serving if component == "serving" else self.eventing
