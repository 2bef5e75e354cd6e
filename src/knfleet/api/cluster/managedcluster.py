"""ManagedCluster and ClusterClaim: a cluster that asked to join, and what it tells of itself.

The API is that of Open Cluster Management, and so are all names that agents and their tools know.
"""

from collections.abc import Collection
from typing import Annotated, ClassVar, Literal

from msgspec import Struct, field

from knfleet.api.conditions import BY_TYPE, StandardCondition
from knfleet.api.meta import Resource
from knfleet.api.schema import Int32, IntOrString, ObjectMeta, doc

GROUP = "cluster.open-cluster-management.io"

CLUSTERS = Resource(GROUP, "v1", "ManagedCluster", "managedclusters", namespaced=False)
CLAIMS = Resource(GROUP, "v1alpha1", "ClusterClaim", "clusterclaims", namespaced=False)

PROPERTIES = Resource(
    "about.k8s.io", "v1alpha1", "ClusterProperty", "clusterproperties", namespaced=False
)
"""Facts about a cluster by an API of Kubernetes' own, for those who have installed it."""

REGISTER_GROUP = "register.open-cluster-management.io"
"""Group of the virtual resources by which permissions of registration are named."""

CLUSTER_NAME_LABEL = "open-cluster-management.io/cluster-name"
SET_LABEL = "cluster.open-cluster-management.io/clusterset"
CLEANUP_PRIORITY = "open-cluster-management.io/cleanup-priority"
AUTO_ACCEPTED = "open-cluster-management.io/automatically-accepted-on"
SKIP_CLOCK_CHECK = "registration.open-cluster-management.io/skip-clock-sync-check"
AGENT_ANNOTATIONS = "agent.open-cluster-management.io/"
"""Prefix of the annotations that an agent may give its cluster."""

AGENT_LABELS = (AGENT_ANNOTATIONS, "feature.open-cluster-management.io/")
"""Prefixes of the labels that an agent may give its cluster, unless others are chosen."""

HUB_ANNOTATIONS = (AUTO_ACCEPTED, SKIP_CLOCK_CHECK)
"""Annotations of a cluster that the hub acts on, beside those of our own."""
OUR_ANNOTATIONS = "knfleet.dev/"
"""Prefix of our own annotations; only who may accept a cluster sets them."""

AGENT_NAME = "knfleet.dev/agent-name"
"""Annotation of a cluster: the agent that last got a certificate; the hub writes it."""
ALLOW_REREGISTRATION = "knfleet.dev/allow-reregistration"
"""Annotation of a cluster: `"true"` lets another agent take the place of one that is alive."""
FORCE_DETACH = "knfleet.dev/force-detach"
"""Annotation of a cluster that is being deleted: how long it must have been unreachable, as `10m`,
before what it can no longer clean up is given up. `0s` does not wait."""
DELETE_NAMESPACE = "knfleet.dev/delete-namespace"
"""Annotation of a cluster: `"true"` has its namespace deleted with it, if the hub made that."""
CREATED_FOR = "knfleet.dev/created-for"
"""Annotation of a namespace that the hub made: the uid of the cluster that it was made for."""

API_FINALIZER = "cluster.open-cluster-management.io/api-resource-cleanup"
CLEANUP_FINALIZER = "cluster.open-cluster-management.io/resource-cleanup"

ACCEPTED = "HubAcceptedManagedCluster"
JOINED = "ManagedClusterJoined"
AVAILABLE = "ManagedClusterConditionAvailable"
CLOCK_SYNCED = "ManagedClusterConditionClockSynced"
CERTIFICATE_ROTATED = "ClusterCertificateRotated"
DELETING = "Deleting"
NAMESPACE_AVAILABLE = "NamespaceAvailable"
"""Of a namespace that a set wants on the cluster."""

UNREACHABLE = "cluster.open-cluster-management.io/unreachable"
UNAVAILABLE = "cluster.open-cluster-management.io/unavailable"

LEASE_NAME = "managed-cluster-lease"
LEASE_SECONDS = 60
GRACE_FACTOR = 5
"""A cluster whose Lease is older than so many durations counts as unreachable."""

GROUP_PREFIX = "system:open-cluster-management:"
MANAGED_CLUSTERS = "system:open-cluster-management:managed-clusters"
"""The group that all agents are in."""
MAPPED_PREFIX = "open-cluster-management:"
"""Prefix of a cluster's second group, for identities that a cloud maps."""

NAME_PATTERN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
TAINT_KEY = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)

ALL_AGENTS = "managed-clusters"
"""The name that a cluster must never have: its own group would be that of all agents."""
RESERVED_NAMES = (
    ALL_AGENTS,
    # Parts of the names of roles, users and groups, of ours and of add-ons.
    *("registration", "work", "access", "bootstrap", "cluster", "addon"),
    # Secrets, of which there is one named after the cluster beside each of its profiles.
    *("bootstrap-hub-kubeconfig", "hub-kubeconfig-secret", "external-managed-kubeconfig"),
    *("signer-secret", "work-driver-config"),
    # Namespaces of Knative.
    *("knative-serving", "knative-eventing", "knative-operator"),
)
"""Names that a new cluster cannot have, because something else is called so."""
RESERVED_PREFIX = "knfleet-"

