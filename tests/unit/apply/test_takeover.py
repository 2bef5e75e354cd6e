"""Moving what the Go operator owns to us."""

from knfleet.api.meta import Object
from knfleet.apply import well_known
from knfleet.apply.plan.takeover import moved, takeover_patch

NOW = "2026-01-01T00:00:00Z"
LAST_APPLIED = well_known.LEGACY_ANNOTATIONS[1]
THEIRS: Object = {
    "manager": "manifestival",
    "operation": "Update",
    "apiVersion": "v1",
    "fieldsV1": {
        "f:data": {".": {}, "f:a": {}},
        "f:metadata": {"f:annotations": {"f:manifestival": {}, f"f:{LAST_APPLIED}": {}}},
    },
}
OURS: Object = {
    "manager": well_known.MANAGER,
    "operation": "Apply",
    "apiVersion": "v1",
    "fieldsV1": {"f:data": {"f:b": {}}},
}
INJECTOR: Object = {"manager": "injector", "operation": "Update", "fieldsV1": {"f:data": {}}}
STATUS: Object = {
    "manager": "manifestival",
    "operation": "Update",
    "subresource": "status",
    "fieldsV1": {"f:status": {}},
}


def test_all_that_was_theirs_is_ours_and_others_keep_their_own() -> None:
    """What we owned before stays ours; a status is nobody's business."""
    own, *rest = moved([THEIRS, INJECTOR, OURS, STATUS], "v1", NOW)

    assert (own["manager"], own["operation"]) == (well_known.MANAGER, "Apply")
    assert own["fieldsV1"] == {"f:data": {".": {}, "f:a": {}, "f:b": {}}}
    assert rest == [INJECTOR, STATUS]


def test_the_patch_hits_only_the_state_that_was_seen() -> None:
    """And takes both annotations away, without touching anything else."""
    manifest: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "c",
            "uid": "u",
            "resourceVersion": "5",
            "annotations": {"manifestival": "new", LAST_APPLIED: "{}", "keep": "me"},
            "managedFields": [THEIRS],
        },
    }

    steps = {
        (step["op"], step["path"]): step.get("value") for step in takeover_patch(manifest, NOW)
    }

    assert steps["test", "/metadata/uid"] == "u"
    assert steps["replace", "/metadata/resourceVersion"] == "5"
    assert {path for op, path in steps if op == "remove"} == {
        "/metadata/annotations/manifestival",
        "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
    }
    assert all(path.startswith("/metadata/") for _, path in steps)
