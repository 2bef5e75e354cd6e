"""ClusterManager and Klusterlet: how the hub and the agent of a cluster are installed."""

from typing import Annotated, ClassVar, Literal

from msgspec import Struct, field

from knfleet.api.aws_registration import AgentAwsIrsa, HubAwsIrsa
from knfleet.api.cluster.managedcluster import NAME_PATTERN, ClientConfig
from knfleet.api.conditions import BY_TYPE, StandardCondition
from knfleet.api.meta import Resource
from knfleet.api.pod import Quantity, TolerationObject
from knfleet.api.schema import Count, Free, ObjectMeta, doc

GROUP = "operator.open-cluster-management.io"
CLUSTER_MANAGERS = Resource(GROUP, "v1", "ClusterManager", "clustermanagers", namespaced=False)
KLUSTERLETS = Resource(GROUP, "v1", "Klusterlet", "klusterlets", namespaced=False)

CLUSTER_MANAGER = "cluster-manager"
"""The name of the one ClusterManager, of the hub's Deployment and of its ServiceAccount."""
HUB_ROLE = "knfleet:hub"
"""The hub's own roles, of whatever kind."""
GRPC_SERVER = f"{CLUSTER_MANAGER}-grpc-server"
"""The name of the gRPC server's Deployment, Service and ServiceAccount."""
KLUSTERLET = "klusterlet"
WEBHOOK_SERVICE = "cluster-manager-webhook"
"""The Service by which API servers call the hub."""
OPERATOR_NAMESPACE = "open-cluster-management"
HUB_NAMESPACE = "open-cluster-management-hub"
GRPC_SERVER_USER = f"system:serviceaccount:{HUB_NAMESPACE}:{GRPC_SERVER}"
AGENT_NAMESPACE = "open-cluster-management-agent"
ADDON_NAMESPACE = "open-cluster-management-agent-addon"
BOOTSTRAP_ACCOUNT = "agent-registration-bootstrap"
BOOTSTRAP_USERS = (
    f"system:serviceaccount:{OPERATOR_NAMESPACE}:{BOOTSTRAP_ACCOUNT}",
    f"system:serviceaccount:{OPERATOR_NAMESPACE}:cluster-bootstrap",
)
"""Users who may ask for clusters to join, of this and of older releases."""
BOOTSTRAP_PREFIX = "system:bootstrap:"
"""Of users who ask with a bootstrap token."""
BOOTSTRAP_ROLE = "open-cluster-management:bootstrap"
BOOTSTRAPPERS = "system:bootstrappers:managedcluster"
BOOTSTRAP_SECRET = "bootstrap-hub-kubeconfig"  # noqa: S105  a name
HUB_SECRET = "hub-kubeconfig-secret"  # noqa: S105  a name

APPLIED = "Applied"
AVAILABLE = "Available"
PROGRESSING = "Progressing"
HUB_REGISTRATION_DEGRADED = "HubRegistrationDegraded"
HUB_PLACEMENT_DEGRADED = "HubPlacementDegraded"
HUB_ADDON_DEGRADED = "HubAddOnDegraded"
REGISTRATION_DESIRED_DEGRADED = "RegistrationDesiredDegraded"
WORK_DESIRED_DEGRADED = "WorkDesiredDegraded"
HUB_CONNECTION_DEGRADED = "HubConnectionDegraded"
READY_TO_APPLY = "ReadyToApply"

AUTO_APPROVAL_GATE = "ManagedClusterAutoApproval"
CLEANUP_GATE = "ResourceCleanup"
DEFAULT_SET_GATE = "DefaultClusterSet"
PROFILE_GATE = "ClusterProfile"
CLAIM_GATE = "ClusterClaim"
PROPERTY_GATE = "ClusterProperty"
COMPLETED_WORKS_GATE = "CleanUpCompletedManifestWork"
NIL_EXECUTOR_GATE = "NilExecutorValidating"
RAW_FEEDBACK_GATE = "RawFeedbackJsonString"
EXECUTOR_CACHE_GATE = "ExecutorValidatingCaches"
WORK_GATES = frozenset({RAW_FEEDBACK_GATE, EXECUTOR_CACHE_GATE})
"""Features of an agent that concern works."""

