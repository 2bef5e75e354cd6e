"""What an agent says of its cluster."""

from datetime import UTC, datetime
from typing import Any

import pytest

from knfleet.agent.access.access_token import AccessToken, content, over
from knfleet.agent.status.cluster_status import (
    ClaimFilter,
    ClusterFacts,
    is_clock_off,
    patch_of,
    reported_claims,
    total,
)
from knfleet.agent.status.klusterlet import CONNECTED, WAITING
from knfleet.agent.status.klusterlet import patch_of as klusterlet_patch
from knfleet.api.cluster.managedcluster import ManagedCluster
from knfleet.api.meta import Object
from knfleet.api.operator import Klusterlet
from knfleet.api.schema import decode
from knfleet.kube.endpoint import Endpoint

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ACCEPTED = {
    "type": "HubAcceptedManagedCluster",
    "status": "True",
    "reason": "HubClusterAdminAccepted",
    "message": "",
    "lastTransitionTime": "2029-01-01T00:00:00Z",
    "observedGeneration": 0,
}


def cluster(*conditions: Object, annotations: dict[str, str] | None = None, **status: Any):
    """A ManagedCluster."""
    manifest = {
        "metadata": {"name": "c1", "resourceVersion": "7", "annotations": annotations or {}},
        "status": {"conditions": [ACCEPTED, *conditions], **status},
    }
    return decode(manifest, ManagedCluster)


def node(*, cordoned: bool = False, **amounts: str) -> Object:
    """A node."""
    sizes = {"capacity": amounts, "allocatable": amounts}
    return {"spec": {"unschedulable": cordoned}, "status": sizes}


def said(patch: Object) -> dict[str, tuple[str, str]]:
    """Status and reason by type."""
    found: list[Object] = patch["status"]["conditions"]
    return {each["type"]: (each["status"], each["reason"]) for each in found}


def test_a_healthy_cluster_is_joined_and_available_and_told_only_once():
    facts = ClusterFacts(version="v1.35.0", nodes=(node(cpu="2", memory="1Gi"), node(cpu="500m")))

    patch = patch_of(cluster(), facts, NOW)

    assert said(patch)["ManagedClusterJoined"] == ("True", "ManagedClusterJoined")
    available = ("True", "ManagedClusterAvailable")
    assert said(patch)["ManagedClusterConditionAvailable"] == available
    assert said(patch)["HubAcceptedManagedCluster"][0] == "True"
    assert patch["status"]["version"] == {"kubernetes": "v1.35.0"}
    assert patch["status"]["capacity"] == {"cpu": "2500m", "memory": "1Gi"}
    assert patch["metadata"] == {"resourceVersion": "7"}
    status = patch["status"]
    del status["conditions"][0]
    assert patch_of(cluster(*status.pop("conditions"), **status), facts, NOW) == {}


def test_a_sick_api_server_makes_the_cluster_unavailable_and_hides_nothing_else():
    sick = ClusterFacts(problem="/livez answers 500")

    patch = patch_of(cluster(version={"kubernetes": "v1"}), sick, NOW)

    state, reason = said(patch)["ManagedClusterConditionAvailable"]
    assert (state, reason) == ("False", "ManagedClusterKubeAPIServerUnavailable")
    assert set(patch["status"]) == {"conditions"}


def test_nothing_is_said_of_availability_while_the_clock_is_off_unless_that_is_asked_for():
    off = {**ACCEPTED, "type": "ManagedClusterConditionClockSynced", "status": "False"}
    skip = {"registration.open-cluster-management.io/skip-clock-sync-check": "true"}

    assert is_clock_off(cluster(off))
    assert not is_clock_off(cluster(off, annotations=skip))
    patch = patch_of(cluster(off), ClusterFacts(version="v1"), NOW)
    assert "ManagedClusterConditionAvailable" not in said(patch)


