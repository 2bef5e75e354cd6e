"""Parts of manifests, which may be missing or null at any depth."""

from typing import Any, cast

from knfleet.api.meta import Object


def part(value: Object, *names: str) -> Object:
    """What stands at a path in an object; empty when there is nothing."""
    node: Any = value
    for name in names:
        node = cast("Object", node).get(name)
        if not isinstance(node, dict):
            return {}
    return cast("Object", node)


def items(value: Object, *names: str) -> list[Object]:
    """The list that stands at a path in an object; empty when there is none."""
    found = part(value, *names[:-1]).get(names[-1])
    return cast("list[Object]", found) if isinstance(found, list) else []