AuthType = Literal["csr", "awsirsa", "grpc"]


class FeatureGate(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A feature that is switched on or off."""

    feature: Annotated[str, doc("Name of the feature.")]
    mode: Annotated[Literal["Enable", "Disable"], doc("Enable or Disable.")] = "Disable"


class NodePlacement(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Which nodes pods run on."""

    node_selector: Annotated[dict[str, str], doc("Labels that the nodes must have.")] = {}
    tolerations: Annotated[list[TolerationObject], doc("Taints of nodes that pods tolerate.")] = []


class Resources(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Compute resources."""

    limits: Annotated[dict[str, Quantity], doc("Resource limits of each container.")] = {}
    requests: Annotated[dict[str, Quantity], doc("Resource requests of each container.")] = {}


class ResourceRequirement(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Quality of service of our own pods."""

    type: Annotated[
        Literal["Default", "BestEffort", "ResourceRequirement"],
        doc("Small requests, none, or those of resourceRequirements."),
    ] = "Default"
    resource_requirements: Annotated[Resources | None, doc("With ResourceRequirement.")] = None


class CsrDriver(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Registration by certificate requests."""

    auto_approved_identities: Annotated[
        list[str],
        doc("Users whose requests are approved by the feature ManagedClusterAutoApproval."),
    ] = []


class GrpcRegistration(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Registration over gRPC."""

    auto_approved_identities: Annotated[
        list[str], doc("Users whose clusters are accepted automatically.")
    ] = []


class HubDriver(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A way in which clusters register."""

    auth_type: Annotated[AuthType, doc("Registration auth type.")] = "csr"
    csr: Annotated[CsrDriver, doc("With csr.")] = CsrDriver()
    awsirsa: Annotated[HubAwsIrsa, doc("With awsirsa.")] = HubAwsIrsa()
    grpc: Annotated[GrpcRegistration, doc("With grpc.")] = GrpcRegistration()


class HubRegistration(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Registration of clusters."""

    auto_approve_users: Annotated[
        list[str], doc("Deprecated form of registrationDrivers[].csr.autoApprovedIdentities.")
    ] = []
    feature_gates: Annotated[list[FeatureGate], doc("Features of registration.")] = []
    registration_drivers: Annotated[
        list[HubDriver],
        doc(
            "Registration drivers; csr when empty.",
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["authType"]},
        ),
    ] = []
    importer_configuration: Annotated[Free | None, doc("Accepted, and without effect.")] = None


class HubDeployOption(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where the hub runs."""

    mode: Annotated[
        Literal["Default", "Hosted"], doc("Default: on the hub; Hosted: on another cluster.")
    ] = "Default"
    hosted: Annotated[Free | None, doc("With Hosted.")] = None


class HubWork(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How works are validated and delivered."""

    feature_gates: Annotated[list[FeatureGate], doc("Features of works.")] = []
    work_driver: Annotated[
        Literal["kube", "mqtt", "grpc"],
        doc("How works get to agents; only kube is part of this release."),
    ] = "kube"


class ClusterManagerSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Configuration of the hub."""

    registration_configuration: Annotated[HubRegistration, doc("Registration of clusters.")] = (
        HubRegistration()
    )
    deploy_option: Annotated[HubDeployOption, doc("Where the hub runs.")] = HubDeployOption()
    resource_requirement: Annotated[
        ResourceRequirement | None, doc("Quality of service of the hub's pods.")
    ] = None
    node_placement: Annotated[NodePlacement, doc("Which nodes they run on.")] = NodePlacement()
    registration_image_pull_spec: Annotated[str, doc("Image of the hub.")] = ""
    work_image_pull_spec: Annotated[str, doc("Accepted, and without effect.")] = ""
    placement_image_pull_spec: Annotated[str, doc("Accepted, and without effect.")] = ""
    add_on_manager_image_pull_spec: Annotated[str, doc("Accepted, and without effect.")] = field(
        default="", name="addOnManagerImagePullSpec"
    )
    work_configuration: Annotated[HubWork, doc("Configuration of ManifestWorks.")] = HubWork()
    placement_configuration: Annotated[Free | None, doc("Configuration of placement.")] = None
    add_on_manager_configuration: Annotated[Free | None, doc("Configuration of add-ons.")] = field(
        default=None, name="addOnManagerConfiguration"
    )
    server_configuration: Annotated[Free | None, doc("Configuration of the hub's own server.")] = (
        None
    )


class Generation(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The generation of an object that was last applied."""

    group: Annotated[str, doc("Group of its API.")]
    version: Annotated[str, doc("Version of its API.")]
    resource: Annotated[str, doc("Plural name of its kind.")]
    name: Annotated[str, doc("Name of the object.")]
    last_generation: Annotated[int, doc("The generation.", format="int64")]
    namespace: Annotated[str, doc("Namespace of the object.")] = ""


class RelatedResource(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An object that belongs to the installation."""

    group: Annotated[str, doc("Group of its API.")]
    version: Annotated[str, doc("Version of its API.")]
    resource: Annotated[str, doc("Plural name of its kind.")]
    name: Annotated[str, doc("Name of the object.")]
    namespace: Annotated[str, doc("Namespace of the object.")] = ""


class InstallationStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How an installation stands."""

    observed_generation: Annotated[
        int, doc("Generation that the conditions were set for.", format="int64")
    ] = 0
    conditions: Annotated[
        list[StandardCondition], doc("Conditions, keyed by type.", **BY_TYPE)
    ] = []
    generations: Annotated[
        list[Generation], doc("Generations of the objects that were last applied.")
    ] = []
    related_resources: Annotated[
        list[RelatedResource], doc("Objects that belong to the installation.")
    ] = []


class ClusterManager(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The installation of the hub."""

    resource: ClassVar[Resource] = CLUSTER_MANAGERS

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[ClusterManagerSpec, doc("Configuration of the hub.")] = ClusterManagerSpec()
    status: Annotated[InstallationStatus, doc("Observed state.")] = InstallationStatus()

    @property
    def auto_approved(self) -> frozenset[str]:
        """The users whose certificate requests need no person; none unless the feature is on."""
        registration = self.spec.registration_configuration
        if not is_enabled(registration.feature_gates, AUTO_APPROVAL_GATE, default=False):
            return frozenset()
        named = [each.csr.auto_approved_identities for each in registration.registration_drivers]
        return frozenset(registration.auto_approve_users).union(*named)

    @property
    def grpc_auto_approved(self) -> frozenset[str]:
        """The same of users who ask over gRPC."""
        registration = self.spec.registration_configuration
        if not is_enabled(registration.feature_gates, AUTO_APPROVAL_GATE, default=False):
            return frozenset()
        named = [each.grpc.auto_approved_identities for each in registration.registration_drivers]
        return frozenset[str]().union(*named)

    @property
    def aws_irsa(self) -> HubAwsIrsa | None:
        """How clusters register by AWS roles; None when they do not."""
        drivers = self.spec.registration_configuration.registration_drivers
        found = [each.awsirsa for each in drivers if each.auth_type == "awsirsa"]
        return found[0] if found else None


class KlusterletDeployOption(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where the agent runs."""

    mode: Annotated[
        Literal["Default", "Hosted", "Singleton", "SingletonHosted"],
        doc("Where the agent runs; it is always one pod."),
    ] = "Default"


class AgentDriver(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The way in which the cluster registers."""

    auth_type: Annotated[AuthType, doc("Registration auth type.")] = "csr"
    aws_irsa: Annotated[AgentAwsIrsa, doc("With awsirsa.")] = AgentAwsIrsa()


class AgentRegistration(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Registration of the cluster."""

    client_cert_expiration_seconds: Annotated[
        Count, doc("Requested lifetime of certificates in seconds; the hub decides when 0.")
    ] = 0
    feature_gates: Annotated[list[FeatureGate], doc("Features of registration.")] = []
    cluster_annotations: Annotated[
        dict[str, str], doc("Annotations of the ManagedCluster, agent.open-cluster-management.io/.")
    ] = {}
    kube_api_qps: Annotated[Count, doc("Accepted, and without effect.")] = field(
        default=50, name="kubeAPIQPS"
    )
    kube_api_burst: Annotated[Count, doc("Accepted, and without effect.")] = field(
        default=100, name="kubeAPIBurst"
    )
    bootstrap_kube_configs: Annotated[
        Free | None, doc("Bootstrap kubeconfigs of several hubs.")
    ] = None
    registration_driver: Annotated[AgentDriver, doc("Registration auth type.")] = AgentDriver()
    add_on_kube_client_registration_driver: Annotated[
        Free | None, doc("Registration auth type of add-ons.")
    ] = field(default=None, name="addOnKubeClientRegistrationDriver")
    cluster_claim_configuration: Annotated[
        Free | None, doc("Which ClusterClaims are reported.")
    ] = None


class AgentWork(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How works are applied."""

    feature_gates: Annotated[list[FeatureGate], doc("Features of works.")] = []
    status_sync_interval: Annotated[
        str, doc("How often objects are read that are too many to be watched by name.")
    ] = ""
    applied_manifest_work_eviction_grace_period: Annotated[
        str,
        doc(
            "How long objects stay whose work is gone from the hub, as 60m.",
            pattern="^([0-9]+(s|m|h))+$|^$",
        ),
    ] = field(default="", name="appliedManifestWorkEvictionGracePeriod")
    kube_api_qps: Annotated[Count, doc("Accepted, and without effect.")] = field(
        default=50, name="kubeAPIQPS"
    )
    kube_api_burst: Annotated[Count, doc("Accepted, and without effect.")] = field(
        default=100, name="kubeAPIBurst"
    )
    hub_kube_api_qps: Annotated[Count, doc("Accepted, and without effect.")] = field(
        default=50, name="hubKubeAPIQPS"
    )
    hub_kube_api_burst: Annotated[Count, doc("Accepted, and without effect.")] = field(
        default=100, name="hubKubeAPIBurst"
    )


class HostAlias(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A name for the hub's address."""

    ip: Annotated[str, doc("Address.")]
    hostname: Annotated[str, doc("Name for it.")]


class KlusterletSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Configuration of the agent."""

    cluster_name: Annotated[
        str, doc("Name of the cluster on the hub.", maxLength=63, pattern=f"{NAME_PATTERN}|^$")
    ] = ""
    namespace: Annotated[
        str,
        doc(
            "Namespace of the agent; open-cluster-management-agent when empty.",
            maxLength=57,
            pattern="^open-cluster-management-[-a-z0-9]*[a-z0-9]$|^$",
        ),
    ] = ""
    registration_configuration: Annotated[
        AgentRegistration, doc("Registration of the cluster.")
    ] = AgentRegistration()
    deploy_option: Annotated[KlusterletDeployOption, doc("Where the agent runs.")] = (
        KlusterletDeployOption()
    )
    external_server_urls: Annotated[
        list[ClientConfig], doc("Where the hub reaches the cluster's API server.")
    ] = field(default_factory=list[ClientConfig], name="externalServerURLs")
    resource_requirement: Annotated[
        ResourceRequirement | None, doc("Quality of service of the agent's pods.")
    ] = None
    node_placement: Annotated[NodePlacement, doc("Which nodes they run on.")] = NodePlacement()
    hub_api_server_host_alias: Annotated[
        HostAlias | None, doc("Host alias for the address of the hub.")
    ] = None
    priority_class_name: Annotated[str, doc("Priority of the agent's pods.")] = ""
    image_pull_spec: Annotated[str, doc("Image of the agent.")] = ""
    registration_image_pull_spec: Annotated[str, doc("Deprecated form of the same field.")] = ""
    work_image_pull_spec: Annotated[str, doc("Accepted, and without effect.")] = ""
    work_configuration: Annotated[AgentWork | None, doc("How works are applied.")] = None


class Klusterlet(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The installation of the agent."""

    resource: ClassVar[Resource] = KLUSTERLETS

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[KlusterletSpec, doc("Configuration of the agent.")] = KlusterletSpec()
    status: Annotated[InstallationStatus, doc("Observed state.")] = InstallationStatus()


def is_enabled(gates: list[FeatureGate], feature: str, *, default: bool) -> bool:
    """Whether a feature is on; the last word on it counts."""
    modes = [gate.mode == "Enable" for gate in gates if gate.feature == feature]
    return modes[-1] if modes else default
