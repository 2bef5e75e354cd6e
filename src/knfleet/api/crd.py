"""CustomResourceDefinitions, generated from the types that we read the objects with.

msgspec describes a type as JSON Schema; an API server wants a structural schema, which is a
stricter thing: no references, no null, every part with a type. `structural` makes the one from the
other, and refuses what it does not know rather than guess.
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from knfleet.api.inventory import CONTROL_PLANE_HEALTHY, PROFILES, ClusterProfile
from knfleet.api.knative import (
    EVENTINGS,
    SERVINGS,
    TARGET_RULES,
    KnativeEventing,
    KnativeServing,
)
from knfleet.api.meta import Object, Resource

Schema = dict[str, Any]

AS_THEY_ARE = {
    "description",
    "enum",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "pattern",
    "required",
    "type",
}
"""Keywords that mean the same in both kinds of schema."""

INT_OR_STRING = "x-kubernetes-int-or-string"
OPEN = "x-kubernetes-preserve-unknown-fields"
RULES = "x-kubernetes-validations"


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
    """The schema of a whole object, whose metadata the API server itself describes."""
    schema = type_schema(definition.type)
    described = {name: part for name, part in schema["properties"].items() if name != "metadata"}
    schema["properties"] = {
        "apiVersion": {"type": "string", "description": "Group and version of the kind."},
        "kind": {"type": "string", "description": "The kind of the object."},
        "metadata": {"type": "object"},
        **described,
    }
    if definition.rules:
        schema[RULES] = [dict(rule) for rule in definition.rules]
    return schema


def type_schema(described: type[Struct]) -> Schema:
    """The structural schema of a type."""
    (reference,), components = msgspec.json.schema_components([described])
    return structural(reference, components, described.__name__)


def structural(schema: Schema, components: Mapping[str, Any], where: str) -> Schema:
    """A structural schema from what msgspec says; `where` names the part in errors."""
    schema = without_null(resolved(schema, components), components)
    result: Schema = {}
    for keyword, value in schema.items():
        if keyword in AS_THEY_ARE or keyword.startswith("x-kubernetes-"):
            result[keyword] = value
        elif keyword == "properties":
            result[keyword] = {
                name: structural(part, components, f"{where}.{name}")
                for name, part in value.items()
            }
        elif keyword in ("items", "additionalProperties"):
            if isinstance(value, dict):
                part = cast("Schema", value)
                result[keyword] = structural(part, components, f"{where}[]")
        elif keyword == "default":
            # An empty default means the same as an absent field.
            if value:
                result[keyword] = value
        elif keyword == "anyOf" and schema.get(INT_OR_STRING):
            result[keyword] = value
        elif keyword not in ("title", "$defs"):
            raise TypeError(f"{where}: a CRD has no {keyword}")
    return finished(result, where)


def resolved(schema: Schema, components: Mapping[str, Any]) -> Schema:
    """The schema with its reference replaced by what it refers to; its own words win."""
    if "$ref" not in schema:
        return schema
    own = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
    return {**components[schema["$ref"].rpartition("/")[2]], **own}


def without_null(schema: Schema, components: Mapping[str, Any]) -> Schema:
    """The schema of an optional part without its null: absent fields are how a CRD says it."""
    choices = schema.get("anyOf")
    if not choices or schema.get(INT_OR_STRING):
        return schema
    real = [choice for choice in choices if choice != {"type": "null"}]
    if len(real) != 1:
        return schema
    own = {keyword: value for keyword, value in schema.items() if keyword != "anyOf"}
    return {**resolved(real[0], components), **own}


def finished(schema: Schema, where: str) -> Schema:
    """The schema with the type that a structural one must have, and numbers that are bounded."""
    if schema.get("required") == []:
        del schema["required"]
    if schema.get(INT_OR_STRING) or (schema.get(OPEN) and "type" not in schema):
        return schema
    if "enum" in schema and all(isinstance(value, str) for value in schema["enum"]):
        schema.setdefault("type", "string")
    if "type" not in schema:
        raise TypeError(f"{where}: a part of a CRD needs a type")
    if schema["type"] == "object" and not {"properties", "additionalProperties", OPEN} & set(
        schema
    ):
        raise TypeError(f"{where}: say whether the object is open, or what it has")
    if schema["type"] == "integer":
        schema.setdefault("format", "int64")
    return schema
