"""ManifestWork: objects that the agent of a cluster applies there, and what became of them.

Fields, defaults and validation are those of Open Cluster Management. The manifests stay plain
manifests: only the cluster that they are for knows their kinds.
"""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, field

from knfleet.api.conditions import BY_TYPE, StandardCondition
from knfleet.api.meta import Object, Resource
from knfleet.api.schema import Int32, ObjectMeta, doc

GROUP = "work.open-cluster-management.io"
WORKS = Resource(GROUP, "v1", "ManifestWork", "manifestworks")
WORK_FINALIZER = "cluster.open-cluster-management.io/manifest-work-cleanup"
"""Keeps a ManifestWork until the agent has removed what it applied."""
CONFIG_SPEC_HASH = "open-cluster-management.io/config-spec-hash"
"""Annotation: hashes of the add-on configurations that the manifests were made from."""
DEFAULT_FIELD_MANAGER = "work-agent"

APPLIED = "Applied"
AVAILABLE = "Available"
COMPLETE = "Complete"
DEGRADED = "Degraded"
DELETING = "Deleting"
PROGRESSING = "Progressing"

PropagationPolicy = Literal["Foreground", "Orphan", "SelectivelyOrphan"]
StrategyType = Literal["Update", "CreateOnly", "ServerSideApply", "ReadOnly"]

SUBDOMAIN = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$"


def map_by(*keys: str) -> dict[str, Any]:
    """The schema of a list with elements that some fields distinguish."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


NAMED_CONDITION = {
    "x-kubernetes-validations": [
        {
            "rule": "self.type != 'CEL' || self.condition != \"\"",
            "message": "Condition is required for CEL rules",
        }
    ]
}
EMBEDDED = {
    "x-kubernetes-embedded-resource": True,
    "x-kubernetes-preserve-unknown-fields": True,
}
Manifest = Annotated[Object, Meta(extra_json_schema=EMBEDDED)]
"""A whole object of any kind."""


class Workload(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Objects for the cluster."""

    manifests: Annotated[list[Manifest], doc("Complete objects of any kinds.")] = []


