"""ManagedClusterAddOn: an add-on on one cluster, its configurations and state."""

from typing import Annotated, ClassVar, Literal

from msgspec import Struct, field

from knfleet.api.addon.addon_configuration import (
    AddOnConfig,
    AddOnCoordinates,
    AddOnMeta,
    ConfigSpecHash,
    ConfigType,
    map_by,
)
from knfleet.api.addon.names import (
    BETA,
    DEFAULT_NAMESPACE,
    GROUP,
    HOSTING_CLUSTER,
    KUBE_CLIENT_SIGNER,
    STORED,
)
from knfleet.api.cluster.managedcluster import NAME_PATTERN
from knfleet.api.conditions import BY_TYPE, StandardCondition
from knfleet.api.meta import Key, Resource
from knfleet.api.schema import ObjectMeta, doc

ADDONS = Resource(GROUP, STORED, "ManagedClusterAddOn", "managedclusteraddons")
"""The stored version: reading it needs no conversion, which the hub itself provides."""
ADDONS_BETA = Resource(GROUP, BETA, "ManagedClusterAddOn", "managedclusteraddons")

SIGNER_NAME = r"^([a-z0-9][a-z0-9-]*[a-z0-9]\.)+[a-z]+\/[a-z0-9-\.]+$"
Driver = Literal["csr", "token"]


def signer_name(text: str) -> object:
    """The description of a signer's name."""
    return doc(text, minLength=5, maxLength=571, pattern=SIGNER_NAME)


