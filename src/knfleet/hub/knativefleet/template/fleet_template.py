"""What a revision of a fleet means for one cluster: template, overrides, variables. Pure."""

import hashlib
from collections.abc import Mapping
from typing import Any, Self, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from knfleet.api.fleet.component_templates import FleetOverride
from knfleet.api.knative.resources import (
    Component,
    EventingSpec,
    KnativeEventing,
    KnativeServing,
    ServingSpec,
)
from knfleet.api.meta import Key, Object
from knfleet.api.schema import DecodeError, decode
from knfleet.apply.manifest_fields import items, part
from knfleet.hub.knativefleet.template.variables import (
    MissingClusterVariable,
    ProfileFacts,
    replaced,
)

HASH_LENGTH = 10
COMPONENTS: tuple[Component, ...] = ("serving", "eventing")
KINDS: dict[Component, type[KnativeServing] | type[KnativeEventing]] = {
    "serving": KnativeServing,
    "eventing": KnativeEventing,
}
FIELDS: dict[Component, frozenset[str]] = {
    "serving": frozenset(each.encode_name for each in msgspec.structs.fields(ServingSpec)),
    "eventing": frozenset(each.encode_name for each in msgspec.structs.fields(EventingSpec)),
}
CONTENT_FIELDS = ("serving", "eventing", "overrides")
"""The fields of a spec that a revision consists of; all others say how it is rolled out."""

SpecValue = ServingSpec | EventingSpec


class InvalidTemplate(ValueError):
    """Template and overrides make no sense for a cluster; the message names the field."""


class RenderedChild(Struct, frozen=True):
    """The spec of one child."""

    spec: Object
    value: SpecValue
    """The same, typed, so that defaults make no difference."""
    hash: str

    @property
    def version(self) -> str:
        """The version that the template asks for, however many steps away it is."""
        return self.value.version

    def with_version(self, version: str) -> Self:
        """The same spec for a step on the way."""
        if version == self.version:
            return self
        value = replace(self.value, version=version)
        return replace(self, spec={**self.spec, "version": version}, value=value)


class DesiredChildren(Struct, frozen=True):
    """What a revision means for a cluster."""

    components: Mapping[Component, RenderedChild] = {}
    problem: str = ""
    """Why it has no meaning for this cluster, if that is so."""


def content_of(spec: Object) -> Object:
    """What of a fleet's spec makes a revision; as written, since nulls in patches count."""
    return {name: spec[name] for name in CONTENT_FIELDS if spec.get(name)}


def content_hash(value: Any) -> str:
    """A few characters that depend on all of a value."""
    written = msgspec.json.encode(value, order="deterministic")
    return hashlib.sha256(written).hexdigest()[:HASH_LENGTH]


def desired(content: Object, cluster: ProfileFacts, profile: Key) -> DesiredChildren:
    """What a revision means for the cluster of a profile."""
    found: dict[Component, RenderedChild] = {}
    try:
        for component in COMPONENTS:
            if content.get(component) is not None:
                found[component] = rendered(content, component, cluster, profile)
    except (MissingClusterVariable, InvalidTemplate) as error:
        return DesiredChildren(problem=str(error))
    return DesiredChildren(found)


def rendered(
    content: Object, component: Component, cluster: ProfileFacts, profile: Key
) -> RenderedChild:
    """The spec of a component's child; raises MissingClusterVariable, InvalidTemplate."""
    spec: Object = part(content, component, "spec")
    for override in items(content, "overrides"):
        patch = override.get(component)
        if isinstance(patch, dict) and is_for(override, cluster):
            fields = cast("Object", patch)
            if unknown := sorted(set(fields) - FIELDS[component]):
                raise InvalidTemplate(
                    f"override {override['name']}: {component} has no field {unknown[0]}"
                )
            if "clusterProfileRef" in fields:
                raise InvalidTemplate(
                    f"override {override['name']}: clusterProfileRef is set by the fleet"
                )
            spec = merged(spec, fields)
    spec = replaced(spec, cluster)
    spec = {**spec, "clusterProfileRef": {"name": profile.name, "namespace": profile.namespace}}
    return RenderedChild(spec, typed(component, spec), content_hash(spec))


def is_for(override: Object, cluster: ProfileFacts) -> bool:
    """Whether an override applies to a cluster."""
    choice = decode({"metadata": {}, **override}, FleetOverride).clusters
    return choice.has(cluster.name, dict(cluster.labels))


def typed(component: Component, spec: Object) -> SpecValue:
    """A spec as a value; raises InvalidTemplate."""
    try:
        return decode({"spec": spec}, KINDS[component]).spec
    except DecodeError as error:
        raise InvalidTemplate(f"{component}: {error.problem}") from error


def merged(target: Object, patch: Object) -> Object:
    """A manifest after a merge patch (RFC 7386)."""
    result = dict(target)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            old = result.get(name)
            base = cast("Object", old) if isinstance(old, dict) else {}
            result[name] = merged(base, cast("Object", value))
        else:
            result[name] = value
    return result
