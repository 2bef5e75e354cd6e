"""KnativeServing and KnativeEventing, as users write them and as the hub stores them."""

from typing import Annotated, ClassVar, Literal

from msgspec import Struct, field

from knfleet.api.knative.conditions import Condition
from knfleet.api.knative.ingress import ISTIO_ASSUMED, Ingress
from knfleet.api.knative.overrides import (
    BudgetOverride,
    ClusterProfileRef,
    ContainerResources,
    HighAvailability,
    ManifestSource,
    NamespaceSettings,
    Registry,
    ServiceOverride,
    WorkloadOverride,
)
from knfleet.api.meta import Key, Resource
from knfleet.api.schema import ObjectMeta, doc

GROUP = "operator.knative.dev"
VERSION = "v1beta1"

SERVINGS = Resource(GROUP, VERSION, "KnativeServing", "knativeservings")
EVENTINGS = Resource(GROUP, VERSION, "KnativeEventing", "knativeeventings")

Component = Literal["serving", "eventing"]

TARGET_RULES: list[dict[str, str]] = [
    {
        "rule": (
            "(has(self.spec) && has(self.spec.clusterProfileRef))"
            " == (has(oldSelf.spec) && has(oldSelf.spec.clusterProfileRef))"
        ),
        "fieldPath": ".spec.clusterProfileRef",
        "message": "spec.clusterProfileRef cannot be added or removed after creation",
    },
    {
        "rule": (
            "!has(self.spec) || !has(oldSelf.spec) || !has(self.spec.clusterProfileRef)"
            " || !has(oldSelf.spec.clusterProfileRef)"
            " || self.spec.clusterProfileRef == oldSelf.spec.clusterProfileRef"
        ),
        "fieldPath": ".spec.clusterProfileRef",
        "message": "spec.clusterProfileRef is immutable",
    },
]
"""CEL rules for the root of both CRDs.

Upstream has them on `spec`, where they are not asked when `spec` comes or goes as a whole.
"""


class KnativeSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What both components have in common."""

    version: Annotated[
        str, doc("Release to install: 1.23, 1.23.0 or latest; the newest one when empty.")
    ] = ""
    manifests: Annotated[
        list[ManifestSource], doc("Manifests to install instead of the release's own.")
    ] = []
    additional_manifests: Annotated[
        list[ManifestSource],
        doc("Further manifests to install; their objects replace equal ones of the release."),
    ] = []
    config: Annotated[
        dict[str, dict[str, str]],
        doc("Entries of ConfigMaps, by the ConfigMap's name with or without `config-`."),
    ] = {}
    registry: Annotated[Registry, doc("Where images come from.")] = Registry()
    high_availability: Annotated[
        HighAvailability | None, doc("How many pods the control plane runs.")
    ] = field(default=None, name="high-availability")
    workloads: Annotated[list[WorkloadOverride], doc("Changes to single workloads.")] = []
    deployments: Annotated[
        list[WorkloadOverride], doc("Deprecated: use workloads, which have precedence.")
    ] = []
    resources: Annotated[
        list[ContainerResources],
        doc("Deprecated: use workloads. Resources by container, in every Deployment."),
    ] = []
    services: Annotated[list[ServiceOverride], doc("Changes to single Services.")] = []
    pod_disruption_budgets: Annotated[
        list[BudgetOverride], doc("Changes to single PodDisruptionBudgets.")
    ] = []
    namespace: Annotated[
        NamespaceSettings, doc("Labels and annotations of the component's Namespace.")
    ] = NamespaceSettings()
    namespace_configuration: Annotated[
        NamespaceSettings, doc("The same as namespace, which has precedence.")
    ] = NamespaceSettings()
    cluster_profile_ref: Annotated[
        ClusterProfileRef | None,
        doc("The cluster to install on; this one when absent. It cannot be changed."),
    ] = None

    @property
    def overrides(self) -> list[WorkloadOverride]:
        """All workload overrides; where two speak of the same thing the later one wins."""
        return [*self.deployments, *self.workloads]

    @property
    def namespace_settings(self) -> NamespaceSettings:
        """What `namespace` and `namespaceConfiguration` say together."""
        first, second = self.namespace_configuration, self.namespace
        return NamespaceSettings(
            labels={**first.labels, **second.labels},
            annotations={**first.annotations, **second.annotations},
        )

    def config_map(self, name: str) -> dict[str, str]:
        """The entries given for a ConfigMap: by its full name, else without `config-`."""
        if name in self.config:
            return self.config[name]
        return self.config.get(name.removeprefix("config-"), {})


class CustomCerts(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Certificates that Serving's controller trusts besides those of its image."""

    type: Annotated[str, doc("ConfigMap or Secret.")]
    name: Annotated[str, doc("Name of the ConfigMap or Secret.")]


