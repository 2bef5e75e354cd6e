"""What a hub spreads, in a short run, and violations that its judges must see."""

from pathlib import Path

import pytest

from knfleet.api.meta import Object
from tests.chaos.fleet.fleet_judge import (
    child_problems,
    decision_problems,
    history_problems,
    place_problems,
)
from tests.chaos.fleet.fleet_stage import FleetStage, WantedFleet
from tests.chaos.fleet.run import FleetRun
from tests.chaos.works.run import chaos


@pytest.mark.soak
@pytest.mark.xdist_group("chaos")
async def test_what_a_hub_spreads_survives_faults_of_all_ways(tmp_path: Path):
    """`make chaos-fleet` plays this for longer."""
    wrong, count = await chaos(7, 0.6, 3, tmp_path, kind=FleetStage, played=FleetRun)

    assert wrong == []
    assert count > 5


def test_decisions_must_be_as_many_as_can_be_and_have_the_label():
    wanted = WantedFleet({"a", "b"}, most=1)

    assert decision_problems(wanted, ["a"]) == []
    assert decision_problems(wanted, ["c"]) == ["c is selected"]
    assert len(decision_problems(wanted, ["a", "b"])) == 1
    assert len(decision_problems(WantedFleet({"a", "b"}), ["a", "a"])) == 1


def test_a_moment_without_any_decision_is_seen():
    assert history_problems([frozenset("a"), frozenset("b")]) == []
    assert history_problems([frozenset("a"), frozenset(), frozenset("b")]) != []


def test_what_is_spread_must_be_exactly_where_it_is_selected():
    metas: list[Object] = [{"namespace": "a"}, {"namespace": "b"}]

    assert place_problems("add-on", ["b", "a"], metas) == []
    assert place_problems("add-on", ["a"], metas) != []
    assert place_problems("add-on", ["a", "b", "c"], metas) != []
    assert place_problems("add-on", ["a", "b"], [*metas, {"namespace": "b"}]) != []


def test_knative_must_be_ready_at_its_version_where_it_is_selected():
    child: Object = {
        "metadata": {"generation": 2},
        "spec": {"version": "1.23.0"},
        "status": {
            "version": "1.23.0",
            "observedGeneration": 2,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }

    assert child_problems(["a"], {"a": child}, "1.23.0") == []
    assert child_problems(["a"], {"a": child}, "1.22.0") != []
    assert child_problems([], {"a": child}, "1.23.0") != []
    assert child_problems(["a"], {}, "1.23.0") != []
    late = {**child, "metadata": {"generation": 3}}
    assert child_problems(["a"], {"a": late}, "1.23.0") == ["Knative on a is not ready"]
