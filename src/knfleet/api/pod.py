"""The parts of pods that custom resources may set, as the Kubernetes API describes them.

The types are written for the schemas of CRDs alone: what users write is handed on as it is. They
have the fields of Kubernetes 1.35 and its required ones, but no lists of permitted values, which
the cluster that runs the pods checks itself.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct

from knfleet.api.crds.structural import INT_OR_STRING, shape
from knfleet.api.meta import Object
from knfleet.api.schema import Int32, doc

ATOMIC: dict[str, Any] = {"x-kubernetes-map-type": "atomic"}
"""An object that server-side apply replaces as a whole, as it does in a pod."""

QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)

Quantity = Annotated[int | str, Meta(extra_json_schema={INT_OR_STRING: True, "pattern": QUANTITY})]
"""An amount such as 2, 500m or 64Mi."""


class PodField(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of a pod."""


class SelectorRequirement(PodField, frozen=True):
    """A condition on one label or field."""

    key: Annotated[str, doc("Name of the label or field.")]
    operator: Annotated[str, doc("In, NotIn, Exists or DoesNotExist; for nodes also Gt and Lt.")]
    values: Annotated[
        list[str], doc("Values to compare with; none with Exists and DoesNotExist.")
    ] = []


class PodLabelSelector(PodField, frozen=True):
    """Labels that objects must have; all conditions must hold."""

    match_labels: Annotated[dict[str, str], doc("Labels with exactly these values.")] = {}
    match_expressions: Annotated[list[SelectorRequirement], doc("Conditions on labels.")] = []


class NodeSelectorTerm(PodField, frozen=True):
    """Conditions on a node, all of which must hold."""

    match_expressions: Annotated[
        list[SelectorRequirement], doc("Conditions on the node's labels.")
    ] = []
    match_fields: Annotated[
        list[SelectorRequirement], doc("Conditions on the node's fields, such as metadata.name.")
    ] = []


class NodeSelector(PodField, frozen=True):
    """Which nodes are permitted."""

    node_selector_terms: Annotated[
        list[Annotated[NodeSelectorTerm, Meta(extra_json_schema=ATOMIC)]],
        doc("A node is permitted when one of these terms holds."),
    ]


class PreferredNodes(PodField, frozen=True):
    """Nodes that are preferred."""

    weight: Annotated[Int32, doc("How much it counts, from 1 to 100.")]
    preference: Annotated[NodeSelectorTerm, doc("The preferred nodes.", **ATOMIC)]


class NodeAffinity(PodField, frozen=True):
    """Which nodes pods run on."""

    required_during_scheduling_ignored_during_execution: Annotated[
        NodeSelector | None, doc("Nodes to which pods are limited.", **ATOMIC)
    ] = None
    preferred_during_scheduling_ignored_during_execution: Annotated[
        list[PreferredNodes], doc("Nodes that are preferred, with weights.")
    ] = []


class PodAffinityTerm(PodField, frozen=True):
    """Which other pods count, and what "together" means."""

    topology_key: Annotated[str, doc("Label of nodes: nodes with the same value are one domain.")]
    label_selector: Annotated[
        PodLabelSelector | None, doc("Labels of the pods that count.", **ATOMIC)
    ] = None
    namespaces: Annotated[
        list[str], doc("Namespaces of the pods that count; the pod's own when empty.")
    ] = []
    namespace_selector: Annotated[
        PodLabelSelector | None, doc("Labels of further namespaces; {} means all.", **ATOMIC)
    ] = None
    match_label_keys: Annotated[
        list[str], doc("Labels whose value must be that of the new pod.")
    ] = []
    mismatch_label_keys: Annotated[
        list[str], doc("Labels whose value must differ from that of the new pod.")
    ] = []


class PreferredPods(PodField, frozen=True):
    """Pods whose place is preferred, or avoided."""

    weight: Annotated[Int32, doc("How much it counts, from 1 to 100.")]
    pod_affinity_term: Annotated[PodAffinityTerm, doc("The pods, and the topology domain.")]


class PodAffinity(PodField, frozen=True):
    """How pods are placed by where other pods run."""

    required_during_scheduling_ignored_during_execution: Annotated[
        list[PodAffinityTerm], doc("Terms all of which must hold.")
    ] = []
    preferred_during_scheduling_ignored_during_execution: Annotated[
        list[PreferredPods], doc("Terms that should hold, with weights.")
    ] = []


class Affinity(PodField, frozen=True):
    """Where pods run."""

    node_affinity: Annotated[NodeAffinity | None, doc("By properties of nodes.")] = None
    pod_affinity: Annotated[PodAffinity | None, doc("Where these other pods run.")] = None
    pod_anti_affinity: Annotated[PodAffinity | None, doc("Where these other pods do not run.")] = (
        None
    )


class Toleration(PodField, frozen=True):
    """A taint of nodes that pods tolerate."""

    key: Annotated[str, doc("Key of the taint; with Exists, all taints when empty.")] = ""
    operator: Annotated[str, doc("Equal, which is the default, or Exists.")] = ""
    value: Annotated[str, doc("Value of the taint, with Equal.")] = ""
    effect: Annotated[str, doc("NoSchedule, PreferNoSchedule or NoExecute; all when empty.")] = ""
    toleration_seconds: Annotated[
        int | None, doc("With NoExecute: how long a pod stays; for ever when absent.")
    ] = None


