"""Structural schemas, as CRDs have them, generated from types.

msgspec describes a type as JSON Schema; an API server wants a structural schema, which is a
stricter thing: no references, no null, every part with a type. `structural` makes the one from the
other, and refuses what it does not know rather than guess.
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Meta, Struct

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
EMPTY_DEFAULT = "x-default"
"""A default that the CRD carries although it is empty: keys of lists must have one."""


def shape(described: type[Struct]) -> Meta:
    """The schema of a type for a part that is read as a plain manifest.

    The API server checks the part by the type; we hand it on as it is, also with fields that the
    CRD of another version lets through and that the type does not have.
    """
    return Meta(extra_json_schema=type_schema(described))


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
        elif keyword in ("default", EMPTY_DEFAULT):
            # An empty default means the same as an absent field, unless it is asked for.
            if value or keyword == EMPTY_DEFAULT:
                result["default"] = value
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
