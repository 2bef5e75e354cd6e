"""What an object loses when it is taken over from the Knative Operator.

Its fields become ours first, and those that we do not apply go (see `apply.takeover`). A dry run
cannot do both steps, so the second is foreseen here: fields that the old owner alone holds are
taken out, and the server is asked what it would make of the rest.
"""

from typing import Any, cast

import msgspec

from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items, part
from knfleet.apply.plan.field_sets import FieldSet, set_of, union
from knfleet.apply.plan.takeover import is_legacy
from knfleet.kube import yaml


def left_alone(manifest: Object) -> FieldSet:
    """The fields that only the Knative Operator holds."""
    legacy: FieldSet = {}
    rest: FieldSet = {}
    for entry in items(manifest, "metadata", "managedFields"):
        if is_legacy(entry):
            legacy = union(legacy, set_of(entry))
        else:
            rest = union(rest, set_of(entry))
    return subtracted(legacy, rest)


def subtracted(fields: FieldSet, others: FieldSet) -> FieldSet:
    """The fields of one set that are not in another; a thing of which others hold a part stays."""
    found: FieldSet = {}
    for name, child in fields.items():
        if name not in others:
            found[name] = child
        elif child and others[name] and (below := subtracted(child, others[name])):
            below.pop(".", None)
            if below:
                found[name] = below
    return found


def without_inherited(manifest: Object) -> Object:
    """An object less all that only the Knative Operator holds."""
    return cast("Object", stripped(manifest, left_alone(manifest)))


def stripped(value: Any, fields: FieldSet) -> Any:
    """A value less the fields of a set."""
    if yaml.is_mapping(value):
        return stripped_map(value, fields)
    return stripped_list(value, fields) if yaml.is_list(value) else value


def stripped_map(value: Object, fields: FieldSet) -> Object:
    """A map less the fields of a set; maps that were held as such, and are empty then, go too."""
    result = dict(value)
    for step, child in fields.items():
        name = step[2:]
        if not step.startswith("f:") or name not in result:
            continue
        if not child:
            del result[name]
            continue
        result[name] = stripped(result[name], child)
        if "." in child and result[name] in ({}, []):
            del result[name]
    return result


def stripped_list(value: list[Any], fields: FieldSet) -> list[Any]:
    """A list less the items of a set, which are known by keys or by values."""
    result: list[Any] = []
    gone = {step for step in fields if step.startswith("v:")}
    keyed = {
        step: (msgspec.json.decode(step[2:], type=dict[str, Any]), child)
        for step, child in fields.items()
        if step.startswith("k:")
    }
    for item in value:
        if f"v:{msgspec.json.encode(item).decode()}" in gone:
            continue
        found = next((child for key, child in keyed.values() if fits(item, key)), None)
        if found is None:
            result.append(item)
        elif "." not in found and found:
            result.append(stripped(item, found))
    return result


def fits(item: Any, key: Object) -> bool:
    return yaml.is_mapping(item) and part({"item": item}, "item").items() >= key.items()
