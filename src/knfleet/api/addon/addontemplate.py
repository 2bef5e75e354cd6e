"""AddOnTemplate: an add-on's agent as manifests with variables, and its access to the hub."""

from typing import Annotated, ClassVar, Literal

from msgspec import Struct, field

from knfleet.api.addon.managedclusteraddon import Subject, signer_name
from knfleet.api.addon.names import BETA, GROUP, STORED, TEMPLATES
from knfleet.api.meta import Resource
from knfleet.api.schema import ObjectMeta, doc
from knfleet.api.work.manifestwork import ManifestWorkSpec

ADDON_TEMPLATES = Resource(GROUP, STORED, "AddOnTemplate", TEMPLATES, namespaced=False)
ADDON_TEMPLATES_BETA = Resource(GROUP, BETA, "AddOnTemplate", TEMPLATES, namespaced=False)


class CurrentClusterBinding(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A role in the namespace of the agent's cluster."""

    cluster_role_name: Annotated[str, doc("Name of the ClusterRole.")]


class RoleRef(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A role."""

    api_group: Annotated[str, doc("API group of the role.")]
    kind: Annotated[str, doc("Role or ClusterRole.")]
    name: Annotated[str, doc("Name of the role.")]


class SingleNamespaceBinding(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A role in one namespace for the agents of all clusters."""

    namespace: Annotated[str, doc("The namespace on the hub.")]
    role_ref: Annotated[RoleRef, doc("The role.", **{"x-kubernetes-map-type": "atomic"})]


class HubPermission(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A permission of the agent on the hub."""

    type: Annotated[
        Literal["CurrentCluster", "SingleNamespace"],
        doc("In the namespace of the agent's cluster, or in one for all clusters."),
    ]
    current_cluster: Annotated[CurrentClusterBinding | None, doc("With CurrentCluster.")] = None
    single_namespace: Annotated[SingleNamespaceBinding | None, doc("With SingleNamespace.")] = None


class KubeClientRegistration(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Access to the hub's API server."""

    hub_permissions: Annotated[list[HubPermission], doc("What the agent may do there.")] = []


class SigningCA(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The Secret with a CA's certificate and key."""

    name: Annotated[str, doc("Name of the Secret, with tls.crt and tls.key.")]
    namespace: Annotated[str, doc("Its namespace; that of the hub when empty.")] = ""


class CustomSignerRegistration(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """A certificate by a CA of the add-on."""

    signer_name: Annotated[str, signer_name("Name of the signer.")]
    signing_ca: Annotated[SigningCA, doc("The CA.")] = field(name="signingCA")
    subject: Annotated[Subject | None, doc("The identity in the certificate.")] = None


class Registration(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Credentials of the agent."""

    type: Annotated[
        Literal["KubeClient", "CustomSigner"],
        doc("Access to the hub's API server, or a certificate by a CA of the add-on."),
    ]
    kube_client: Annotated[KubeClientRegistration | None, doc("With KubeClient.")] = None
    custom_signer: Annotated[CustomSignerRegistration | None, doc("With CustomSigner.")] = None


class AddOnTemplateSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An add-on's agent."""

    addon_name: Annotated[str, doc("Name of the add-on.")]
    agent_spec: Annotated[
        ManifestWorkSpec, doc("A ManifestWork's spec with variables such as {{CLUSTER_NAME}}.")
    ]
    registration: Annotated[list[Registration], doc("Credentials of the agent.")] = []


class AddOnTemplate(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An add-on's agent as manifests with variables."""

    resource: ClassVar[Resource] = ADDON_TEMPLATES

    spec: Annotated[AddOnTemplateSpec, doc("The agent.")]
    metadata: ObjectMeta = ObjectMeta()
