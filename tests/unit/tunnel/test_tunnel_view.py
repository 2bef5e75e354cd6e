"""How people and programs see in which way a cluster is reached."""

from datetime import UTC, datetime, timedelta

import pytest

from knfleet.api.cluster.managedcluster import ManagedCluster
from knfleet.api.cluster.tunnel import REACHED_BY, TUNNEL_ROUND_TRIP, TUNNEL_SINCE
from knfleet.api.inventory import ProfileStatus
from knfleet.api.meta import Key, Object
from knfleet.api.schema import decode
from knfleet.cli.knative.status_text import cluster_text, fleet_text
from knfleet.hub.profiles.cluster_profile import ClusterAccess, status
from knfleet.hub.profiles.tunnel_access import reach_properties
from knfleet.hub.tunnel.holder_lease import TunnelHolder, holder_lease
from knfleet.view.fleet_reader import HubObjects, fleet_of
from knfleet.workflows.cluster_reach import (
    ClusterReach,
    NoAccess,
    cluster_kubeconfig,
    reaches,
)
from knfleet.workflows.diagnosis import DiagnosisInput, access
from tests.support.overview_samples import managed, profile

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
HELD = TunnelHolder("10.0.0.1:8444", NOW - timedelta(minutes=5), 12)


def properties(found: Object) -> dict[str, str]:
    return {each["name"]: each["value"] for each in found["properties"]}


def test_a_profile_says_in_which_way_its_cluster_is_reached_and_since_when():
    reached = reach_properties(by_tunnel=True, held=HELD)

    assert reached == {
        REACHED_BY: "tunnel",
        TUNNEL_SINCE: "2026-03-01T11:55:00Z",
        TUNNEL_ROUND_TRIP: "12",
    }
    assert reach_properties(by_tunnel=False, held=None) == {REACHED_BY: "direct"}


@pytest.mark.parametrize("reach", [{}, {REACHED_BY: "direct"}])
def test_an_agent_cannot_claim_how_its_cluster_is_reached(reach: dict[str, str]):
    """Claims become properties of the profile, but not those that the hub gives."""
    claims = [
        {"name": REACHED_BY, "value": "tunnel"},
        {"name": TUNNEL_SINCE, "value": "2000-01-01T00:00:00Z"},
        {"name": "id.k8s.io", "value": "42"},
    ]
    manifest = {"metadata": {"name": "c1"}, "status": {"clusterClaims": claims}}

    made = status(
        Key("n", "c1"),
        decode(manifest, ManagedCluster),
        access=ClusterAccess("https://x"),
        observed=ProfileStatus(),
        now=NOW,
        reach=reach,
    )

    assert properties(made) == {"id.k8s.io": "42", **reach}


@pytest.mark.parametrize(
    ("held", "by_tunnel", "shown"),
    [
        (HELD, True, "through the tunnel, round trip 12 ms, open for 5m"),
        (None, True, "through the tunnel, which is not open"),
        (HELD, False, "directly"),
    ],
)
def test_status_shows_in_which_way_a_cluster_is_reached(
    held: TunnelHolder | None, by_tunnel: bool, shown: str
):
    reached = reach_properties(by_tunnel=by_tunnel, held=held)
    published = profile("edge")
    published["status"]["properties"] = [
        {"name": name, "value": value} for name, value in reached.items()
    ]
    fleet = fleet_of(HubObjects([managed("edge")], [published]), NOW)

    assert f"reached:     {shown}\n" in cluster_text(fleet.clusters[0], fleet, NOW)
    wide = fleet_text(fleet, NOW, wide=True)
    assert "REACHED" in wide
    assert ("tunnel" if by_tunnel else "direct") in wide


def test_status_says_nothing_of_the_way_on_a_hub_without_a_tunnel():
    fleet = fleet_of(HubObjects([managed("edge")], [profile("edge")]), NOW)

    assert "reached:" not in cluster_text(fleet.clusters[0], fleet, NOW)


def test_doctor_tells_an_open_tunnel_from_one_that_is_missing():
    reached = ClusterReach("edge", "tunnel", True, HELD.since, 12)
    is_open = access(DiagnosisInput("edge", tunnel=reached))
    missing = access(DiagnosisInput("edge", tunnel=ClusterReach("edge", "tunnel", is_open=False)))

    assert (is_open.grade, missing.grade) == ("ok", "bad")
    assert "open since 2026-03-01 11:55:00 UTC, round trip 12 ms" in is_open.seen
    assert "none open" in missing.seen
    assert "agent's log" in missing.remedy


def test_how_clusters_are_reached():
    spec = {"hubAcceptsClient": True}
    clusters = [
        decode({"metadata": {"name": name}, "spec": spec}, ManagedCluster) for name in "abc"
    ]
    provider = {
        "name": "secretreader",
        "cluster": {"server": "https://x", "proxy-url": "https://c"},
    }
    # A direct way may have a proxy, too.
    profiles: list[Object] = [
        {
            "metadata": {"name": "a"},
            "status": {
                "accessProviders": [provider],
                "properties": [{"name": REACHED_BY, "value": "tunnel"}],
            },
        },
        {
            "metadata": {"name": "b"},
            "status": {"accessProviders": [provider]},
        },
    ]

    found = reaches(clusters, profiles, [holder_lease("b", TunnelHolder("x:1", NOW, 3))])

    assert [(each.way, each.is_open) for each in found] == [
        ("tunnel", False),
        ("direct", True),
        ("none", False),
    ]
    assert ["agent has none open" in found[0].problem, found[1].problem] == [True, ""]
    profile: Object = {"metadata": {"name": "c", "namespace": "n"}, "status": {}}
    with pytest.raises(NoAccess, match="knfleet doctor c"):
        cluster_kubeconfig(profile, {})


def test_a_kubeconfig_may_use_another_address_of_the_front():
    provider = {
        "name": "secretreader",
        "cluster": {"server": "https://k", "proxy-url": "https://c1:k1.n.00@front.svc:8444"},
    }
    profile: Object = {
        "metadata": {"name": "c1", "namespace": "n"},
        "status": {"accessProviders": [provider]},
    }

    text = cluster_kubeconfig(profile, {"A": "b"}, front="https://localhost:9000")

    assert "proxy-url: https://c1:k1.n.00@localhost:9000\n" in text
    assert "secretreader" in text
