"""What must be so before a wave is complete, beside that its clusters are ready."""

from typing import Annotated

from msgspec import Meta, Struct

from knfleet.api.fleet.fleet_rules import DURATION, NAME, NUMBER, RULES, URL
from knfleet.api.schema import doc


class PrometheusGate(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A query whose values must be within bounds. No credentials are sent."""

    url: Annotated[str, doc("Address of Prometheus, as http://host:9090.", pattern=URL)]
    query: Annotated[str, doc("Query in PromQL.", minLength=1, maxLength=4096)]
    min: Annotated[str | None, doc("Least value, as 0.99.", pattern=NUMBER)] = None
    max: Annotated[str | None, doc("Greatest value, as 0.01.", pattern=NUMBER)] = None


class WebhookGate(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An address that decides: 200 passes, 425 asks to wait, all else fails."""

    url: Annotated[str, doc("Address that gets a POST with fleet and wave.", pattern=URL)]


class VerifyGate(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A verification of each cluster of the wave that is done, as `knfleet verify` does it."""

    image: Annotated[
        str,
        doc(
            "Image that answers GET / with status 200 on the port $PORT; that of the operator's"
            " --verify-image when absent.",
            maxLength=512,
        ),
    ] = ""
    text: Annotated[str, doc("What the answer must contain.", maxLength=256)] = ""
    timeout: Annotated[
        str, doc("How long each step may take, from 1s to 30m.", pattern=DURATION)
    ] = "3m"


class FleetGate(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What must be so before a wave is complete, beside that its clusters are ready."""

    name: Annotated[str, doc("Name of the gate.", minLength=1, maxLength=63, pattern=NAME)]
    prometheus: Annotated[
        PrometheusGate | None,
        doc(
            "A query to Prometheus.",
            **{
                RULES: [
                    {
                        "rule": "has(self.min) || has(self.max)",
                        "message": "at least one of min and max is needed",
                    }
                ]
            },
        ),
    ] = None
    webhook: Annotated[WebhookGate | None, doc("An address that decides.")] = None
    verify: Annotated[
        VerifyGate | None,
        doc("A verification: Knative on the clusters answers requests, and delivers events."),
    ] = None
    interval: Annotated[
        str, doc("How often it is checked until it passes, as 30s.", pattern=DURATION)
    ] = "30s"
    failure_limit: Annotated[
        Annotated[int, Meta(ge=1, le=100)],
        doc("How many times it may fail before the rollout does."),
    ] = 3
