"""Taking objects over from the Go operator, without touching what they say.

It writes whole objects by PUT, as the field manager `manifestival`, and so owns every field that
it ever set or that was set by default. Those fields are moved to us as if we had applied them: then
the first apply drops what is no longer wanted, and keeps the rest as it is, pod templates included.
"""

from knfleet.api.meta import Object
from knfleet.apply import well_known
from knfleet.apply.manifest_fields import items, part
from knfleet.apply.observe.metadata import ObservedObject, is_own
from knfleet.apply.plan.field_sets import FieldSet, set_of, union, without

ANNOTATIONS = ("f:metadata", "f:annotations")


def is_legacy(entry: Object) -> bool:
    """Whether an entry of managedFields is the Go operator's."""
    return (
        entry.get("manager") == well_known.LEGACY_MANAGER
        and entry.get("operation") == "Update"
        and not entry.get("subresource")
    )


def is_inherited(observed: ObservedObject) -> bool:
    """Whether the Go operator has written this object since we did."""
    return well_known.LEGACY_ANNOTATIONS[0] in observed.legacy or any(
        map(is_legacy, observed.managed)
    )


def moved(managed: list[Object], api_version: str, now: str) -> list[Object]:
    """Entries of managedFields in which all that was the Go operator's is ours."""
    mine: FieldSet = {}
    version = api_version
    for entry in managed:
        if is_own(entry) or is_legacy(entry):
            mine = union(mine, set_of(entry))
            version = entry.get("apiVersion", version)
    for name in well_known.LEGACY_ANNOTATIONS:
        mine = without(mine, (*ANNOTATIONS, f"f:{name}"))
    others = [entry for entry in managed if not is_own(entry) and not is_legacy(entry)]
    if not mine:
        return others
    own: Object = {
        "manager": well_known.MANAGER,
        "operation": "Apply",
        "apiVersion": version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": mine,
    }
    return [own, *others]


def takeover_patch(manifest: Object, now: str) -> list[Object]:
    """The JSON patch that makes an object ours, unless a client writes it meanwhile."""
    meta = manifest["metadata"]
    annotations = part(meta, "annotations")
    steps: list[Object] = [
        {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
        # The same version again: the server refuses with a conflict when it is not the latest.
        {"op": "replace", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
        {
            "op": "add",
            "path": "/metadata/managedFields",
            "value": moved(items(meta, "managedFields"), manifest["apiVersion"], now),
        },
    ]
    for name in well_known.LEGACY_ANNOTATIONS:
        if name in annotations:
            escaped = name.replace("~", "~0").replace("/", "~1")
            steps.append({"op": "remove", "path": f"/metadata/annotations/{escaped}"})
    return steps