CLUSTER_RULES: list[dict[str, str]] = [
    {
        "rule": f"self.metadata.name.size() <= 63 && self.metadata.name.matches('{NAME_PATTERN}')",
        "fieldPath": ".metadata.name",
        "message": "the name must be one for a namespace: at most 63 of a-z, 0-9 and -",
    },
    {
        "rule": (
            "!self.metadata.name.startsWith('kube-') && self.metadata.name != 'default'"
            " && self.metadata.name != 'open-cluster-management'"
            " && !self.metadata.name.startsWith('open-cluster-management-')"
        ),
        "fieldPath": ".metadata.name",
        "message": "the name is that of a system namespace; choose another",
    },
]
HTTPS_ONLY = [
    {"rule": "self.startsWith('https://')", "message": "the URL must begin with https://"}
]

Effect = Literal["NoSelect", "PreferNoSelect", "NoSelectIfNew"]


class ClientConfig(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An address of the cluster's API server."""

    url: Annotated[
        str,
        doc("Address, as https://host:port.", **{"x-kubernetes-validations": HTTPS_ONLY}),
    ]
    ca_bundle: Annotated[str, doc("The authorities to trust: PEM in base64.", format="byte")] = (
        field(default="", name="caBundle")
    )


class Taint(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Keeps placements away from the cluster."""

    key: Annotated[str, doc("Name of the taint.", maxLength=316, pattern=TAINT_KEY)]
    effect: Annotated[Effect, doc("Which placements it keeps away.")]
    value: Annotated[str, doc("Value of the taint.", maxLength=1024)] = ""
    time_added: Annotated[
        str, doc("When it was added; the hub fills it in.", format="date-time")
    ] = ""


class ManagedClusterSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the hub wants of a cluster."""

    hub_accepts_client: Annotated[
        bool,
        doc(
            "Whether the hub accepts the cluster. Setting it requires the permission to update"
            " managedclusters/accept of register.open-cluster-management.io."
        ),
    ] = False
    managed_cluster_client_configs: Annotated[
        list[ClientConfig], doc("Where the cluster's API server is reached from the hub.")
    ] = []
    lease_duration_seconds: Annotated[
        Int32, doc("Interval of the agent's heartbeats, in seconds.", minimum=0)
    ] = LEASE_SECONDS
    taints: Annotated[list[Taint], doc("Taints, which placements must tolerate.")] = []


class ManagedClusterVersion(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a cluster runs."""

    kubernetes: Annotated[str, doc("Version of Kubernetes.")] = ""


class Claim(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A fact that a cluster tells of itself."""

    name: Annotated[str, doc("Name of the claim.", minLength=1, maxLength=253)]
    value: Annotated[str, doc("Value of the claim.", minLength=1, maxLength=1024)]


class MemberNamespace(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A namespace that a set wants on this cluster, and how it stands there."""

    name: Annotated[str, doc("Name of the namespace.", maxLength=63, pattern=NAME_PATTERN)]
    cluster_set: Annotated[str, doc("Name of the ManagedClusterSet that lists it.")]
    conditions: Annotated[
        list[StandardCondition], doc("Conditions, keyed by type; written by the agent.")
    ] = []


class ManagedClusterStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What hub and agent know about a cluster."""

    conditions: Annotated[
        list[StandardCondition], doc("Conditions, keyed by type.", **BY_TYPE)
    ] = []
    capacity: Annotated[dict[str, IntOrString], doc("Capacity of all nodes, by resource.")] = {}
    allocatable: Annotated[
        dict[str, IntOrString], doc("Allocatable resources of all schedulable nodes, by resource.")
    ] = {}
    version: Annotated[ManagedClusterVersion, doc("Version of the cluster.")] = (
        ManagedClusterVersion()
    )
    cluster_claims: Annotated[list[Claim], doc("Claims reported by the agent.")] = []
    managed_namespaces: Annotated[
        list[MemberNamespace],
        doc(
            "Namespaces that its sets list.",
            **{
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["clusterSet", "name"],
            },
        ),
    ] = []


class ManagedCluster(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A cluster that asked to join the hub."""

    resource: ClassVar[Resource] = CLUSTERS

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[ManagedClusterSpec, doc("Desired state of the cluster.")] = ManagedClusterSpec()
    status: Annotated[ManagedClusterStatus, doc("State observed by hub and agent.")] = (
        ManagedClusterStatus()
    )

    @property
    def name(self) -> str:
        """The cluster's name, which is also that of its namespace on the hub."""
        return self.metadata.name

    @property
    def lease_seconds(self) -> int:
        """Interval of the agent's heartbeats, in seconds."""
        return self.spec.lease_duration_seconds or LEASE_SECONDS

    @property
    def grace_seconds(self) -> int:
        """How long the agent may be silent."""
        return GRACE_FACTOR * self.lease_seconds


class ClaimSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Value of the claim."""

    value: Annotated[str, doc("Value of the claim.", minLength=1, maxLength=1024)] = ""


class ClusterClaim(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A fact about the cluster that it is on; the agent tells it to the hub."""

    resource: ClassVar[Resource] = CLAIMS

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[ClaimSpec, doc("Value of the claim.")] = ClaimSpec()


def cluster_groups(cluster: str) -> tuple[str, str]:
    """The groups that a cluster's agents are in: by certificate, and as a cloud maps them."""
    return f"{GROUP_PREFIX}{cluster}", f"{MAPPED_PREFIX}{cluster}"


def is_mapped(user: str, groups: Collection[str], cluster: str) -> bool:
    """Whether a user is the identity of a cluster that a cloud maps, by name and by group."""
    return bool(cluster) and user == cluster and cluster_groups(cluster)[1] in groups


def agent_user(cluster: str, agent: str) -> str:
    """The user name of an agent, which is the common name of its certificate."""
    return f"{GROUP_PREFIX}{cluster}:{agent}"
