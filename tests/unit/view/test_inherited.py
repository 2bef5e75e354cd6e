"""What an object loses when nobody holds it any more but the Knative Operator."""

from knfleet.api.meta import Object
from knfleet.view.plan.inherited import subtracted, without_inherited


def entry(manager: str, fields: Object) -> Object:
    """One entry of managedFields."""
    operation = "Apply" if manager == "knfleet" else "Update"
    return {"manager": manager, "operation": operation, "fieldsV1": fields}


def test_fields_that_others_hold_too_stay() -> None:
    """A thing of which others hold a part is not gone as a whole."""
    ours: Object = {"f:a": {}, "f:b": {"f:c": {}}, "f:d": {}}
    old: Object = {
        "f:a": {},
        "f:b": {".": {}, "f:c": {}, "f:e": {}},
        "f:d": {"f:x": {}},
        "f:g": {"f:h": {}},
    }

    assert subtracted(old, ours) == {"f:b": {"f:e": {}}, "f:g": {"f:h": {}}}


def test_keys_items_and_values_go() -> None:
    """In maps, in lists by key, and in lists that are sets; what nobody holds is the server's."""
    item = 'k:{"name":"old"}'
    legacy: Object = {
        "f:data": {".": {}, "f:gone": {}},
        "f:list": {item: {".": {}, "f:name": {}}, 'k:{"name":"kept"}': {"f:extra": {}}},
        "f:set": {'v:"one"': {}},
    }
    manifest: Object = {
        "metadata": {"managedFields": [entry("manifestival", legacy), entry("knfleet", {})]},
        "data": {"gone": "1"},
        "list": [{"name": "old", "unheld": 1}, {"name": "kept", "extra": 2, "unheld": 3}],
        "set": ["one", "two"],
        "unheld": 4,
    }

    rest = without_inherited(manifest)

    assert {name: value for name, value in rest.items() if name != "metadata"} == {
        "list": [{"name": "kept", "unheld": 3}],
        "set": ["two"],
        "unheld": 4,
    }
    assert manifest["data"] == {"gone": "1"}


def test_an_object_of_ours_loses_nothing() -> None:
    """There is no old owner."""
    manifest: Object = {
        "metadata": {"managedFields": [entry("knfleet", {"f:data": {"f:a": {}}})]},
        "data": {"a": "1"},
    }

    assert without_inherited(manifest) == manifest