class SecurityGuard(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The guard that watches requests to services."""

    enabled: Annotated[bool, doc("Whether it is installed.")]


class Security(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Serving's security plugins."""

    security_guard: Annotated[SecurityGuard, doc("The security guard.")]


class ServingSpec(KnativeSpec, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Which Knative Serving to install, and how."""

    controller_custom_certs: Annotated[
        CustomCerts | None, doc("Further certificates that the controller trusts.")
    ] = field(default=None, name="controller-custom-certs")
    ingress: Annotated[Ingress | None, doc("Ingress plugins; Istio when absent.")] = None
    security: Annotated[Security | None, doc("Security plugins.")] = None

    @property
    def ingress_plugins(self) -> Ingress:
        return self.ingress if self.ingress is not None else ISTIO_ASSUMED

    @property
    def guarded(self) -> bool:
        return self.security is not None and self.security.security_guard.enabled


class EventSource(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One event source."""

    enabled: Annotated[bool, doc("Whether it is installed.")]


SourceName = Literal["ceph", "github", "gitlab", "kafka", "rabbitmq", "redis"]


class EventSources(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The event sources to install; those not named are not installed."""

    ceph: Annotated[EventSource | None, doc("Ceph.")] = None
    github: Annotated[EventSource | None, doc("GitHub.")] = None
    gitlab: Annotated[EventSource | None, doc("GitLab.")] = None
    kafka: Annotated[EventSource | None, doc("Apache Kafka.")] = None
    rabbitmq: Annotated[EventSource | None, doc("RabbitMQ.")] = None
    redis: Annotated[EventSource | None, doc("Redis.")] = None

    def enabled(self) -> list[SourceName]:
        """The sources that are on, in the order in which their manifests are installed."""
        chosen: list[tuple[SourceName, EventSource | None]] = [
            ("ceph", self.ceph),
            ("github", self.github),
            ("gitlab", self.gitlab),
            ("kafka", self.kafka),
            ("rabbitmq", self.rabbitmq),
            ("redis", self.redis),
        ]
        return [name for name, source in chosen if source is not None and source.enabled]


class EventingSpec(KnativeSpec, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Which Knative Eventing to install, and how."""

    default_broker_class: Annotated[
        str, doc("Class of brokers that name none; MTChannelBasedBroker when empty.")
    ] = ""
    sink_binding_selection_mode: Annotated[
        str, doc("Which namespaces bindings work in: exclusion (when empty) or inclusion.")
    ] = ""
    source: Annotated[EventSources, doc("Event sources to install.")] = EventSources()


class KnativeStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Observed state."""

    observed_generation: Annotated[
        int, doc("Generation that the conditions were set for.", format="int64")
    ] = 0
    conditions: Annotated[list[Condition], doc("Conditions, keyed by type.")] = []
    version: Annotated[str, doc("Release that is fully installed.")] = ""
    manifests: Annotated[list[str], doc("Where the installed manifests came from.")] = []
    annotations: Annotated[dict[str, str], doc("Reserved for other clients.")] = {}


class KnativeServing(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An installation of Knative Serving."""

    component: ClassVar[Component] = "serving"
    resource: ClassVar[Resource] = SERVINGS

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[ServingSpec, doc("Which Knative Serving to install, and how.")] = ServingSpec()
    status: Annotated[KnativeStatus, doc("Observed state.")] = KnativeStatus()

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.metadata.key


class KnativeEventing(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An installation of Knative Eventing."""

    component: ClassVar[Component] = "eventing"
    resource: ClassVar[Resource] = EVENTINGS

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[EventingSpec, doc("Which Knative Eventing to install, and how.")] = (
        EventingSpec()
    )
    status: Annotated[KnativeStatus, doc("Observed state.")] = KnativeStatus()

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.metadata.key


Knative = KnativeServing | KnativeEventing
