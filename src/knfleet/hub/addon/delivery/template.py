"""The objects of a template add-on for one cluster. Pure.

`{{NAME}}` in a string of a manifest is replaced by a variable. What stands between braces and is no
name, such as a template of another program, stays as it is.
"""

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast

from msgspec import Struct

from knfleet.api.addon.addontemplate import AddOnTemplate
from knfleet.api.addon.names import DEFAULT_NAMESPACE
from knfleet.api.core import BUILT_IN as BUILT_IN_KINDS
from knfleet.api.meta import Object
from knfleet.hub.addon.delivery import decorators
from knfleet.hub.addon.delivery.deployment_settings import DeploymentSettings

VARIABLE = re.compile(r"\{\{([a-zA-Z_][_a-zA-Z0-9]*)\}\}")
PRESENT_NAMESPACES = {
    *("default", "kube-node-lease", "kube-public", "kube-system"),
    DEFAULT_NAMESPACE,
}
"""Namespaces that every cluster of the fleet has."""
HUB_KUBECONFIG = "/managed/hub-kubeconfig/kubeconfig"


class TemplateError(ValueError):
    """A template that makes no objects; the message names template, manifest and remedy."""


class RenderedAddOn(Struct, frozen=True):
    """The objects of an add-on for one cluster."""

    manifests: tuple[Object, ...]
    namespace: str
    """Where its agent runs."""
    missing_namespaces: tuple[str, ...] = ()
    """Namespaces that the objects need, and that are neither among them nor always there."""


def render(
    template: AddOnTemplate, settings: DeploymentSettings, cluster: str, addon: str
) -> RenderedAddOn:
    """The objects of an add-on for a cluster; raises `TemplateError`."""
    known = variables(template, settings, cluster)
    replaced = [
        substituted(manifest, known, f"AddOnTemplate {template.metadata.name}: {title(manifest)}")
        for manifest in template.spec.agent_spec.workload.manifests
    ]
    namespace = settings.install_namespace or workload_namespace(replaced) or DEFAULT_NAMESPACE
    known["INSTALL_NAMESPACE"] = namespace
    replaced = [
        substituted(manifest, {"INSTALL_NAMESPACE": namespace}, "") for manifest in replaced
    ]
    injected = decorators.injected_objects(addon, settings, namespace)
    environment = {
        name: known[name]
        for name in ("HUB_KUBECONFIG", "CLUSTER_NAME", "INSTALL_NAMESPACE")
        if name in known
    }
    made = [
        decorators.decorated(manifest, template, settings, environment)
        for manifest in [*replaced, *injected]
    ]
    if settings.install_namespace:
        made = [decorators.moved(manifest, settings.install_namespace) for manifest in made]
    made = [with_namespace(manifest, namespace) for manifest in made]
    return RenderedAddOn(tuple(made), namespace, missing_namespaces(made, namespace))


def variables(
    template: AddOnTemplate, settings: DeploymentSettings, cluster: str
) -> dict[str, str]:
    """The variables that are known before the namespace is: those of users, then built-in ones."""
    own = {"HUB_KUBECONFIG": HUB_KUBECONFIG} if template.spec.registration else {}
    known = {**own, **settings.variables, "CLUSTER_NAME": cluster}
    known["INSTALL_NAMESPACE"] = "{{INSTALL_NAMESPACE}}"
    return known


def substituted(manifest: Object, known: Mapping[str, str], where: str) -> Object:
    """A manifest with its variables replaced; an unknown one is an error if `where` says where."""

    def value_of(match: re.Match[str]) -> str:
        name = match[1]
        if name not in known and where:
            raise TemplateError(
                f"{where} uses {{{{{name}}}}}, which is not set; add it to customizedVariables of"
                " an AddOnDeploymentConfig, or remove it from the template"
            )
        return known.get(name, match[0])

    def replaced(value: Any) -> Any:
        if isinstance(value, str):
            return VARIABLE.sub(value_of, value)
        if isinstance(value, dict):
            fields = cast("Object", value)
            return {VARIABLE.sub(value_of, name): replaced(each) for name, each in fields.items()}
        if isinstance(value, list):
            return [replaced(each) for each in cast("list[Any]", value)]
        return value

    return cast("Object", replaced(deepcopy(manifest)))


def title(manifest: Object) -> str:
    """A manifest as messages name it."""
    name = decorators.part(manifest, "metadata").get("name", "without a name")
    return f"{manifest.get('kind', 'manifest')} {name}"


def workload_namespace(manifests: list[Object]) -> str:
    """The namespace of the first Deployment, else of the first DaemonSet."""
    for kind in ("Deployment", "DaemonSet"):
        for manifest in manifests:
            if decorators.is_workload(manifest) and manifest["kind"] == kind:
                namespace = decorators.part(manifest, "metadata").get("namespace", "")
                if namespace and not VARIABLE.search(namespace):
                    return str(namespace)
    return ""


def with_namespace(manifest: Object, namespace: str) -> Object:
    """A manifest of a kind that is known to need a namespace, with one."""
    kind = BUILT_IN_KINDS.get((manifest.get("apiVersion", ""), manifest.get("kind", "")))
    metadata = decorators.part(manifest, "metadata")
    if kind is None or not kind.namespaced or metadata.get("namespace"):
        return manifest
    return {**manifest, "metadata": {**metadata, "namespace": namespace}}


def missing_namespaces(manifests: list[Object], agent_namespace: str) -> tuple[str, ...]:
    """Namespaces that objects need, and that nobody makes."""
    metadata = [(each.get("kind"), decorators.part(each, "metadata")) for each in manifests]
    made = {meta.get("name") for kind, meta in metadata if kind == "Namespace"}
    used = {str(meta["namespace"]) for _, meta in metadata if meta.get("namespace")}
    return tuple(sorted({*used, agent_namespace} - made - PRESENT_NAMESPACES))
