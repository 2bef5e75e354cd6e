"""What AddOnDeploymentConfigs say together about an add-on on a cluster. Pure.

Several configurations are merged: single values of a later one win, variables and resource
requirements are added. Image mirrors are those of the last configuration that has some, else those
that an annotation of the ManagedCluster names.
"""

import base64
import binascii
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from knfleet.api.addon.addondeploymentconfig import (
    AddOnDeploymentConfig,
    AddOnDeploymentConfigSpec,
    AddOnResources,
    ImageMirror,
    ProxyConfig,
)
from knfleet.api.addon.names import IMAGE_REGISTRIES
from knfleet.api.operator import NodePlacement


class SettingsError(ValueError):
    """A configuration that cannot be used; the message names the object and the field."""


class DeploymentSettings(Struct, frozen=True):
    """How the agent of an add-on is deployed on a cluster."""

    variables: dict[str, str] = {}
    node_placement: NodePlacement = NodePlacement()
    registries: tuple[ImageMirror, ...] = ()
    proxy: ProxyConfig = ProxyConfig()
    proxy_ca: str = ""
    """CA certificates of the proxy, as PEM."""
    install_namespace: str | None = None
    """Namespace that replaces those of the template; empty or absent keeps them."""
    resources: tuple[AddOnResources, ...] = ()


class AnnotatedRegistries(Struct, frozen=True):
    """Image mirrors in the annotation of a ManagedCluster."""

    registries: tuple[ImageMirror, ...] = ()


def settings_of(
    configs: Sequence[AddOnDeploymentConfig], cluster_annotations: dict[str, str]
) -> DeploymentSettings:
    """All that is configured for an add-on on a cluster; raises `SettingsError`."""
    specs = [each.spec for each in configs]
    mirrors = [tuple(spec.registries) for spec in specs if spec.registries]
    placements = [spec.node_placement for spec in specs if spec.node_placement is not None]
    proxies = [each for each in configs if each.spec.proxy_config != ProxyConfig()]
    return DeploymentSettings(
        variables={each.name: each.value for spec in specs for each in spec.customized_variables},
        node_placement=merged_placement(placements),
        registries=mirrors[-1] if mirrors else annotated_registries(cluster_annotations),
        proxy=proxies[-1].spec.proxy_config if proxies else ProxyConfig(),
        proxy_ca=proxy_ca(proxies[-1]) if proxies else "",
        install_namespace=install_namespace(specs),
        resources=tuple(each for spec in specs for each in spec.resource_requirements),
    )


def merged_placement(placements: Sequence[NodePlacement]) -> NodePlacement:
    """The last node selector and the last tolerations."""
    selectors = [each.node_selector for each in placements if each.node_selector]
    tolerations = [each.tolerations for each in placements if each.tolerations]
    return NodePlacement(
        node_selector=selectors[-1] if selectors else {},
        tolerations=tolerations[-1] if tolerations else [],
    )


def install_namespace(specs: Sequence[AddOnDeploymentConfigSpec]) -> str | None:
    """The namespace of the last configuration; None without any."""
    return specs[-1].agent_install_namespace if specs else None


def annotated_registries(annotations: dict[str, str]) -> tuple[ImageMirror, ...]:
    """Image mirrors that a ManagedCluster names for all its add-ons."""
    text = annotations.get(IMAGE_REGISTRIES, "")
    if not text:
        return ()
    try:
        return msgspec.json.decode(text, type=AnnotatedRegistries).registries
    except msgspec.DecodeError as error:
        raise SettingsError(
            f"annotation {IMAGE_REGISTRIES} of the ManagedCluster cannot be read: {error}; it is"
            ' JSON such as {"registries": [{"source": "quay.io/a", "mirror": "registry/a"}]}'
        ) from error


def proxy_ca(config: AddOnDeploymentConfig) -> str:
    """The CA certificates of a proxy, as PEM."""
    text = config.spec.proxy_config.ca_bundle
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise SettingsError(
            f"AddOnDeploymentConfig {config.metadata.key}: spec.proxyConfig.caBundle is not PEM in"
            " base64"
        ) from error
