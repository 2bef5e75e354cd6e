"""How works and their manifests are shown, by what agents report."""

from typing import Any

import pytest

from knfleet.api.meta import Object
from knfleet.view.work.work_rows import WorkRow, work_order, work_row
from tests.support.hub_works import config_map, work


def said(type_: str, status: str, reason: str = "R", **more: Any) -> Object:
    """A condition."""
    return {"type": type_, "status": status, "reason": reason, "message": "M", **more}


def reported(*conditions: Object, manifests: list[Object] | None = None, **meta: Any) -> Object:
    """A work with two ConfigMaps, and what an agent reported."""
    made = work("w", config_map("a"), config_map("b"))
    made["metadata"] |= {"namespace": "c1", "generation": 2, **meta}
    status: Object = {"conditions": list(conditions)}
    made["status"] = status
    if manifests is not None:
        status["resourceStatus"] = {"manifests": manifests}
    return made


def manifest(ordinal: int, name: str, *conditions: Object, **more: Any) -> Object:
    """What an agent reports on a manifest."""
    meta = {"ordinal": ordinal, "name": name, "kind": "ConfigMap", "namespace": "default"}
    return {"resourceMeta": meta, "conditions": list(conditions), **more}


APPLIED, AVAILABLE = said("Applied", "True"), said("Available", "True")
STATES: dict[str, tuple[Object, str, str]] = {
    "nothing reported": (reported(), "busy", "the agent has not reported yet"),
    "an older spec": (
        reported(said("Applied", "True", observedGeneration=1)),
        "busy",
        "the agent has not reported on the newest change yet",
    ),
    "applied": (reported(APPLIED), "busy", "M"),
    "available": (reported(APPLIED, AVAILABLE), "ok", "M"),
    "not applied": (reported(said("Applied", "False"), AVAILABLE), "bad", "M"),
    "not available": (reported(APPLIED, said("Available", "False")), "bad", "M"),
    "unknown": (reported(APPLIED, said("Available", "Unknown")), "unknown", "M"),
    "degraded": (reported(APPLIED, AVAILABLE, said("Degraded", "True")), "bad", "M"),
    "in progress": (reported(APPLIED, AVAILABLE, said("Progressing", "True")), "busy", "M"),
    "complete": (reported(APPLIED, AVAILABLE, said("Progressing", "False")), "ok", "M"),
    "being deleted": (reported(APPLIED, deletionTimestamp="t"), "busy", "it is being deleted"),
    "held up": (reported(said("Deleting", "True"), deletionTimestamp="t"), "busy", "M"),
}


@pytest.mark.parametrize(("manifest", "stand", "message"), STATES.values(), ids=STATES)
def test_a_work_stands_as_its_conditions_say_of_its_newest_generation(
    manifest: Object, stand: str, message: str
):
    row = work_row(manifest)

    assert (row.stand, row.message) == (stand, message)
    assert row.ref == "c1/w"


def test_manifests_have_their_own_state_and_feedback():
    values = [
        {"name": "Ready", "fieldValue": {"type": "Boolean", "boolean": False}},
        {"name": "Count", "fieldValue": {"type": "Integer", "integer": 0}},
        {"name": "Phase", "fieldValue": {"type": "String", "string": "Up"}},
        {"name": "Raw", "fieldValue": {"type": "JsonRaw", "jsonRaw": "[1]"}},
    ]
    failed = said("Applied", "False", "AppliedManifestFailed")
    row = work_row(
        reported(
            said("Applied", "False"),
            manifests=[
                manifest(0, "a", APPLIED, AVAILABLE, statusFeedback={"values": values}),
                manifest(1, "b", failed),
            ],
        )
    )
    good, bad = row.manifests

    assert (good.stand, good.title) == ("ok", "ConfigMap default/a")
    assert [f"{each.name}={each.value}" for each in good.feedback] == [
        "Ready=false",
        "Count=0",
        "Phase=Up",
        "Raw=[1]",
    ]
    assert (bad.stand, bad.reason, bad.message) == ("bad", "AppliedManifestFailed", "M")
    assert row.failing == (bad,)


@pytest.mark.parametrize(
    ("conditions", "stand"),
    [
        ([], "busy"),
        ([APPLIED], "ok"),
        ([APPLIED, said("Available", "False")], "bad"),
        ([APPLIED, said("Available", "Unknown")], "unknown"),
        ([APPLIED, AVAILABLE, said("StatusFeedbackSynced", "False")], "unknown"),
        ([APPLIED, AVAILABLE, said("Degraded", "True")], "bad"),
    ],
)
def test_a_manifest_stands_as_its_conditions_say(conditions: list[Object], stand: str):
    row = work_row(reported(manifests=[manifest(0, "a", *conditions)]))

    assert row.manifests[0].stand == stand


def test_what_was_reported_on_another_object_does_not_count():
    row = work_row(reported(manifests=[manifest(0, "other", APPLIED)]))

    assert [each.message for each in row.manifests] == ["not reported yet"] * 2


def test_odd_objects_become_rows_that_say_little():
    odd = {"metadata": {"name": "w"}, "status": {"conditions": [5, {"type": "Applied"}]}}

    row = work_row(odd)

    assert row == WorkRow(
        cluster="",
        name="w",
        stand="busy",
        message="the agent has not reported on the newest change yet",
    )


def test_broken_works_come_first():
    rows = [work_row(STATES[name][0]) for name in ("available", "not applied", "applied")]

    assert [row.stand for row in sorted(rows, key=work_order)] == ["bad", "busy", "ok"]
