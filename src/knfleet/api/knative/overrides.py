"""Overrides that a CR may give for objects of the release: workloads, Services, budgets."""

from typing import Annotated, Any

from msgspec import Struct, field

from knfleet.api.pod import (
    ATOMIC,
    AffinityObject,
    EnvVarObject,
    LabelSelectorObject,
    Quantity,
    ResourceClaimObject,
    SpreadObject,
    TolerationObject,
    VolumeMountObject,
)
from knfleet.api.schema import Count, IntOrString, Replicas, doc

Labels = dict[str, str]

BY_NAME: dict[str, Any] = {
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
}
"""A list whose entries server-side apply tells apart by name."""


class ContainerResources(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Compute resources of one container."""

    container: Annotated[str, doc("Name of the container.")]
    limits: Annotated[dict[str, Quantity], doc("Limits, by resource.")] = {}
    requests: Annotated[dict[str, Quantity], doc("Requests, by resource.")] = {}
    claims: Annotated[
        list[ResourceClaimObject], doc("Accepted, and without effect.", **BY_NAME)
    ] = []


class ContainerEnv(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Environment variables of one container."""

    container: Annotated[str, doc("Name of the container.")]
    env_vars: Annotated[
        list[EnvVarObject],
        doc("Variables to set, as in a Pod; those of the same name are replaced."),
    ] = []


class ContainerProbe(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Timing of one container's probe; with no field set the probe is removed."""

    container: Annotated[str, doc("Name of the container.")]
    initial_delay_seconds: Annotated[Count | None, doc("Seconds before the first probe.")] = None
    timeout_seconds: Annotated[Count | None, doc("Timeout of a probe, in seconds.")] = None
    period_seconds: Annotated[Count | None, doc("Seconds between probes.")] = None
    success_threshold: Annotated[
        Count | None, doc("Consecutive successes after which the probe counts as successful.")
    ] = None
    failure_threshold: Annotated[
        Count | None, doc("Consecutive failures after which the probe counts as failed.")
    ] = None
    termination_grace_period_seconds: Annotated[
        int | None, doc("Seconds for graceful termination after the probe failed.", format="int64")
    ] = None


class WorkloadOverride(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What to change in one Deployment, StatefulSet, DaemonSet or Job of the release."""

    name: Annotated[
        str, doc("Name of the workload; of a Job its name or generateName in the release.")
    ]
    labels: Annotated[Labels, doc("Added to the workload and its pods.")] = {}
    annotations: Annotated[Labels, doc("Added to the workload and its pods.")] = {}
    replicas: Annotated[
        Replicas | None,
        doc("Number of pods; of an autoscaled workload the least number of pods."),
    ] = None
    node_selector: Annotated[Labels, doc("Replaces the pods' node selector.")] = {}
    topology_spread_constraints: Annotated[
        list[SpreadObject], doc("Replace those of the pods.")
    ] = []
    tolerations: Annotated[list[TolerationObject], doc("Replace those of the pods.")] = []
    affinity: Annotated[AffinityObject | None, doc("Replaces that of the pods.")] = None
    resources: Annotated[
        list[ContainerResources], doc("Resources by container; merged into the release's.")
    ] = []
    env: Annotated[list[ContainerEnv], doc("Environment variables by container.")] = []
    readiness_probes: Annotated[list[ContainerProbe], doc("Readiness probes by container.")] = []
    liveness_probes: Annotated[list[ContainerProbe], doc("Liveness probes by container.")] = []
    host_network: Annotated[bool | None, doc("Whether pods use the node's network.")] = None
    version: Annotated[str, doc("Deprecated, and without effect.")] = ""
    volume_mounts: Annotated[list[VolumeMountObject], doc("Deprecated, and without effect.")] = []


class ServiceOverride(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What to change in one Service of the release."""

    name: Annotated[str, doc("Name of the Service.")]
    labels: Annotated[Labels, doc("Added to the Service.")] = {}
    annotations: Annotated[Labels, doc("Added to the Service.")] = {}
    selector: Annotated[Labels, doc("Added to the Service's selector.")] = {}


class BudgetOverride(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What to change in one PodDisruptionBudget of the release."""

    name: Annotated[str, doc("Name of the PodDisruptionBudget.")]
    min_available: Annotated[
        IntOrString | None,
        doc("Number or share of pods that must be available; or maxUnavailable."),
    ] = None
    max_unavailable: Annotated[
        IntOrString | None, doc("Number or share of pods that may be unavailable; or minAvailable.")
    ] = None
    selector: Annotated[
        LabelSelectorObject | None, doc("Accepted, and without effect.", **ATOMIC)
    ] = None
    unhealthy_pod_eviction_policy: Annotated[str, doc("Accepted, and without effect.")] = ""


class HighAvailability(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How many pods the control plane runs."""

    replicas: Annotated[
        Replicas, doc("Pods of each Deployment; of an autoscaled one the least number of pods.")
    ]


class PullSecret(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A Secret in the component's namespace."""

    name: Annotated[str, doc("Name of the Secret.")] = ""


class Registry(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where images come from."""

    default: Annotated[
        str,
        doc("Address of every image, where ${NAME} stands for the image's own short name."),
    ] = ""
    override: Annotated[
        dict[str, str],
        doc(
            "Image by workload/container, by container, by environment variable,"
            " or by the name of a caching Image."
        ),
    ] = {}
    image_pull_secrets: Annotated[
        list[PullSecret], doc("Secrets with which images are fetched.")
    ] = []


class ManifestSource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a manifest is read from."""

    url: Annotated[
        str, doc("A web address, file or folder, where ${VERSION} stands for the version.")
    ] = field(name="URL")


class NamespaceSettings(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the component's Namespace carries."""

    labels: Annotated[Labels, doc("Added to the Namespace.")] = {}
    annotations: Annotated[Labels, doc("Added to the Namespace.")] = {}


class ClusterProfileRef(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The ClusterProfile of the cluster to install on."""

    name: Annotated[str, doc("Name of the ClusterProfile.", minLength=1)]
    namespace: Annotated[str, doc("Namespace of the ClusterProfile.", minLength=1)]
