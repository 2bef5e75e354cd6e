"""Variables in templates: `{{cluster.name}}`, `{{cluster.labels.KEY}}`, `…properties.KEY`. Pure."""

import re
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

VARIABLE = re.compile(r"\{\{\s*cluster\.(name|labels\.[^\s{}]+|properties\.[^\s{}]+)\s*\}\}")


class MissingClusterVariable(ValueError):
    """A cluster does not have what a template asks for."""


class ProfileFacts(Struct, frozen=True):
    """What templates can ask for, from the ClusterProfile."""

    name: str
    labels: Mapping[str, str] = {}
    properties: Mapping[str, str] = {}

    def value(self, variable: str) -> str:
        """The value of `name`, `labels.KEY` or `properties.KEY`; raises MissingClusterVariable."""
        if variable == "name":
            return self.name
        kind, _, key = variable.partition(".")
        found = (self.labels if kind == "labels" else self.properties).get(key)
        if found is None:
            kinds = {"labels": "label", "properties": "property"}
            raise MissingClusterVariable(
                f"the template needs {{{{cluster.{variable}}}}}, and the ClusterProfile has no"
                f" {kinds[kind]} {key}"
            )
        return found


def replaced(value: Any, facts: ProfileFacts) -> Any:
    """A value with its variables replaced, in texts and names of fields alike.

    What a value contains is not looked at again. Raises MissingClusterVariable.
    """
    if isinstance(value, str):
        return VARIABLE.sub(lambda match: facts.value(match[1]), value)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {replaced(name, facts): replaced(each, facts) for name, each in fields.items()}
    if isinstance(value, list):
        return [replaced(each, facts) for each in cast("list[Any]", value)]
    return value
