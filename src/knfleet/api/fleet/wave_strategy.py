"""How changes reach the clusters of a KnativeFleet: waves, limits, gates, and failures."""

from typing import Annotated, Literal

from msgspec import Struct

from knfleet.api.cluster.clusterset import LabelSelector
from knfleet.api.cluster.rollout import SHARE
from knfleet.api.fleet.fleet_members import Names
from knfleet.api.fleet.fleet_rules import BY_NAME, DEADLINE, DURATION, NAME, POSITIVE_SHARE
from knfleet.api.fleet.gate_types import FleetGate
from knfleet.api.schema import IntOrString, doc


class WaveSettings(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How the clusters of a wave are changed."""

    max_concurrency: Annotated[
        IntOrString | None,
        doc(
            "How many clusters are changed at a time, as a number or a percentage of the wave;"
            " all when absent.",
            pattern=POSITIVE_SHARE,
            minimum=1,
        ),
    ] = None
    max_failures: Annotated[
        IntOrString | None,
        doc(
            "How many clusters of the wave may fail or time out before the rollout stops, as a"
            " number or a percentage; none when absent.",
            pattern=SHARE,
            minimum=0,
        ),
    ] = None
    min_success_time: Annotated[
        str | None,
        doc("How long a cluster must have been ready to count as done, as 10m.", pattern=DURATION),
    ] = None
    progress_deadline: Annotated[
        str | None,
        doc(
            "How long a cluster may take, as 10m, which is the default; None: without limit.",
            pattern=DEADLINE,
        ),
    ] = None


class FleetWave(WaveSettings, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Clusters that are changed before those of the next wave; fields of the strategy are kept
    unless the wave has its own."""

    name: Annotated[str, doc("Name of the wave.", minLength=1, maxLength=63, pattern=NAME)]
    selector: Annotated[
        LabelSelector | None, doc("Clusters by the labels of their ClusterProfiles.")
    ] = None
    names: Names = []
    decision_groups: Annotated[
        list[str],
        doc("Clusters of these decision groups of the Placement.", minItems=1, maxItems=100),
    ] = []


class FleetStrategy(WaveSettings, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """In which order clusters are changed, and how many at a time."""

    waves: Annotated[
        list[FleetWave],
        doc(
            "Waves, in their order. Clusters in none of them are the last wave, remaining. Without"
            " waves, each decision group of the Placement is one; without a Placement, all"
            " clusters are.",
            maxItems=50,
            **BY_NAME,
        ),
    ] = []
    gates: Annotated[
        list[FleetGate],
        doc(
            "What must be so before a wave is complete, beside that its clusters are ready.",
            maxItems=10,
            **BY_NAME,
        ),
    ] = []
    between_waves: Annotated[
        str, doc("How long to wait between two waves, as 5m.", pattern=DURATION)
    ] = "0"


class FailurePolicy(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What happens when more clusters of a wave fail than may."""

    action: Annotated[
        Literal["Halt", "Rollback"],
        doc(
            "Halt: no further cluster is changed. Rollback: clusters also get the last good"
            " revision back."
        ),
    ] = "Halt"
    scope: Annotated[
        Literal["Failed", "Wave", "All"] | None,
        doc(
            "Which clusters are rolled back: those that failed, those of the wave, or all that have"
            " the revision; Wave when absent."
        ),
    ] = None