class TopologySpreadConstraint(PodField, frozen=True):
    """How evenly pods are spread."""

    max_skew: Annotated[Int32, doc("Largest permitted difference in the number of pods.")]
    topology_key: Annotated[str, doc("Label of nodes: nodes with the same value are one domain.")]
    when_unsatisfiable: Annotated[str, doc("DoNotSchedule or ScheduleAnyway.")]
    label_selector: Annotated[
        PodLabelSelector | None, doc("Labels of the pods that are counted.", **ATOMIC)
    ] = None
    match_label_keys: Annotated[
        list[str], doc("Labels whose value must be that of the new pod.")
    ] = []
    min_domains: Annotated[Int32 | None, doc("Least number of domains; 1 when absent.")] = None
    node_affinity_policy: Annotated[
        str, doc("Honor or Ignore the pod's node affinity; Honor when empty.")
    ] = ""
    node_taints_policy: Annotated[
        str, doc("Honor or Ignore taints of nodes; Ignore when empty.")
    ] = ""


class KeyReference(PodField, frozen=True):
    """A key of a ConfigMap or Secret in the pod's namespace."""

    key: Annotated[str, doc("The key.")]
    name: Annotated[str, doc("Name of the ConfigMap or Secret.")] = ""
    optional: Annotated[bool | None, doc("Whether it may be absent.")] = None


class FieldReference(PodField, frozen=True):
    """A field of the pod."""

    field_path: Annotated[str, doc("Path of the field, such as metadata.name.")]
    api_version: Annotated[str, doc("Version that the path is of; v1 when empty.")] = ""


class FileKeyReference(PodField, frozen=True):
    """A key of a file in an emptyDir volume of the pod."""

    volume_name: Annotated[str, doc("Name of the volume.")]
    path: Annotated[str, doc("Path of the file in the volume.")]
    key: Annotated[str, doc("The key in the file.")]
    optional: Annotated[bool | None, doc("Whether it may be absent.")] = None


class ResourceReference(PodField, frozen=True):
    """A limit or request of a container."""

    resource: Annotated[str, doc("Such as limits.cpu or requests.memory.")]
    container_name: Annotated[str, doc("The container; this one when empty.")] = ""
    divisor: Annotated[Quantity | None, doc("Unit of the value; 1 when absent.")] = None


class EnvVarSource(PodField, frozen=True):
    """Where a variable's value comes from; exactly one field is set."""

    config_map_key_ref: Annotated[KeyReference | None, doc("A key of a ConfigMap.", **ATOMIC)] = (
        None
    )
    secret_key_ref: Annotated[KeyReference | None, doc("A key of a Secret.", **ATOMIC)] = None
    field_ref: Annotated[FieldReference | None, doc("A field of the pod.", **ATOMIC)] = None
    resource_field_ref: Annotated[
        ResourceReference | None, doc("A limit or request of a container.", **ATOMIC)
    ] = None
    file_key_ref: Annotated[
        FileKeyReference | None, doc("A key of a file in a volume.", **ATOMIC)
    ] = None


class EnvVar(PodField, frozen=True):
    """An environment variable."""

    name: Annotated[str, doc("Name of the variable.")]
    value: Annotated[str, doc("Its value, where $(OTHER) stands for another variable.")] = ""
    value_from: Annotated[
        EnvVarSource | None, doc("Where the value comes from, when value is empty.")
    ] = None


class VolumeMount(PodField, frozen=True):
    """A volume in a container."""

    name: Annotated[str, doc("Name of the volume.")]
    mount_path: Annotated[str, doc("Where the container sees it.")]
    sub_path: Annotated[str, doc("Path in the volume; its root when empty.")] = ""
    sub_path_expr: Annotated[str, doc("The same, with $(VARIABLE) replaced.")] = ""
    read_only: Annotated[bool | None, doc("Whether it cannot be written.")] = None
    recursive_read_only: Annotated[str, doc("Disabled, IfPossible or Enabled.")] = ""
    mount_propagation: Annotated[
        str, doc("None, HostToContainer or Bidirectional; None when empty.")
    ] = ""


class ResourceClaim(PodField, frozen=True):
    """A claim of the pod that a container uses."""

    name: Annotated[str, doc("Name of the claim in the pod.")]
    request: Annotated[str, doc("One request of the claim; all when empty.")] = ""


AffinityObject = Annotated[Object, shape(Affinity)]
EnvVarObject = Annotated[Object, shape(EnvVar)]
LabelSelectorObject = Annotated[Object, shape(PodLabelSelector)]
ResourceClaimObject = Annotated[Object, shape(ResourceClaim)]
SpreadObject = Annotated[Object, shape(TopologySpreadConstraint)]
TolerationObject = Annotated[Object, shape(Toleration)]
VolumeMountObject = Annotated[Object, shape(VolumeMount)]
