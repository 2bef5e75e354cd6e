"""Names of objects without the version of their API, which may change with a release."""

from msgspec import Struct

from knfleet.api.meta import Key, Object, Resource, api_group

BUILT_IN_GROUPS = frozenset(
    {
        "",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "apps",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
    }
)
"""Groups that every API server serves by itself; all others come from CRDs or other servers."""


class GroupKind(Struct, frozen=True, order=True):
    """A kind in its group, written `Deployment.apps`; kinds of the core group have no dot."""

    group: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @classmethod
    def parse(cls, text: str) -> "GroupKind":
        """Read what `str` wrote."""
        kind, _, group = text.partition(".")
        return cls(group, kind)

    @classmethod
    def of(cls, resource: Resource) -> "GroupKind":
        return cls(resource.group, resource.kind)

    @property
    def is_custom(self) -> bool:
        """Whether a CRD, or another server, must be there before such objects can be."""
        return self.group not in BUILT_IN_GROUPS


NAMESPACE = GroupKind("", "Namespace")
CRD = GroupKind("apiextensions.k8s.io", "CustomResourceDefinition")
JOB = GroupKind("batch", "Job")
SERVICE = GroupKind("", "Service")
CLUSTER_ROLE = GroupKind("rbac.authorization.k8s.io", "ClusterRole")
WEBHOOK_CONFIGURATIONS = frozenset(
    {
        GroupKind("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        GroupKind("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    }
)


class Ref(Struct, frozen=True, order=True):
    """One object of a cluster, whatever version it is read in."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(self.namespace, self.name)

    @property
    def group_kind(self) -> GroupKind:
        return GroupKind(self.group, self.kind)

    @classmethod
    def of(cls, manifest: Object) -> "Ref":
        """The object that a manifest is about."""
        group, _ = api_group(manifest["apiVersion"])
        meta = manifest["metadata"]
        return cls(group, manifest["kind"], meta.get("namespace") or "", meta["name"])