def test_only_nodes_that_take_pods_are_allocatable_and_others_capacities_stay():
    facts = ClusterFacts(nodes=(node(cpu="1"), node(cordoned=True, cpu="4")))

    status = patch_of(cluster(capacity={"sockets": "2"}), facts, NOW)["status"]

    assert status["capacity"] == {"cpu": "5"}
    assert status["allocatable"] == {"cpu": "1"}


@pytest.mark.parametrize(
    ("amounts", "sum_"),
    [
        (["1", "2"], "3"),
        (["1500m", "500m"], "2"),
        (["100m", "1"], "1100m"),
        (["1Gi", "1Gi"], "2Gi"),
        (["1Gi", "1Mi"], "1025Mi"),
        (["1Ki", "1"], "1025"),
        (["1G"], "1000000000"),
        (["nonsense", "1"], "1"),
    ],
)
def test_quantities_are_added_up_as_kubernetes_writes_them(amounts: list[str], sum_: str):
    assert total([node(x=amount) for amount in amounts], "capacity") == {"x": sum_}


def claim(name: str, value: str = "v", **labels: str) -> Object:
    """A ClusterClaim or a ClusterProperty."""
    return {"metadata": {"name": name, "labels": labels}, "spec": {"value": value}}


def test_reserved_claims_come_first_and_others_are_limited():
    claims = [
        claim("z"),
        claim("b"),
        claim("a"),
        claim("id.k8s.io"),
        claim("hidden", **{"open-cluster-management.io/spoke-only": ""}),
        claim("long", "x" * 1025),
        claim("empty", ""),
    ]

    def told(**telling: Any) -> list[str]:
        return [
            each["name"]
            for each in reported_claims(ClusterFacts(claims=tuple(claims)), ClaimFilter(**telling))
        ]

    assert told(custom=2) == ["id.k8s.io", "a", "b"]
    assert told(custom=1, suffixes=("z",)) == ["id.k8s.io", "z", "a"]


def test_a_property_counts_for_more_than_a_claim_unless_it_stays_on_the_cluster():
    hidden = {"open-cluster-management.io/spoke-only": ""}
    facts = ClusterFacts(
        claims=(claim("a", "claimed"), claim("b", "claimed")),
        properties=(claim("a", "property"), claim("b", "property", **hidden), claim("c")),
    )

    assert reported_claims(facts, ClaimFilter()) == [
        {"name": "a", "value": "property"},
        {"name": "b", "value": "claimed"},
        {"name": "c", "value": "v"},
    ]


def test_a_token_is_handed_over_with_the_way_to_the_cluster_and_never_printed():
    token = AccessToken("secret", NOW, datetime(2030, 1, 1, 1, tzinfo=UTC))

    data = content(token, Endpoint("https://spoke:6443", b"PEM"))

    assert set(data) == {"token", "server", "ca.crt", "expiration"}
    assert token.renew_at() == datetime(2030, 1, 1, 0, 45, tzinfo=UTC)
    assert "secret" not in repr(token)
    assert over({"data": {"proxy-url": "eA==", "token": "b2xk"}}, data) == {
        **data,
        "proxy-url": None,
    }


def test_a_klusterlet_tells_how_the_way_to_the_hub_is():
    manifest = {"metadata": {"name": "klusterlet", "generation": 3, "resourceVersion": "9"}}
    klusterlet = decode(manifest, Klusterlet)

    waiting = klusterlet_patch(klusterlet, WAITING, NOW)

    assert said(waiting)["HubConnectionDegraded"][0] == "True"
    assert said(waiting)["Applied"][0] == "True"
    assert said(waiting)["WorkDesiredDegraded"] == ("False", "DeploymentsFunctional")
    assert waiting["status"]["observedGeneration"] == 3
    told = decode({**manifest, "status": waiting["status"]}, Klusterlet)
    assert klusterlet_patch(told, WAITING, NOW) == {}
    assert said(klusterlet_patch(told, CONNECTED, NOW))["HubConnectionDegraded"][0] == "False"
