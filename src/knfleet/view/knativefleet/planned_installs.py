"""The installations that a change of a fleet leads to, with the releases that they pass. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from knfleet.api.knative.resources import Component, Knative
from knfleet.api.meta import Object
from knfleet.api.schema import decode
from knfleet.apply.manifest_fields import part
from knfleet.hub.knativefleet.plan.child_state import Child
from knfleet.hub.knativefleet.plan.fleet_rollout import FleetRolloutView
from knfleet.hub.knativefleet.template.fleet_template import KINDS
from knfleet.hub.knativefleet.template.upgrade_steps import steps_between

UNUSED_FIELDS = ("clusterProfileRef", "workloads", "deployments", "high-availability", "services")
"""Fields of a spec that name no image, and differ between clusters."""
IMAGE_MARK = "@sha256:"


class PlannedInstall(Struct, frozen=True, kw_only=True):
    """What is to be installed on a cluster, and what is there."""

    cluster: str
    component: Component
    namespace: str
    installed: str
    """The version that is there; empty when there is none."""
    versions: tuple[str, ...]
    """The versions on the way, the last one included; empty: the newest."""
    wanted: Object
    """The spec."""
    present: Object
    """The spec that is there."""
    uid: str = ""
    """Of the custom resource, if there is one."""

    def at(self, version: str, spec: Object | None = None) -> Knative:
        """A custom resource that asks for a version."""
        return custom_resource(
            self.component, self.namespace, {**(spec or self.wanted), "version": version}
        )

    @property
    def before(self) -> Knative | None:
        """The custom resource that is there, with the version that is there."""
        return self.at(self.installed, self.present) if self.installed else None


def planned_installs(
    view: FleetRolloutView, clusters: Iterable[str], namespaces: Mapping[Component, str]
) -> Iterator[PlannedInstall]:
    """The installations of clusters that are changed."""
    for name in clusters:
        for component, rendered in view.desired(view.target, name).components.items():
            child = view.clusters[name].children.get(component)
            installed = "" if child is None else child.installed
            yield PlannedInstall(
                cluster=name,
                component=component,
                namespace=namespaces[component] if child is None else child.key.namespace,
                installed=installed,
                versions=steps_between(installed, rendered.version),
                wanted=rendered.spec,
                present=present_spec(child),
                uid="" if child is None else child.uid,
            )


def present_spec(child: Child | None) -> Object:
    """The spec of a child, as far as it is readable."""
    found: Object = {} if child is None or child.value is None else msgspec.to_builtins(child.value)
    return found


def custom_resource(component: Component, namespace: str, spec: Object) -> Knative:
    """A custom resource with what decides about images and CRDs in its spec."""
    type_ = KINDS[component]
    kept = {name: value for name, value in spec.items() if name not in UNUSED_FIELDS}
    kept["config"] = with_images(part(spec, "config"))
    manifest: Object = {
        "apiVersion": type_.resource.api_version,
        "kind": type_.resource.kind,
        "metadata": {"name": f"knative-{component}", "namespace": namespace},
        "spec": kept,
    }
    return decode(manifest, type_)


def with_images(config: Object) -> Object:
    """The ConfigMaps of a spec that name images."""
    return {
        name: data
        for name, data in config.items()
        if isinstance(data, dict)
        and any(IMAGE_MARK in str(value) for value in cast("dict[str, Any]", data).values())
    }
