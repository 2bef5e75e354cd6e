"""A fleet as rows: what is broken comes first, and nothing is asked of the clusters."""

from datetime import UTC, datetime

import msgspec

from knfleet.api.cluster.managedcluster import SET_LABEL
from knfleet.api.knative.conditions import DEPLOYMENTS_AVAILABLE, INSTALL_SUCCEEDED, READY
from knfleet.api.knative.resources import EVENTINGS
from knfleet.api.meta import Object
from knfleet.apply.observe.readiness import ObjectReadiness, ReadinessState, SetReadiness
from knfleet.apply.refs import Ref
from knfleet.operator.kinds import PAUSED
from knfleet.operator.status.messages import waiting_text
from knfleet.view.fleet_model import FleetView, InstallProgress
from knfleet.view.fleet_reader import HubObjects, fleet_of
from tests.support.overview_samples import THEN, condition, install, managed, profile

NOW = datetime(2026, 11, 16, 4, tzinfo=UTC)
READY_NOW = condition(READY, "True")


def rows(**objects: list[Object]) -> FleetView:
    """The fleet of some hub objects."""
    return fleet_of(msgspec.convert(objects, HubObjects), NOW)


def test_broken_clusters_come_first_then_names() -> None:
    """Somebody who looks at the first lines sees what needs them."""
    fleet = rows(
        clusters=[managed("b"), managed("c", "Unknown"), managed("a"), managed("d", "False")]
    )

    assert [row.name for row in fleet.clusters] == ["c", "d", "a", "b"]
    assert fleet.when == "2026-11-16T04:00:00Z"


def test_a_cluster_row_tells_profiles_sets_and_knative() -> None:
    """All that the hub knows of a cluster is on its row."""
    fleet = rows(
        clusters=[managed("edge-1", labels={SET_LABEL: "edge"})],
        profiles=[profile("edge-1"), profile("edge-1", namespace="other")],
        servings=[install("s", READY_NOW, on="edge-1", version="1.22.1")],
        eventings=[install("e", READY_NOW, on="edge-1", version="1.23.0", resource=EVENTINGS)],
    )

    (row,) = fleet.clusters
    assert row.profiles == ("fleet/edge-1", "other/edge-1")
    assert row.sets == ("edge",)
    assert (row.serving, row.eventing, row.kubernetes) == ("1.22.1", "1.23.0", "v1.34.1")
    assert (row.accepted, row.joined, row.health, row.since) == (True, True, "True", THEN)
    assert {install.cluster for install in fleet.installs} == {"edge-1"}


def test_a_cluster_that_asks_to_join_is_told_how_to_take_it_in() -> None:
    """It is not broken; somebody must decide."""
    (row,) = rows(clusters=[managed("new", accepted=False)]).clusters

    assert (row.stand, row.health) == ("busy", "")
    assert "knfleet accept --clusters new" in row.message


def test_a_profile_of_another_manager_is_a_cluster_of_its_own() -> None:
    """Fleets that other programs manage are seen too."""
    fleet = rows(
        clusters=[managed("edge-1")],
        profiles=[profile("far", health="False", ours=False), profile("edge-1")],
        servings=[install("s", READY_NOW, on="far", version="1.22.1")],
    )

    assert [row.name for row in fleet.clusters] == ["fleet/far", "edge-1"]
    assert fleet.clusters[0].serving == "1.22.1"
    assert fleet.clusters[0].stand == "bad"


def test_an_install_row_tells_target_versions_and_why() -> None:
    """What Ready says is what the row says."""
    said = condition(READY, "False", "ClusterProfileNotFound", "no such profile")
    (row,) = rows(servings=[install("s", said, on="gone", version="1.22.1")]).installs

    assert (row.target, row.cluster, row.wanted, row.installed) == (
        "fleet/gone",
        "",
        "1.23",
        "1.22.1",
    )
    assert (row.ready, row.reason, row.message, row.since) == (
        "False",
        "ClusterProfileNotFound",
        "no such profile",
        THEN,
    )
    assert row.stand == "bad"
    assert row.ref == "KnativeServing/knative/s"


def test_the_counts_of_waiting_workloads_are_told() -> None:
    """The very sentence that the operator writes is read back."""
    refs = [Ref("apps", "Deployment", "knative-serving", name) for name in ("a", "b", "c")]
    states = [ReadinessState.READY, ReadinessState.PROGRESSING, ReadinessState.PROGRESSING]
    healths = [
        ObjectReadiness(ref, state, "", 0, 1) for ref, state in zip(refs, states, strict=True)
    ]
    text = waiting_text(SetReadiness(tuple(healths)), refs)
    said = [condition(READY, "False", "NotReady", text)]
    said.append(condition(DEPLOYMENTS_AVAILABLE, "False", "NotReady", text))

    (row,) = rows(servings=[install("s", *said)]).installs

    assert row.progress == InstallProgress("workloads ready", 1, 3, ("b", "c"))
    assert str(row.progress) == "workloads ready 1/3"
    assert (row.stand, row.target) == ("busy", "hub")


def test_a_deployment_that_timed_out_is_broken() -> None:
    """Waiting does not help it; the row must not look busy for ever."""
    problem = 'ReplicaSet "a-1" has timed out progressing.'
    text = f"Waiting on deployments: a; 0 of 1 ready: a 0/1 ({problem})"
    said = condition(READY, "False", "NotReady", text)

    (row,) = rows(servings=[install("s", said)]).installs

    assert row.stand == "bad"


def test_what_is_said_of_an_older_generation_is_not_the_last_word() -> None:
    """A spec that nobody looked at yet is on its way, whatever was said before."""
    manifest = install("s", READY_NOW)
    manifest["metadata"]["generation"] = 3

    (row,) = rows(servings=[manifest]).installs

    assert row.stand == "busy"


def test_removal_and_pause_are_told() -> None:
    """Both explain why nothing seems to happen."""
    manifest = install("s", condition(READY, "False", "Uninstalling", "removing Knative Serving"))
    manifest["status"]["conditions"].append(
        condition(INSTALL_SUCCEEDED, "False", "Uninstalling", "removing Knative Serving")
    )
    manifest["metadata"] |= {"deletionTimestamp": THEN, "annotations": {PAUSED: "true"}}

    (row,) = rows(servings=[manifest]).installs

    assert (row.deleting, row.paused, row.stand) == (True, True, "busy")
    assert row.progress == InstallProgress("removing Knative Serving")


def test_odd_objects_become_rows_that_say_little() -> None:
    """One object that cannot be read takes nothing from the others."""
    odd = install("odd")
    odd["spec"], odd["status"] = None, {"conditions": [{"type": 7}, "nothing"], "version": None}

    fleet = rows(servings=[odd, install("s", READY_NOW)])

    assert [(row.name, row.stand) for row in fleet.installs] == [("odd", "unknown"), ("s", "ok")]
    assert fleet.installs[0].message == "no operator has reconciled it yet"


def test_a_fleet_becomes_json_and_comes_back() -> None:
    """What programs read is the value itself."""
    fleet = rows(clusters=[managed("a")], servings=[install("s", READY_NOW)])

    assert msgspec.json.decode(msgspec.json.encode(fleet), type=FleetView) == fleet
