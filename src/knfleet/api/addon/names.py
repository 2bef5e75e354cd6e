"""Names of the add-on API: labels, annotations, finalizers, conditions, reasons, identities."""

GROUP = "addon.open-cluster-management.io"
STORED = "v1alpha1"
BETA = "v1beta1"

DEFAULT_NAMESPACE = "open-cluster-management-agent-addon"
"""Where agents of add-ons are installed when nothing else is configured."""

ADDON_LABEL = "open-cluster-management.io/addon-name"
ADDON_NAMESPACE_LABEL = "open-cluster-management.io/addon-namespace"
"""Label of a work of a hosted add-on: the cluster whose add-on it is."""
TEMPLATE_LABEL = "open-cluster-management.io/addon-template-name"
FEATURE_LABEL = "feature.open-cluster-management.io/addon-"
"""Prefix of the labels of a ManagedCluster that say how its add-ons are."""
TOKEN_NAME_LABEL = f"{GROUP}/name"
TOKEN_LABEL = f"{GROUP}/token-infrastructure"

LIFECYCLE = f"{GROUP}/lifecycle"
"""Annotation of a ClusterManagementAddOn: who installs it."""
LIFECYCLE_SELF = "self"
INSTALL_NAMESPACE = f"{GROUP}/v1alpha1-install-namespace"
"""Annotation of a v1beta1 ManagedClusterAddOn: what v1alpha1 has as spec.installNamespace."""
CONVERSION = "knfleet.dev/addon-conversion"
"""Annotation: values of the other API version that this one has no field for."""
INSTALLED_BY = "knfleet.dev/installed-by"
"""Annotation of a ManagedClusterAddOn: `install-strategy` when the hub made it."""
INSTALL_STRATEGY = "install-strategy"
HOSTING_CLUSTER = f"{GROUP}/hosting-cluster-name"
HOSTED_LOCATION = f"{GROUP}/hosted-manifest-location"
PRE_DELETE = f"{GROUP}/addon-pre-delete"
"""Annotation of a hook, and finalizer of an add-on that has hooks."""
PRE_DELETE_LABEL = "open-cluster-management.io/addon-pre-delete"
HOSTING_PRE_DELETE = f"{GROUP}/hosting-addon-pre-delete"
HOSTING_CLEANUP = f"{GROUP}/hosting-manifests-cleanup"
DELETION_ORPHAN = f"{GROUP}/deletion-orphan"
PERMISSION_CLEANUP = "knfleet.dev/addon-permission-cleanup"
"""Finalizer of an add-on with rights outside its cluster's namespace."""
IMAGE_REGISTRIES = "open-cluster-management.io/image-registries"
"""Annotation of a ManagedCluster: image mirrors for all its add-ons, as JSON."""

AVAILABLE = "Available"
DEGRADED = "Degraded"
PROGRESSING = "Progressing"
CONFIGURED = "Configured"
MANIFEST_APPLIED = "ManifestApplied"
HOSTING_MANIFEST_APPLIED = "HostingManifestApplied"
REGISTRATION_APPLIED = "RegistrationApplied"
HOOK_COMPLETED = "HookManifestCompleted"
HOSTING_VALIDITY = "HostingClusterValidity"
TOKEN_READY = "TokenInfrastructureReady"  # noqa: S105  a type of condition
TOKEN_REFRESHED = "TokenRefreshed"  # noqa: S105  a type of condition
CERTIFICATE_ROTATED = "ClusterCertificateRotated"

KUBE_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
NO_DEFAULT = "__reserved_no_default__"
"""Name of a v1beta1 default configuration that stands for none."""

DEPLOYMENT_CONFIGS = "addondeploymentconfigs"
TEMPLATES = "addontemplates"


def addon_group(cluster: str, addon: str) -> str:
    """The group of all agents of an add-on on one cluster."""
    return f"system:open-cluster-management:cluster:{cluster}:addon:{addon}"


def addon_groups(cluster: str, addon: str) -> list[str]:
    """The groups of an add-on's agent."""
    return [addon_group(cluster, addon), f"system:open-cluster-management:addon:{addon}"]


def addon_user(cluster: str, addon: str, agent: str) -> str:
    """The user that an add-on's agent is."""
    return f"{addon_group(cluster, addon)}:agent:{agent}"


def agent_name(addon: str) -> str:
    """The name of a template add-on's agent, and of its ServiceAccount on the hub."""
    return f"{addon}-agent"


def kubeconfig_secret(addon: str) -> str:
    """The Secret on the cluster with which an add-on's agent reaches the hub."""
    return f"{addon}-hub-kubeconfig"


def certificate_secret(addon: str, signer: str) -> str:
    """The Secret on the cluster with the certificate of a custom signer."""
    return f"{addon}-{signer.replace('/', '-')}-client-cert"
