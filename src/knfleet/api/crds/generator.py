"""CustomResourceDefinitions, generated from the types that we read the objects with."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from knfleet.api.crds.structural import RULES, Schema, type_schema
from knfleet.api.inventory import CONTROL_PLANE_HEALTHY, PROFILES, ClusterProfile
from knfleet.api.knative.resources import (
    EVENTINGS,
    SERVINGS,
    TARGET_RULES,
    KnativeEventing,
    KnativeServing,
)
from knfleet.api.meta import Object, Resource
from knfleet.api.operator import OPERATOR_NAMESPACE, WEBHOOK_SERVICE


class Column(Struct, frozen=True):
    """A column that `kubectl get` shows."""

    name: str
    path: str
    type: str = "string"
    description: str = ""

    def manifest(self) -> Object:
        """The column as a CRD writes it."""
        written = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return {**written, "description": self.description} if self.description else written


class Definition(Struct, frozen=True):
    """A kind that we define."""

    resource: Resource
    type: type[Struct]
    columns: tuple[Column, ...]
    rules: tuple[dict[str, str], ...] = ()
    """CEL rules for the object as a whole."""
    short_names: tuple[str, ...] = ()
    has_status: bool = True
    others: tuple["OtherVersion", ...] = ()
    """Versions that are served beside the stored one."""
    conversion_path: str = ""
    """Where the hub's webhook converts between versions; empty when all have the same shape."""


class OtherVersion(Struct, frozen=True):
    """A version of a kind that is served, and not stored."""

    resource: Resource
    type: type[Struct]
    columns: tuple[Column, ...]


def condition(type_: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{type_}")].{field}'


AGE = Column("Age", ".metadata.creationTimestamp", "date")

KNATIVE_COLUMNS = (
    Column("Version", ".status.version", description="The release that is fully installed."),
    Column("Ready", condition("Ready", "status")),
    Column("Reason", condition("Ready", "reason"), description="Why it is not ready."),
    Column(
        "Target Cluster",
        ".spec.clusterProfileRef.name",
        description="The ClusterProfile of the cluster that it is installed on.",
    ),
    AGE,
)

PROFILE_COLUMNS = (
    Column("Manager", ".spec.clusterManager.name"),
    Column("Healthy", condition(CONTROL_PLANE_HEALTHY, "status")),
    Column("Version", ".status.version.kubernetes"),
    AGE,
)

DEFINITIONS = (
    Definition(SERVINGS, KnativeServing, KNATIVE_COLUMNS, tuple(TARGET_RULES)),
    Definition(EVENTINGS, KnativeEventing, KNATIVE_COLUMNS, tuple(TARGET_RULES)),
    Definition(PROFILES, ClusterProfile, PROFILE_COLUMNS),
)


def definitions() -> list[Object]:
    """All CRDs of ours, ready to be applied."""
    return [custom_resource_definition(definition) for definition in DEFINITIONS]


def custom_resource_definition(
    definition: Definition, namespace: str = OPERATOR_NAMESPACE
) -> Object:
    """The CRD of one kind; `namespace` is the hub's, whose webhook converts between versions.

    Of a single version it says nothing of conversion: the Knative Operator's CRDs name a webhook
    for it, which is never asked, and which server-side apply could not take out.
    """
    resource = definition.resource
    names: Object = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
    }
    if definition.short_names:
        names["shortNames"] = list(definition.short_names)
    spec: Object = {
        "group": resource.group,
        "names": names,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "versions": [
            version(definition, is_stored=True),
            *(
                version(replace(definition, **other_fields(other)), is_stored=False)
                for other in definition.others
            ),
        ],
    }
    if definition.conversion_path:
        spec["conversion"] = conversion(definition.conversion_path, namespace)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": spec,
    }


def other_fields(other: OtherVersion) -> dict[str, Any]:
    """What another version has of its own."""
    return {"resource": other.resource, "type": other.type, "columns": other.columns}


def version(definition: Definition, *, is_stored: bool) -> Object:
    """One version of a kind."""
    return {
        "name": definition.resource.version,
        "served": True,
        "storage": is_stored,
        "schema": {"openAPIV3Schema": object_schema(definition)},
        "subresources": {"status": {}} if definition.has_status else {},
        "additionalPrinterColumns": [column.manifest() for column in definition.columns],
    }


def conversion(path: str, namespace: str) -> Object:
    """Conversion by the hub's webhook; the hub adds its CA while it runs."""
    service = {"namespace": namespace, "name": WEBHOOK_SERVICE, "path": path, "port": 443}
    return {
        "strategy": "Webhook",
        "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"service": service},
        },
    }


def object_schema(definition: Definition) -> Schema:
    """The schema of a whole object, whose metadata the API server itself describes.

    The name is there for rules whose refusals point to it.
    """
    schema = type_schema(definition.type)
    described = {name: part for name, part in schema["properties"].items() if name != "metadata"}
    schema["properties"] = {
        "apiVersion": {"type": "string", "description": "Group and version of the kind."},
        "kind": {"type": "string", "description": "The kind of the object."},
        "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
        **described,
    }
    if definition.rules:
        schema[RULES] = [dict(rule) for rule in definition.rules]
    return schema
