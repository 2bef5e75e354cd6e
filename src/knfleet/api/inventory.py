"""ClusterProfile and PlacementDecision of the Cluster Inventory API, for consumers of any kind.

A ClusterProfile is one cluster of a fleet, and how to reach it. A PlacementDecision has clusters
that a scheduler chose; it is not the one of Open Cluster Management, whose decisions it repeats.
"""

from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct, field

from knfleet.api.knative.conditions import Status
from knfleet.api.meta import Key, Resource
from knfleet.api.schema import ObjectMeta, doc

GROUP = "multicluster.x-k8s.io"
VERSION = "v1alpha1"
PROFILES = Resource(GROUP, VERSION, "ClusterProfile", "clusterprofiles")
PUBLISHED_DECISIONS = Resource(GROUP, VERSION, "PlacementDecision", "placementdecisions")

DECISION_KEY = "multicluster.x-k8s.io/decision-key"
"""Label that all parts of one decision share."""
DECISION_INDEX = "multicluster.x-k8s.io/decision-index"
"""Label with the position of a part, from 0."""
PLACEMENT_KEY = "multicluster.x-k8s.io/placement-key"
"""Label that names what asked for the decision."""

MANAGER_LABEL = "x-k8s.io/cluster-manager"
"""Names the cluster manager on every profile."""

CONTROL_PLANE_HEALTHY = "ControlPlaneHealthy"
JOINED = "Joined"

IMMUTABLE = [{"rule": "self == oldSelf", "message": "ClusterManager is immutable"}]
BY_NAME = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
BY_TYPE = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}

Anything = Annotated[Any, Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})]


class ProfileManager(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Who publishes a profile."""

    name: Annotated[str, doc("Name of the cluster manager.", maxLength=253)]


class ProfileSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a cluster is called, and who manages it."""

    cluster_manager: Annotated[
        ProfileManager,
        doc(
            "The cluster manager that owns this profile. It cannot be changed.",
            **{"x-kubernetes-validations": IMMUTABLE},
        ),
    ]
    display_name: Annotated[str, doc("Name of the cluster for people.")] = ""


class ProfileCondition(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One aspect of a cluster's state."""

    type: Annotated[str, doc("Type of the condition.", maxLength=316)]
    status: Annotated[Status, doc("True, False or Unknown.")]
    observed_generation: Annotated[
        int, doc("Generation that the condition was set for.", format="int64", minimum=0)
    ] = 0
    last_transition_time: Annotated[
        str, doc("When the status last changed.", format="date-time")
    ] = ""
    reason: Annotated[str, doc("Reason in one word, CamelCase.", maxLength=1024)] = ""
    message: Annotated[str, doc("Message for users.", maxLength=32768)] = ""


class Property(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A fact about a cluster."""

    name: Annotated[str, doc("Name of the property.", minLength=1, maxLength=253)]
    value: Annotated[str, doc("Value of the property.", minLength=1, maxLength=1024)]
    last_observed_time: Annotated[
        str, doc("When the property was last observed.", format="date-time")
    ] = ""


class Extension(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something more about a cluster, for the program that is named."""

    name: Annotated[str, doc("Name of the extension.")]
    extension: Annotated[Anything, doc("Content of the extension.")]


class ProfileCluster(Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """How to reach an API server; the names are those of a kubeconfig."""

    server: Annotated[str, doc("Address of the API server, as https://host:port.")]
    certificate_authority: Annotated[str, doc("File with the authorities to trust.")] = ""
    certificate_authority_data: Annotated[
        str, doc("The authorities to trust: PEM in base64.", format="byte")
    ] = ""
    certificate_authority_data_camel: Annotated[
        str, doc("Another spelling of certificate-authority-data, which wins.", format="byte")
    ] = field(default="", name="certificateAuthorityData")
    tls_server_name: Annotated[str, doc("Name that the server's certificate must have.")] = ""
    insecure_skip_tls_verify: Annotated[
        bool, doc("Do not check the server's certificate. This makes the connection insecure.")
    ] = False
    proxy_url: Annotated[str, doc("Proxy through which the server is reached.")] = ""
    disable_compression: Annotated[bool, doc("Ask for answers without compression.")] = False
    extensions: Annotated[list[Extension], doc("Extensions, for clients that know them.")] = []

    @property
    def authorities(self) -> str:
        """The authorities to trust, PEM in base64, in whichever spelling they are given."""
        return self.certificate_authority_data or self.certificate_authority_data_camel

    def extension(self, name: str) -> Any:
        """What is said for a reader; None when nothing is."""
        return next((given.extension for given in self.extensions if given.name == name), None)


class AccessProvider(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A way to get access to a cluster."""

    name: Annotated[str, doc("Name of the provider, as the consumer's configuration has it.")]
    cluster: Annotated[ProfileCluster | None, doc("How to reach the cluster.")] = None


class ProfileVersion(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a cluster runs."""

    kubernetes: Annotated[str, doc("Version of Kubernetes.")] = ""


class ProfileStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the cluster manager knows about a cluster."""

    conditions: Annotated[list[ProfileCondition], doc("Conditions, keyed by type.", **BY_TYPE)] = []
    version: Annotated[ProfileVersion, doc("Version of the cluster.")] = ProfileVersion()
    properties: Annotated[list[Property], doc("Facts about the cluster.", **BY_NAME)] = []
    access_providers: Annotated[list[AccessProvider], doc("Ways to get access.", **BY_NAME)] = []
    credential_providers: Annotated[
        list[AccessProvider], doc("Deprecated: the older name of accessProviders.", **BY_NAME)
    ] = []


class ClusterProfile(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One cluster of a fleet."""

    resource: ClassVar[Resource] = PROFILES

    spec: Annotated[ProfileSpec, doc("Name and manager of the cluster.")]
    metadata: ObjectMeta = ObjectMeta()
    status: Annotated[ProfileStatus, doc("State reported by the cluster manager.")] = (
        ProfileStatus()
    )

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.metadata.key

    @property
    def healthy(self) -> bool:
        """Whether the cluster manager says that the control plane is healthy."""
        return any(
            condition.type == CONTROL_PLANE_HEALTHY and condition.status == "True"
            for condition in self.status.conditions
        )

    def access_provider(self, name: str) -> AccessProvider | None:
        """The provider of a name; the newer list wins over the older."""
        lists = [*self.status.access_providers, *self.status.credential_providers]
        return next((provider for provider in lists if provider.name == name), None)


class ProfileReference(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A ClusterProfile."""

    name: Annotated[str, doc("Name of the ClusterProfile.")]
    namespace: Annotated[str, doc("Namespace of the ClusterProfile; empty: the same.")] = ""


class PublishedCluster(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A chosen cluster."""

    cluster_profile_ref: Annotated[ProfileReference, doc("The ClusterProfile of the cluster.")]
    reason: Annotated[str, doc("Why the cluster was chosen.")] = ""


class PublishedDecision(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Clusters that a scheduler chose."""

    resource: ClassVar[Resource] = PUBLISHED_DECISIONS

    decisions: Annotated[list[PublishedCluster], doc("The chosen clusters.", maxItems=100)]
    metadata: ObjectMeta = ObjectMeta()
    scheduler_name: Annotated[str, doc("Name of the scheduler that chose them.")] = ""
