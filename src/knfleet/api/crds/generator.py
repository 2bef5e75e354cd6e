"""CustomResourceDefinitions, generated from the types that we read the objects with."""

from msgspec import Struct

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


def condition(type_: str, field: str) -> str:
    """The path of a field of a condition."""
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


def custom_resource_definition(definition: Definition) -> Object:
    """The CRD of one kind.

    It says nothing of conversion: the Knative Operator's CRDs name a webhook for it, which with a
    single version is never asked, and which server-side apply could not take out.
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
    version: Object = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": object_schema(definition)},
        "subresources": {"status": {}} if definition.has_status else {},
        "additionalPrinterColumns": [column.manifest() for column in definition.columns],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": names,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
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
