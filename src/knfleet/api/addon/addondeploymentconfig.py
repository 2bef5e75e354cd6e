"""AddOnDeploymentConfig: how agents of add-ons are deployed on clusters."""

from typing import Annotated, ClassVar

from msgspec import Struct, field

from knfleet.api.addon.addon_configuration import map_by
from knfleet.api.addon.names import BETA, DEFAULT_NAMESPACE, DEPLOYMENT_CONFIGS, GROUP, STORED
from knfleet.api.meta import Resource
from knfleet.api.operator import NodePlacement
from knfleet.api.pod import Quantity, ResourceClaim
from knfleet.api.schema import ObjectMeta, doc

CONFIGS = Resource(GROUP, STORED, "AddOnDeploymentConfig", DEPLOYMENT_CONFIGS)
CONFIGS_BETA = Resource(GROUP, BETA, "AddOnDeploymentConfig", DEPLOYMENT_CONFIGS)

CONTAINER_ID = r"^(deployments|daemonsets|statefulsets|replicasets|jobs|cronjobs|pods|\*):.+:.+$"


class CustomizedVariable(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A variable for templates and containers."""

    name: Annotated[str, doc("Name.", maxLength=255, pattern="^[a-zA-Z_][_a-zA-Z0-9]*$")]
    value: Annotated[str, doc("Value.", maxLength=1024)] = ""


class ImageMirror(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Another place for images."""

    mirror: Annotated[str, doc("Registry, or path in it, to use instead.")]
    source: Annotated[str, doc("Registry or path to replace; all registries when empty.")] = ""


class ProxyConfig(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A proxy between agents and the network."""

    http_proxy: Annotated[str, doc("URL of the proxy for HTTP.")] = field(
        default="", name="httpProxy"
    )
    https_proxy: Annotated[str, doc("URL of the proxy for HTTPS.")] = field(
        default="", name="httpsProxy"
    )
    ca_bundle: Annotated[str, doc("CA certificates of the proxy, as PEM.", format="byte")] = ""
    no_proxy: Annotated[str, doc("Host names and addresses to reach directly.")] = ""


class ResourceAmounts(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a container may use, and what it is guaranteed."""

    limits: Annotated[dict[str, Quantity], doc("The most that it may use.")] = {}
    requests: Annotated[dict[str, Quantity], doc("What it is guaranteed.")] = {}
    claims: Annotated[list[ResourceClaim], doc("Claims that it uses.", **map_by("name"))] = []


class AddOnResources(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Resources of some containers."""

    container_id: Annotated[
        str,
        doc(
            "Which containers: <resource>:<name>:<container>, each perhaps *.", pattern=CONTAINER_ID
        ),
    ] = field(name="containerID")
    resources: Annotated[ResourceAmounts, doc("What they may use.")]


class AddOnDeploymentConfigSpec(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """How agents of add-ons are deployed."""

    customized_variables: Annotated[
        list[CustomizedVariable], doc("Variables for templates.", **map_by("name"))
    ] = []
    node_placement: Annotated[NodePlacement | None, doc("On which nodes pods run.")] = None
    registries: Annotated[list[ImageMirror], doc("Other places for images.")] = []
    proxy_config: Annotated[ProxyConfig, doc("A proxy for agents.")] = ProxyConfig()
    agent_install_namespace: Annotated[
        str,
        doc(
            "Namespace of the agent on the cluster. Empty keeps the namespaces of the template.",
            maxLength=63,
            pattern="^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
        ),
    ] = DEFAULT_NAMESPACE
    resource_requirements: Annotated[
        list[AddOnResources], doc("Resources of containers.", **map_by("containerID"))
    ] = []


class AddOnDeploymentConfig(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How agents of add-ons are deployed."""

    resource: ClassVar[Resource] = CONFIGS

    spec: Annotated[AddOnDeploymentConfigSpec, doc("How they are deployed.")]
    metadata: ObjectMeta = ObjectMeta()
