"""KnativeFleet: Knative Serving and Eventing on many clusters, changed in waves.

It is cluster-scoped, because what it makes lives in several namespaces: the namespace of a
KnativeServing on the hub is the one that Knative is installed in on its cluster.
"""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from knfleet.api.cluster.clusterset import LabelSelector
from knfleet.api.cluster.rollout import SHARE
from knfleet.api.conditions import BY_TYPE, StandardCondition
from knfleet.api.crds.structural import shape
from knfleet.api.knative.resources import Component, EventingSpec, ServingSpec
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.schema import Free, IntOrString, ObjectMeta, doc

GROUP = "fleet.knfleet.dev"
KNATIVE_FLEETS = Resource(GROUP, "v1alpha1", "KnativeFleet", "knativefleets", namespaced=False)

FLEET_LABEL = "fleet.knfleet.dev/fleet"
"""Label of children and revisions: the fleet that they belong to."""
CLUSTER_LABEL = "fleet.knfleet.dev/cluster"
"""Label of a child: its cluster, if the name is short enough for a label."""
REVISION = "fleet.knfleet.dev/revision"
"""Annotation of a child: the revision that it was made from."""
CONTENT_HASH = "fleet.knfleet.dev/content-hash"
"""Annotation of a child: the spec that this revision means for its cluster."""
STARTED = "fleet.knfleet.dev/started"
"""Annotation of a child: when it was last changed by its fleet."""
SUSPENDED = "fleet.knfleet.dev/suspended"
"""Annotation of a child: `profile` or `access`, while a change waits for an unreachable cluster."""
PROMOTE = "fleet.knfleet.dev/promote"
"""Annotation of a fleet: `STARTED/WAVE`, a wave of one rollout that no longer waits for time."""
RETRY = "fleet.knfleet.dev/retry"
"""Annotation of a fleet: any new value tries again what failed or was rolled back."""
FLEET_FINALIZER = "fleet.knfleet.dev/children"

READY = "Ready"
CLUSTERS_SELECTED = "ClustersSelected"
ROLLED_OUT = "RolledOut"
IN_SYNC = "InSync"

RULES = "x-kubernetes-validations"
POSITIVE_SHARE = r"^((100|[1-9][0-9]?)%|[1-9][0-9]{0,8})$"
DURATION = r"^(0|([0-9]{1,9}(\.[0-9]{1,3})?(ms|s|m|h)){1,4})$"
DEADLINE = r"^(None|([0-9]{1,9}(\.[0-9]{1,3})?(ms|s|m|h)){1,4})$"
URL = r"^https?://[^/@\s]+(/\S*)?$"
NUMBER = r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$"
NO_DEADLINE = "None"
NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
IMMUTABLE: dict[str, Any] = {RULES: [{"rule": "self == oldSelf", "message": "it is immutable"}]}
BY_NAME: dict[str, Any] = {
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
}
REMAINING_WAVE = "remaining"
"""The wave of clusters that are in no other one."""
SERVING_NAMESPACE = "knative-serving"
EVENTING_NAMESPACE = "knative-eventing"


def exactly_one(*fields: str) -> dict[str, str]:
    """A CEL rule: one of some fields is there."""
    count = " + ".join(f"(has(self.{field}) ? 1 : 0)" for field in fields)
    return {"rule": f"{count} == 1", "message": f"exactly one of {', '.join(fields)} is needed"}


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


SPEC_RULES = [
    {
        "rule": "has(self.spec.serving) || has(self.spec.eventing)",
        "fieldPath": ".spec",
        "message": "at least one of serving and eventing is needed",
    },
    {
        "rule": (
            "!has(self.spec.overrides) || self.spec.overrides.all(o,"
            " (!has(o.serving) || has(self.spec.serving))"
            " && (!has(o.eventing) || has(self.spec.eventing))"
            " && (has(o.serving) || has(o.eventing)))"
        ),
        "fieldPath": ".spec.overrides",
        "message": "an override needs serving or eventing, and the fleet must have the same",
    },
    {
        "rule": (
            "!has(self.spec.strategy) || !has(self.spec.strategy.waves)"
            " || self.spec.strategy.waves.all(w,"
            " (has(w.selector) ? 1 : 0) + (has(w.names) ? 1 : 0)"
            " + (has(w.decisionGroups) ? 1 : 0) == 1)"
        ),
        "fieldPath": ".spec.strategy.waves",
        "message": "a wave needs exactly one of selector, names and decisionGroups",
    },
    {
        "rule": (
            "has(self.spec.clusters.placementRef) || !has(self.spec.strategy)"
            " || !has(self.spec.strategy.waves)"
            " || self.spec.strategy.waves.all(w, !has(w.decisionGroups))"
        ),
        "fieldPath": ".spec.strategy.waves",
        "message": "decisionGroups need clusters.placementRef",
    },
    {
        "rule": (
            "!has(self.spec.strategy) || !has(self.spec.strategy.waves)"
            f" || self.spec.strategy.waves.all(w, w.name != '{REMAINING_WAVE}')"
        ),
        "fieldPath": ".spec.strategy.waves",
        "message": f"{REMAINING_WAVE} is the wave of clusters that are in no other one",
    },
    {
        "rule": (
            "!has(self.spec.strategy) || !has(self.spec.strategy.gates)"
            " || self.spec.strategy.gates.all(g, (has(g.prometheus) ? 1 : 0)"
            " + (has(g.webhook) ? 1 : 0) + (has(g.verify) ? 1 : 0) == 1)"
        ),
        "fieldPath": ".spec.strategy.gates",
        "message": "a gate needs exactly one of prometheus, webhook and verify",
    },
    {
        "rule": "self.metadata.name.size() <= 63",
        "fieldPath": ".metadata.name",
        "message": "the name has at most 63 characters, because it is the value of a label",
    },
]
"""CEL rules for the object as a whole."""


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