class ManagedClusterAddOnSpec(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """How an add-on is configured on one cluster."""

    install_namespace: Annotated[
        str,
        doc(
            "Deprecated: use agentInstallNamespace of an AddOnDeploymentConfig.",
            maxLength=63,
            pattern=NAME_PATTERN,
        ),
    ] = DEFAULT_NAMESPACE
    configs: Annotated[
        list[AddOnConfig],
        doc("Configurations that replace all others of the same type on this cluster."),
    ] = []


class ConfigReference(ConfigType, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A configuration that is in use, and how far it has come."""

    # Empty names are written all the same: the schema demands a name.
    name: Annotated[str, doc("Deprecated: see desiredConfig.", minLength=1)] = field(
        default_factory=str
    )
    namespace: Annotated[str, doc("Deprecated: see desiredConfig.")] = ""
    last_observed_generation: Annotated[int, doc("Generation that was last read.")] = 0
    desired_config: Annotated[
        ConfigSpecHash | None, doc("What the cluster is to have, as the rollout allows.")
    ] = None
    last_applied_config: Annotated[
        ConfigSpecHash | None, doc("What was last applied successfully.")
    ] = None

    @property
    def type(self) -> ConfigType:
        """Which kind of configuration it is."""
        return ConfigType(group=self.group, resource=self.resource)


class Subject(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The identity that an agent asks for."""

    user: Annotated[str, doc("User name.")] = ""
    groups: Annotated[list[str], doc("Groups.")] = []
    organization_units: Annotated[list[str], doc("Organizational units.")] = field(
        default=[], name="organizationUnit"
    )


class RegistrationConfig(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A certificate that an agent asks for."""

    signer_name: Annotated[str, signer_name("Who signs the certificate.")]
    subject: Annotated[Subject, doc("The identity in it.")] = Subject()

    @property
    def is_kube_client(self) -> bool:
        """Whether the agent uses it to reach the hub's API server."""
        return self.signer_name == KUBE_CLIENT_SIGNER


class ObjectReference(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An object that belongs to an add-on."""

    group: Annotated[str, doc("API group.")]
    resource: Annotated[str, doc("Plural name of the kind.")]
    name: Annotated[str, doc("Name of the object.")]
    namespace: Annotated[str, doc("Namespace of the object.")] = ""


class HealthCheck(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How the availability of an add-on is found out."""

    mode: Annotated[
        Literal["Lease", "Customized"],
        doc("By a Lease on the cluster, or by the add-on's manager."),
    ] = "Lease"


class AddOnStatusParts(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the status of both API versions has."""

    conditions: Annotated[
        list[StandardCondition], doc("Conditions, keyed by type.", **BY_TYPE)
    ] = []
    related_objects: Annotated[list[ObjectReference], doc("Objects that belong to it.")] = []
    add_on_meta: Annotated[AddOnMeta | None, doc("What it is, for people.")] = None
    health_check: Annotated[HealthCheck | None, doc("How its availability is found out.")] = None
    namespace: Annotated[str, doc("Namespace of its agent on the cluster.")] = ""
    supported_configs: Annotated[
        list[ConfigType],
        doc(
            "Types of configurations that may be set for this cluster.",
            **map_by("group", "resource"),
        ),
    ] = []


class ManagedClusterAddOnStatus(
    AddOnStatusParts, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """The state of an add-on on one cluster."""

    add_on_configuration: Annotated[
        AddOnCoordinates | None, doc("Deprecated: see configReferences.")
    ] = None
    config_references: Annotated[
        list[ConfigReference], doc("The configurations that are in use.")
    ] = []
    registrations: Annotated[
        list[RegistrationConfig], doc("Certificates that its agent asks for.")
    ] = []
    kube_client_driver: Annotated[
        Driver | None, doc("How its agent authenticates to the hub: by certificate or token.")
    ] = None


class ManagedClusterAddOn(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An add-on on one cluster."""

    resource: ClassVar[Resource] = ADDONS

    spec: Annotated[ManagedClusterAddOnSpec, doc("How it is configured.")]
    metadata: ObjectMeta = ObjectMeta()
    status: Annotated[ManagedClusterAddOnStatus, doc("Its state.")] = ManagedClusterAddOnStatus()

    @property
    def key(self) -> Key:
        """Cluster and name."""
        return self.metadata.key

    @property
    def name(self) -> str:
        """The name of the add-on."""
        return self.metadata.name

    @property
    def cluster(self) -> str:
        """The cluster that it is for."""
        return self.metadata.namespace

    @property
    def hosting_cluster(self) -> str:
        """The cluster that its agent runs on; empty when that is the managed one."""
        return self.metadata.annotations.get(HOSTING_CLUSTER, "")


class ManagedClusterAddOnSpecBeta(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """How an add-on is configured on one cluster."""

    configs: Annotated[
        list[AddOnConfig],
        doc("Configurations that replace all others of the same type on this cluster."),
    ] = []


class ConfigReferenceBeta(
    ConfigType, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """A configuration that is in use, and how far it has come."""

    last_observed_generation: Annotated[int, doc("Generation that was last read.")] = 0
    desired_config: Annotated[
        ConfigSpecHash | None, doc("What the cluster is to have, as the rollout allows.")
    ] = None
    last_applied_config: Annotated[
        ConfigSpecHash | None, doc("What was last applied successfully.")
    ] = None


class KubeClientSubject(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The identity of an agent on the hub."""

    user: Annotated[str, doc("User name.")] = ""
    groups: Annotated[list[str], doc("Groups.")] = []


class CustomSubject(
    KubeClientSubject, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """The identity in a certificate of a custom signer."""

    organization_units: Annotated[list[str], doc("Organizational units.")] = []


class KubeClientConfig(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Access to the hub's API server."""

    subject: Annotated[KubeClientSubject, doc("The identity of the agent.")] = KubeClientSubject()
    driver: Annotated[
        Driver | None, doc("How the agent authenticates: by certificate or token.")
    ] = None


class CustomSignerConfig(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A certificate of another signer."""

    signer_name: Annotated[str, signer_name("Who signs the certificate.")]
    subject: Annotated[CustomSubject, doc("The identity in it.")] = CustomSubject()


class RegistrationConfigBeta(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Credentials that an agent asks for."""

    type: Annotated[
        Literal["kubeClient", "customSigner"],
        doc("Access to the hub's API server, or a certificate of another signer."),
    ]
    kube_client: Annotated[KubeClientConfig | None, doc("With kubeClient.")] = None
    custom_signer: Annotated[CustomSignerConfig | None, doc("With customSigner.")] = None


class ManagedClusterAddOnStatusBeta(
    AddOnStatusParts, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """The state of an add-on on one cluster."""

    config_references: Annotated[
        list[ConfigReferenceBeta], doc("The configurations that are in use.")
    ] = []
    registrations: Annotated[
        list[RegistrationConfigBeta], doc("Credentials that its agent asks for.")
    ] = []


class ManagedClusterAddOnBeta(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """An add-on on one cluster."""

    resource: ClassVar[Resource] = ADDONS_BETA

    spec: Annotated[ManagedClusterAddOnSpecBeta, doc("How it is configured.")]
    metadata: ObjectMeta = ObjectMeta()
    status: Annotated[ManagedClusterAddOnStatusBeta, doc("Its state.")] = (
        ManagedClusterAddOnStatusBeta()
    )
