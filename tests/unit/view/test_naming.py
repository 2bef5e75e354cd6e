"""What people may write for a name, and what they are told when it is not enough."""

from datetime import UTC, datetime

import pytest

from knfleet.api.knative.conditions import READY
from knfleet.api.knative.resources import EVENTINGS
from knfleet.view.fleet_model import FleetView
from knfleet.view.fleet_reader import HubObjects, fleet_of
from knfleet.view.name_lookup import NotNamed, find, find_install, full_name
from tests.support.overview_samples import condition, install, managed, profile

OK = condition(READY, "True")


@pytest.fixture
def rows() -> FleetView:
    """Two installations of one name, a third, and three clusters."""
    return fleet_of(
        HubObjects(
            clusters=[managed("edge-1"), managed("main")],
            profiles=[profile("edge-1"), profile("far", ours=False)],
            servings=[install("main", OK), install("only", OK)],
            eventings=[install("main", OK, resource=EVENTINGS)],
        ),
        datetime(2026, 1, 1, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("only", "KnativeServing/knative/only"),
        ("knative/only", "KnativeServing/knative/only"),
        ("KnativeServing/only", "KnativeServing/knative/only"),
        ("serving/knative/only", "KnativeServing/knative/only"),
        ("eventing/main", "KnativeEventing/knative/main"),
        ("KnativeEventing/knative/main", "KnativeEventing/knative/main"),
        ("edge-1", "ManagedCluster/edge-1"),
        ("cluster/main", "ManagedCluster/main"),
        ("ManagedCluster/main", "ManagedCluster/main"),
        ("fleet/far", "ClusterProfile/fleet/far"),
        ("ClusterProfile/fleet/far", "ClusterProfile/fleet/far"),
        ("clusterprofile/fleet/edge-1", "ManagedCluster/edge-1"),
    ],
)
def test_a_name_leads_to_one_row(rows: FleetView, name: str, meant: str) -> None:
    """All spellings that kubectl knows lead there, and so does the full name."""
    row = find(rows, name)

    assert full_name(row) == meant
    assert find(rows, full_name(row)) == row


def test_an_ambiguous_name_lists_the_candidates(rows: FleetView) -> None:
    """Each candidate is written so that it can be copied."""
    with pytest.raises(NotNamed) as caught:
        find(rows, "main")

    assert str(caught.value) == (
        "main can mean 3 things; write one of KnativeEventing/knative/main,"
        " KnativeServing/knative/main, ManagedCluster/main"
    )


def test_a_mistyped_name_gets_the_nearest_one(rows: FleetView) -> None:
    with pytest.raises(NotNamed, match="nothing on this hub is called onyl; did you mean only"):
        find(rows, "onyl")


def test_only_installations_are_looked_for_where_only_they_make_sense(rows: FleetView) -> None:
    with pytest.raises(NotNamed, match="edge-1"):
        find_install(rows, "edge-1")
