"""What `knfleet status` prints of a fleet and of a chain."""

from datetime import UTC, datetime

from knfleet.api.knative.conditions import DEPLOYMENTS_AVAILABLE, READY
from knfleet.cli.knative.status_text import chain_text, cluster_text, fleet_text, news
from knfleet.view.chain import chain_of, with_details
from knfleet.view.fleet_model import FleetView
from knfleet.view.fleet_reader import HubObjects, fleet_of
from knfleet.view.workload_findings import WorkloadFinding
from tests.support.overview_samples import condition, install, managed, profile

NOW = datetime(2026, 11, 16, 3, 5, tzinfo=UTC)
WAITING = "Waiting on deployments: activator; 4 of 5 ready: activator 0/1"
BUSY = [condition(type_, "False", "NotReady", WAITING) for type_ in (READY, DEPLOYMENTS_AVAILABLE)]

HEADINGS = (
    "KIND             NAME             TARGET         VERSION   READY   SINCE   REASON     PROGRESS"
)
BUSY_LINE = "KnativeServing   knative/busy     fleet/edge-0   → 1.23    False   5m      NotReady"


def sample(count: int = 2) -> FleetView:
    """A fleet with one lost cluster and one installation under way."""
    names = [f"edge-{number}" for number in range(count)]
    ready = condition(READY, "True")
    return fleet_of(
        HubObjects(
            clusters=[managed("lost", "Unknown"), *map(managed, names)],
            profiles=[*map(profile, names)],
            servings=[
                install("busy", *BUSY, on="edge-0"),
                *(install(name, ready, on=name, version="1.23.0") for name in names),
            ],
        ),
        NOW,
    )


def test_the_fleet_is_two_tables_that_begin_with_what_is_wrong() -> None:
    assert fleet_text(sample(), NOW).splitlines() == [
        "3 clusters: 1 in trouble, 2 healthy",
        "CLUSTER   HEALTH    SINCE   KUBERNETES   SERVING   EVENTING   REASON",
        "lost      Unknown   5m      v1.34.1                           Told",
        "edge-0    True      5m      v1.34.1      1.23.0",
        "edge-1    True      5m      v1.34.1      1.23.0",
        "",
        "3 installations: 1 in progress, 2 ready",
        HEADINGS,
        f"{BUSY_LINE}   workloads ready 4/5",
        "KnativeServing   knative/edge-0   fleet/edge-0   1.23.0    True    5m",
        "KnativeServing   knative/edge-1   fleet/edge-1   1.23.0    True    5m",
    ]


def test_three_hundred_clusters_fit_on_a_screen() -> None:
    """What is fine is counted; what is not is always shown."""
    text = fleet_text(sample(300), NOW, lines=40)

    assert len(text.splitlines()) <= 40
    assert "lost " in text
    assert "knative/busy " in text
    assert "301 clusters: 1 in trouble, 300 healthy" in text
    assert "more that are ready; all are in: knfleet status -o wide" in text


def test_a_chain_shows_its_links_and_what_was_found() -> None:
    said = [condition("TargetClusterResolved", "True"), *BUSY]
    pod = WorkloadFinding("Pod knative/activator-x", "bad", "container a: ImagePullBackOff")
    found = WorkloadFinding("Deployment knative/activator", "busy", "0/1 0 of 1 available", (pod,))
    chain = with_details(chain_of(install("busy", *said, on="edge-0")), "readiness", (found,))

    lines = chain_text(chain, NOW).splitlines()

    assert lines[0] == ("KnativeServing knative/busy on fleet/edge-0 is not ready for 5m: NotReady")
    assert lines[2:] == [
        "  ok       target     fleet/edge-0 answers",
        "  unknown  release    1.23 is wanted; nothing is installed yet",
        "  unknown  objects    nothing is applied yet",
        "  busy     readiness  4 of 5 workloads are available; waiting for activator",
        "             Deployment knative/activator: 0/1 0 of 1 available",
        "               Pod knative/activator-x: container a: ImagePullBackOff",
        "",
        "What NotReady means, and what to do: knfleet explain NotReady",
    ]


def test_a_lost_cluster_leads_to_the_doctor() -> None:
    fleet = sample()

    text = cluster_text(fleet.clusters[0], fleet, NOW)

    assert "Unknown for 5m" in text
    assert text.endswith("Find the cause: knfleet doctor lost")


def test_without_a_screen_a_change_is_a_line() -> None:
    """A log of --watch tells each change once, and what is gone."""
    before = sample()
    after = fleet_of(HubObjects(clusters=[managed("lost"), managed("edge-0")]), NOW)

    lines = news(before, after)

    assert "2026-11-16T03:05:00Z ManagedCluster/lost True: Told: it is True" in lines
    assert "2026-11-16T03:05:00Z ManagedCluster/edge-1 is gone" in lines
    assert not any("edge-0 True" in line for line in news(after, after))
    assert len(news(None, before)) == 6
