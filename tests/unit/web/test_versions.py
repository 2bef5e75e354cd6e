"""The version matrix and the way up."""

from datetime import UTC, datetime

from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.view.fleet_model import FleetView
from knfleet.view.fleet_reader import HubObjects, fleet_of
from knfleet.web.pages.version_matrix import known_in, matrix, next_steps, path
from tests.support import dashboards

KNOWN = ["1.23.1", "1.23.0", "1.22.2", "1.21.5", "1.20.0"]


def fleet() -> FleetView:
    """Two clusters with both components, and Serving on the hub."""
    objects = dashboards.fleet(2)
    local = dashboards.installation(SERVINGS, "own", "knative-serving", version="1.21.5")
    by_kind = {
        kind: [manifest for each, manifest in objects if each == kind]
        for kind in (CLUSTERS, PROFILES, SERVINGS, EVENTINGS)
    }
    found = HubObjects(
        by_kind[CLUSTERS], by_kind[PROFILES], [*by_kind[SERVINGS], local], by_kind[EVENTINGS]
    )
    return fleet_of(found, datetime.now(UTC))


def test_next_steps_are_newer_and_at_most_one_minor_away() -> None:
    """As the operator itself decides it."""
    assert next_steps("1.21.0", KNOWN, "KnativeServing") == ["1.22.2", "1.21.5"]
    assert next_steps("1.23.1", KNOWN, "KnativeServing") == []
    assert next_steps("devel", KNOWN, "KnativeServing") == []


def test_the_way_to_the_newest_visits_every_minor_version() -> None:
    """The newest patch of each."""
    assert path("1.20.0", KNOWN) == ["1.21.5", "1.22.2", "1.23.1"]
    assert path("1.23.0", KNOWN) == ["1.23.1"]
    assert path("1.22.1", ["1.23.1", "1.22.2"]) == ["1.23.1"]


def test_the_matrix_has_a_line_for_each_cluster_and_the_hub_first() -> None:
    """With what each installation may become."""
    lines = matrix(fleet(), {"KnativeServing": KNOWN, "KnativeEventing": []})

    assert [each.name for each in lines] == ["hub", "cluster-000", "cluster-001"]
    assert lines[0].serving[0].path == ("1.22.2", "1.23.1")
    assert lines[1].serving[0].steps == ("1.23.1", "1.23.0", "1.22.2")
    assert lines[1].eventing[0].steps == ()
    assert lines[0].eventing == ()


def test_without_release_files_the_fleet_tells_which_releases_there_are() -> None:
    """Only whole versions count: 1.23 names none."""
    assert known_in(fleet())["KnativeServing"] == ["1.22.1", "1.21.5"]