class ResourceIdentifier(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Objects of a workload, by resource, namespace and name."""

    resource: Annotated[str, doc("Plural name of the kind.")]
    name: Annotated[str, doc("Name of the object. In manifestConfigs * stands for any text.")]
    group: Annotated[str, doc("API group; empty for the core group.")] = ""
    namespace: Annotated[
        str,
        doc("Namespace; empty for cluster-scoped kinds. In manifestConfigs * stands for any text."),
    ] = ""


class SelectivelyOrphans(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Objects to leave on the cluster."""

    orphaning_rules: Annotated[list[ResourceIdentifier], doc("The objects to leave.")] = []


class DeleteOption(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What happens to the objects when the work is deleted."""

    propagation_policy: Annotated[
        PropagationPolicy,
        doc("Foreground deletes all objects first, Orphan leaves all, SelectivelyOrphan some."),
    ] = "Foreground"
    selectively_orphans: Annotated[
        SelectivelyOrphans | None, doc("With SelectivelyOrphan: which objects are left.")
    ] = None
    ttl_seconds_after_finished: Annotated[
        int | None,
        doc("Delete the work this many seconds after its condition Complete became True."),
    ] = None


class JsonPath(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A value to report, by its place in the object."""

    name: Annotated[str, doc("Name of the value in the status.")]
    path: Annotated[str, doc("JSONPath of a field under status, as .replicas.")]
    version: Annotated[str, doc("API version that the path is for; any when empty.")] = ""


class FeedbackRule(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Values of an object's status that are reported to the hub."""

    type: Annotated[
        Literal["WellKnownStatus", "JSONPaths"],
        doc("The values that are known for the kind, or those of jsonPaths."),
    ]
    json_paths: Annotated[
        list[JsonPath], doc("With JSONPaths: which values.", **map_by("name"))
    ] = []


class IgnoreField(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Fields that server-side apply leaves alone."""

    condition: Annotated[
        Literal["OnSpokePresent", "OnSpokeChange"],
        doc(
            "OnSpokePresent leaves the fields out once the object exists; OnSpokeChange as long"
            " as the work does not change them."
        ),
    ] = "OnSpokePresent"
    json_paths: Annotated[list[str], doc("JSONPaths of the fields.")] = []
    json_pointers: Annotated[list[str], doc("JSON pointers (RFC 6901) of the fields.")] = field(
        default_factory=list[str], name="jsonPointers"
    )
    jq_path_expressions: Annotated[list[str], doc("Path expressions of jq.")] = field(
        default_factory=list[str], name="jqPathExpressions"
    )


class ServerSideApply(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How server-side apply is used."""

    force: Annotated[bool, doc("Take fields over that other managers own.")] = False
    field_manager: Annotated[
        str, doc("Name of the field manager.", pattern=f"^{DEFAULT_FIELD_MANAGER}")
    ] = DEFAULT_FIELD_MANAGER
    ignore_fields: Annotated[
        list[IgnoreField], doc("Fields to leave alone.", **map_by("condition"))
    ] = []


class UpdateStrategy(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How an object is written that exists already."""

    type: Annotated[
        StrategyType,
        doc(
            "Update merges metadata and overwrites the rest, CreateOnly never changes an object,"
            " ServerSideApply applies with a field manager, ReadOnly only reads."
        ),
    ] = "Update"
    server_side_apply: Annotated[ServerSideApply | None, doc("With ServerSideApply.")] = None


class ConditionRule(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A condition of a manifest that is computed from its object."""

    condition: Annotated[str, doc("Type of the condition.")]
    type: Annotated[
        Literal["WellKnownConditions", "CEL"],
        doc("What is known for the kind, or celExpressions."),
    ]
    cel_expressions: Annotated[
        list[str], doc("CEL of `object`; the condition is True when all are true.")
    ] = []
    message: Annotated[str, doc("Message of the condition.")] = ""
    message_expression: Annotated[
        str, doc("CEL of `object` and `result` that makes the message.")
    ] = ""


class ManifestConfig(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How single objects of the workload are handled."""

    resource_identifier: Annotated[ResourceIdentifier, doc("Which objects.")]
    feedback_rules: Annotated[list[FeedbackRule], doc("Values that are reported.")] = []
    update_strategy: Annotated[UpdateStrategy | None, doc("How they are written.")] = None
    condition_rules: Annotated[
        list[Annotated[ConditionRule, Meta(extra_json_schema=NAMED_CONDITION)]],
        doc("Conditions that are computed.", **map_by("condition")),
    ] = []
    feedback_scrape_type: Annotated[
        Literal["Poll", "Watch"],
        doc("How changes of the object are noticed; this agent always watches."),
    ] = "Poll"


class SubjectServiceAccount(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A ServiceAccount of the cluster."""

    namespace: Annotated[str, doc("Namespace.", minLength=1, maxLength=253, pattern=SUBDOMAIN)]
    name: Annotated[str, doc("Name.", minLength=1, maxLength=253, pattern=SUBDOMAIN)]


class ExecutorSubject(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Whose permissions limit the work."""

    type: Annotated[Literal["ServiceAccount"], doc("Kind of the subject.")]
    service_account: Annotated[
        SubjectServiceAccount | None, doc("With ServiceAccount: which one.")
    ] = None


class WorkExecutor(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Whose permissions limit the work."""

    subject: Annotated[ExecutorSubject, doc("The subject.")]


class ManifestWorkSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a cluster is to have."""

    workload: Annotated[Workload, doc("Objects for the cluster.")] = Workload()
    delete_option: Annotated[
        DeleteOption | None, doc("What happens to them when the work is deleted.")
    ] = None
    manifest_configs: Annotated[list[ManifestConfig], doc("How single objects are handled.")] = []
    executor: Annotated[
        WorkExecutor | None, doc("Whose permissions limit the work; the agent's own when absent.")
    ] = None


class ManifestResourceMeta(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Which object a manifest is."""

    # A factory's default is not left out, unlike a value.
    ordinal: Annotated[Int32, doc("Index of the manifest in the workload.")] = field(
        default_factory=int
    )
    group: Annotated[str, doc("API group.")] = ""
    version: Annotated[str, doc("API version.")] = ""
    kind: Annotated[str, doc("Kind of the object.")] = ""
    resource: Annotated[str, doc("Plural name of the kind.")] = ""
    name: Annotated[str, doc("Name of the object.")] = ""
    namespace: Annotated[str, doc("Namespace of the object.")] = ""


class FieldValue(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A value of an object's status."""

    type: Annotated[
        Literal["Integer", "String", "Boolean", "JsonRaw"], doc("Which of the fields is set.")
    ]
    integer: Annotated[int | None, doc("With Integer.")] = None
    string: Annotated[str | None, doc("With String.")] = None
    boolean: Annotated[bool | None, doc("With Boolean.")] = None
    json_raw: Annotated[str | None, doc("With JsonRaw: a list or object.", maxLength=1024)] = None


class FeedbackValue(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A named value of an object's status."""

    name: Annotated[str, doc("Name of the value.")]
    field_value: Annotated[FieldValue, doc("The value.")]


class StatusFeedback(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Values that were asked for by feedback rules."""

    values: Annotated[list[FeedbackValue], doc("The values, by name.", **map_by("name"))] = []


class ManifestStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What became of one manifest."""

    resource_meta: Annotated[ManifestResourceMeta, doc("Which object it is.")]
    status_feedback: Annotated[StatusFeedback | None, doc("Values of its status.")] = None
    conditions: Annotated[list[StandardCondition], doc("Conditions, keyed by type.", **BY_TYPE)] = (
        field(default_factory=list[StandardCondition])
    )


class ResourceStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What became of each manifest."""

    manifests: Annotated[list[ManifestStatus], doc("By manifest, in their order.")] = []


class ManifestWorkStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What became of the objects."""

    conditions: Annotated[
        list[StandardCondition], doc("Conditions, keyed by type.", **BY_TYPE)
    ] = []
    resource_status: Annotated[ResourceStatus, doc("What became of each manifest.")] = (
        ResourceStatus()
    )


class ManifestWork(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Objects that the agent of a cluster applies there."""

    resource: ClassVar[Resource] = WORKS

    spec: Annotated[ManifestWorkSpec, doc("What the cluster is to have.")]
    metadata: ObjectMeta = ObjectMeta()
    status: Annotated[ManifestWorkStatus, doc("What became of it.")] = ManifestWorkStatus()
