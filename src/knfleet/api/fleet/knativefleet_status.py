"""The status of a KnativeFleet: how far its rollout is."""

from typing import Annotated

from msgspec import Struct

from knfleet.api.conditions import BY_TYPE, StandardCondition
from knfleet.api.schema import doc


class ClusterCounts(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How many clusters are how far. Each is in one of the numbers up to `unreachable`."""

    total: Annotated[int, doc("Clusters.")] = 0
    done: Annotated[int, doc("Clusters that have the revision and are ready.")] = 0
    progressing: Annotated[int, doc("Clusters that are being changed.")] = 0
    waiting: Annotated[int, doc("Clusters that are not changed yet.")] = 0
    failed: Annotated[int, doc("Clusters that failed or took too long.")] = 0
    unreachable: Annotated[int, doc("Clusters that are changed when they are back.")] = 0
    drifted: Annotated[int, doc("Clusters whose child was edited, and is kept so.")] = 0


class WaveStatus(ClusterCounts, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How far one wave is."""

    name: Annotated[str, doc("Name of the wave.")]
    state: Annotated[
        str, doc("Waiting, Progressing, Soaking, Gated, Halted, Complete or RolledBack.")
    ] = ""
    message: Annotated[str, doc("What it waits for.", maxLength=1024)] = ""


class ClusterProblem(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A cluster that failed or cannot be reached."""

    cluster: Annotated[str, doc("Name of the cluster.")]
    state: Annotated[str, doc("Failed, TimedOut, Unreachable, Invalid or Drifted.")] = ""
    message: Annotated[str, doc("What is wrong.", maxLength=512)] = ""
    since: Annotated[str, doc("Since when, if that is known.")] = ""


class CompletedWave(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A wave that a rollout has behind it."""

    name: Annotated[str, doc("Name of the wave.")]
    at: Annotated[str, doc("When it was complete.", format="date-time")]
    changed: Annotated[bool, doc("Whether a cluster was changed in it.")] = False


class RollbackStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A revision that is taken back."""

    to: Annotated[str, doc("Revision that clusters get instead.")]
    scope: Annotated[str, doc("Failed, Wave or All.")]
    wave: Annotated[str, doc("The wave that failed.")] = ""
    since: Annotated[str, doc("Since when.", format="date-time")] = ""
    message: Annotated[str, doc("Why.", maxLength=1024)] = ""


class GateStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a gate said the last time."""

    name: Annotated[str, doc("Name of the gate.")]
    wave: Annotated[str, doc("The wave that it was checked for.")]
    state: Annotated[str, doc("Passed, Waiting or Failed.")]
    failures: Annotated[int, doc("How many times it failed.")] = 0
    checked: Annotated[str, doc("When it was checked.", format="date-time")] = ""
    message: Annotated[str, doc("What it said.", maxLength=1024)] = ""


class RolloutRecord(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How far the rollout of a revision is; a hub that restarts goes on from here."""

    revision: Annotated[str, doc("The revision that is rolled out.")] = ""
    number: Annotated[int, doc("Its number in the history.")] = 0
    started: Annotated[str, doc("When the rollout began.")] = ""
    completed_waves: Annotated[list[CompletedWave], doc("Waves that are complete.")] = []
    rollback: Annotated[RollbackStatus | None, doc("Set when the revision is taken back.")] = None
    completed: Annotated[str, doc("When all waves were complete.")] = ""
    gates: Annotated[list[GateStatus], doc("Gates of the last waves; at most 20.")] = []


class KnativeFleetStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How far the fleet is."""

    observed_generation: Annotated[
        int, doc("Generation that the status is about.", format="int64")
    ] = 0
    observed_retry: Annotated[
        str, doc("Value of the annotation fleet.knfleet.dev/retry that the status is about.")
    ] = ""
    conditions: Annotated[
        list[StandardCondition], doc("Conditions, keyed by type.", **BY_TYPE)
    ] = []
    phase: Annotated[str, doc("The reason of the condition RolledOut, for `kubectl get`.")] = ""
    rollout: Annotated[RolloutRecord, doc("The current rollout.")] = RolloutRecord()
    last_good_revision: Annotated[str, doc("The last revision whose rollout was complete.")] = ""
    clusters: Annotated[ClusterCounts, doc("All clusters.")] = ClusterCounts()
    waves: Annotated[list[WaveStatus], doc("The waves; at most the first 100.")] = []
    problems: Annotated[
        list[ClusterProblem], doc("Clusters with problems; at most 50, failed ones first.")
    ] = []
