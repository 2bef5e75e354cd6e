"""What is installed where, how people change it, and when it is as they asked for."""

import copy

from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Object
from tests.chaos.converging import unready
from tests.chaos.resources import FIRST, changed, upgraded, wanted

SPEC: Object = {**FIRST[SERVINGS], "clusterProfileRef": {"name": "spoke1", "namespace": "fleet"}}


def test_four_spokes_have_serving_eventing_and_one_has_both() -> None:
    found = wanted(["spoke1", "spoke2", "spoke3", "spoke4"])

    assert [(each.resource, each.spoke) for each in found] == [
        (SERVINGS, "spoke1"),
        (EVENTINGS, "spoke2"),
        (SERVINGS, "spoke3"),
        (EVENTINGS, "spoke3"),
        (EVENTINGS, "spoke4"),
    ]


def test_a_change_follows_from_its_draw_and_moves_nothing_to_another_cluster() -> None:
    before = copy.deepcopy(SPEC)
    for draw in range(50):
        after = changed(SERVINGS, SPEC, draw)

        assert after == changed(SERVINGS, SPEC, draw)
        assert after != SPEC
        assert after["clusterProfileRef"] == SPEC["clusterProfileRef"]
    assert before == SPEC


def test_an_upgrade_goes_up_and_down() -> None:
    assert upgraded(SPEC)["version"] == "1.22"
    assert upgraded(upgraded(SPEC)) == SPEC


def resource(generation: int = 2, version: str = "1.23.0", ready: str = "True") -> Object:
    """A custom resource with a status."""
    return {
        "metadata": {"generation": 2},
        "spec": {"version": "1.23"},
        "status": {
            "observedGeneration": generation,
            "version": version,
            "conditions": [{"type": "Ready", "status": ready, "message": "why not"}],
        },
    }


def test_only_what_is_ready_at_the_wanted_version_and_generation_is() -> None:
    assert unready(resource()) == ""
    assert unready(resource(generation=1)) == "it speaks of generation 1"
    assert unready(resource(version="1.22.1")) == "it has version 1.22.1"
    assert unready(resource(ready="False")) == "Ready: why not"
    going = resource()
    going["metadata"]["deletionTimestamp"] = "2026-11-16T08:00:00Z"
    assert unready(going) == "it is being deleted"
