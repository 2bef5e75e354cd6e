"""Clusters by add-ons, and how far rollouts are."""

import pytest

from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.meta import Object
from knfleet.view.addon.addon_matrix import addon_cell, addon_matrix
from tests.support import addons


def said(type_: str, status: str, reason: str = "Because") -> Object:
    """A condition."""
    return {"type": type_, "status": status, "reason": reason, "message": f"{type_} {status}"}


def addon(name: str, cluster: str, *conditions: Object) -> Object:
    """An add-on on a cluster, with what is reported of it."""
    return {**addons.addon(name, cluster), "status": {"conditions": list(conditions)}}


FINE = said("Available", "True")


@pytest.mark.parametrize(
    ("conditions", "stand", "reason"),
    [
        ([], "busy", ""),
        ([FINE], "ok", "Because"),
        ([said("Available", "Unknown", "Lost")], "unknown", "Lost"),
        ([said("Available", "False", "Down")], "bad", "Down"),
        ([FINE, said("Degraded", "True", "Sick")], "bad", "Sick"),
        ([FINE, said("Progressing", "False", "Failed")], "bad", "Failed"),
        ([FINE, said("Progressing", "True", "Progressing")], "busy", "Progressing"),
        ([FINE, said("Configured", "False", "Waits")], "busy", "Waits"),
        ([FINE, said("Progressing", "False", "Completed")], "ok", "Because"),
        ([{"type": 7}], "busy", ""),
    ],
)
def test_the_worst_condition_decides(conditions: list[Object], stand: str, reason: str):
    cell = addon_cell(addon("hello", "c1", *conditions))

    assert (cell.stand, cell.reason) == (stand, reason)


def test_an_add_on_that_is_being_removed_is_in_progress():
    leaving = addon("hello", "c1", FINE)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert addon_cell(leaving).stand == "busy"


def test_clusters_with_broken_add_ons_come_first_and_gaps_stay_gaps():
    fleet = [addons.thing(CLUSTER_ADDONS, name, {}) for name in ("hello", "unused")]
    found = addon_matrix(
        [
            addon("hello", "c1", FINE),
            addon("hello", "c2", said("Available", "False")),
            addon("other", "c1", FINE),
        ],
        fleet,
    )

    assert found.addons == ("hello", "other", "unused")
    assert [each.cluster for each in found.lines] == ["c2", "c1"]
    assert [each is None for each in found.lines[0].cells] == [False, True, True]


def test_rollouts_say_how_far_they_are_and_what_they_wait_for():
    progressions = [
        {"namespace": "default", "name": name, "conditions": [condition]}
        for name, condition in (
            ("done", said("Progressing", "False", "Completed")),
            ("busy", said("Progressing", "True", "Progressing")),
            ("wrong", said("Progressing", "False", "RolloutNotPossible")),
        )
    ]
    fleet = addons.thing(CLUSTER_ADDONS, "hello", {})
    fleet["status"] = {"installProgressions": [*progressions, {"name": "new"}]}

    rollouts = addon_matrix([], [fleet]).rollouts

    assert [(each.placement, each.stand) for each in rollouts] == [
        ("default/wrong", "bad"),
        ("/new", "busy"),
        ("default/busy", "busy"),
        ("default/done", "ok"),
    ]
    assert rollouts[2].message == "Progressing True"
