"""KnativeFleets on a real API server; the operator is played by the tests."""

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest
from aiohttp import web

from knfleet.api.cluster.clusterset import BINDINGS
from knfleet.api.cluster.placement import DECISIONS, PLACEMENTS
from knfleet.api.fleet.fleet_names import FLEET_LABEL, KNATIVE_FLEETS, PROMOTE, RETRY
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.conditions import timestamp
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.apply.manifest_fields import items, part
from knfleet.hub.admission.profile_use import FLEET_USE
from knfleet.hub.context import wall
from knfleet.hub.knativefleet.template.revisions import CONTROLLER_REVISIONS
from knfleet.hub.manager import HubManager
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import Forbidden
from knfleet.workflows.object_lists import apply_all
from testbed import hubs
from testbed.waiting import until
from tests.support.dashboards import RealHub
from tests.support.knative_fleets import (
    SERVING,
    SPACE,
    OperatorDouble,
    add_profiles,
    children,
    fleet,
    have,
    operated,
    remove_all,
    reports,
    set_health,
    set_version,
)
from tests.support.loopback import on_loopback
from tests.support.placements import add_clusters, bind, decided, remove_clusters, thing

CANARY = {"waves": [{"name": "canary", "names": ["a"]}], "maxConcurrency": 1}
ROLLBACK = {"action": "Rollback", "scope": "All"}


@pytest.fixture
async def hub(fleet_connection: Connection) -> AsyncIterator[HubManager]:
    """A hub that runs."""
    async with hubs.running(fleet_connection, loopback_gates=True) as running:
        yield running


@pytest.fixture
async def client(fleet: Client, hub: HubManager) -> AsyncIterator[Client]:
    """A hub with three clusters and no fleet."""
    await add_profiles(fleet, ["a", "b", "c"], region="eu")
    yield fleet
    await remove_all(fleet)


@pytest.fixture
async def operator(client: Client) -> AsyncIterator[OperatorDouble]:
    """What works on the children."""
    async with operated(client) as running:
        yield running


async def test_a_fleet_installs_in_waves_and_reports_it(client: Client, operator: OperatorDouble):
    operator.held.add("a")
    await client.create(KNATIVE_FLEETS, fleet(strategy=CANARY))

    await have(client, a="1.22.0")
    waiting = await reports(client, "RolloutProgressing")
    operator.held.clear()
    operator.poke()
    done = await reports(client, "RolloutComplete")

    assert part(waiting, "status", "clusters")["waiting"] == 2
    assert part(done, "status", "clusters") == {"total": 3, "done": 3}
    assert [(each["name"], each["state"]) for each in done["status"]["waves"]] == [
        ("canary", "Complete"),
        ("remaining", "Complete"),
    ]
    assert operator.largest == 1
    child = (await children(client))["a"]
    assert child["metadata"]["name"] == "prod-a"
    assert child["metadata"]["namespace"] == SERVING
    assert child["metadata"]["ownerReferences"][0]["kind"] == "KnativeFleet"
    await reports(client, "FleetReady", type_="Ready")


async def test_overrides_and_variables_make_children_differ(
    client: Client, operator: OperatorDouble
):
    spec = fleet(
        overrides=[
            {
                "name": "one",
                "clusters": {"names": ["b"]},
                "serving": {"high-availability": {"replicas": 3}, "config": {"features": None}},
            }
        ],
        eventing={"spec": {"version": "1.22.0"}},
    )
    spec["spec"]["serving"]["spec"]["config"] = {
        "domain": {"{{cluster.name}}.{{cluster.labels.region}}.example.com": ""},
        "features": {"zone": "{{cluster.properties.zone}}"},
    }
    await client.create(KNATIVE_FLEETS, spec)
    await reports(client, "RolloutComplete")

    found = await children(client)
    assert found["a"]["spec"]["config"] == {
        "domain": {"a.eu.example.com": ""},
        "features": {"zone": "zone-a"},
    }
    assert found["b"]["spec"]["config"] == {"domain": {"b.eu.example.com": ""}}
    assert found["b"]["spec"]["high-availability"] == {"replicas": 3}
    assert sorted(await children(client, EVENTINGS)) == ["a", "b", "c"]

    await client.patch(KNATIVE_FLEETS, Key("", "prod"), {"spec": {"eventing": None}})

    async def without_eventing() -> bool:
        return not await children(client, EVENTINGS)

    await until(without_eventing, "Eventing is removed")
    await reports(client, "RolloutComplete", number=2)


@pytest.mark.full
async def test_a_cluster_that_lacks_a_label_fails_alone(client: Client, operator: OperatorDouble):
    await client.patch(PROFILES, Key(SPACE, "b"), {"metadata": {"labels": {"region": None}}})
    spec = fleet(strategy={"maxFailures": 1})
    spec["spec"]["serving"]["spec"]["config"] = {"x": {"y": "{{cluster.labels.region}}"}}
    await client.create(KNATIVE_FLEETS, spec)
    found = await reports(client, "RolloutComplete")

    assert sorted(await children(client)) == ["a", "c"]
    (problem,) = found["status"]["problems"]
    assert (problem["cluster"], problem["state"]) == ("b", "Invalid")
    assert "no label region" in problem["message"]


@pytest.mark.full
async def test_a_failed_canary_halts_and_goes_on_when_it_recovers(
    client: Client, operator: OperatorDouble
):
    await client.create(KNATIVE_FLEETS, fleet(strategy=CANARY))
    await reports(client, "RolloutComplete")
    operator.broken.add(("a", "1.23.0"))
    strategy = {"progressDeadline": "1s"}
    await client.patch(KNATIVE_FLEETS, Key("", "prod"), {"spec": {"strategy": strategy}})
    await set_version(client, "1.23.0")

    halted = await reports(client, "RolloutHalted")
    await have(client, a="1.23.0", b="1.22.0", c="1.22.0")
    operator.broken.clear()
    operator.poke()
    await have(client, a="1.23.0", b="1.23.0", c="1.23.0")
    await reports(client, "RolloutComplete")

    assert "a failed or timed out" in part(halted, "status")["waves"][0]["message"]
    assert halted["status"]["problems"][0]["message"] == "Broken of a"


@pytest.mark.parametrize(
    "scope",
    [
        pytest.param("Failed", marks=pytest.mark.full),
        pytest.param("Wave", marks=pytest.mark.full),
        "All",
    ],
)
async def test_a_failed_rollout_is_taken_back(client: Client, operator: OperatorDouble, scope: str):
    """`a` passes its wave; of `b` and `c`, which are changed at once, `c` fails."""
    strategy = {"waves": [{"name": "canary", "names": ["a"]}]}
    await client.create(
        KNATIVE_FLEETS,
        fleet(strategy=strategy, onFailure={"action": "Rollback", "scope": scope}),
    )
    await reports(client, "RolloutComplete")
    operator.refused.add(("c", "1.23.0"))
    await set_version(client, "1.23.0")
    await reports(client, "RolledBack")

    back = {
        "Failed": {"a": "1.23.0", "b": "1.23.0", "c": "1.22.0"},
        "Wave": {"a": "1.23.0", "b": "1.22.0", "c": "1.22.0"},
        "All": {"a": "1.22.0", "b": "1.22.0", "c": "1.22.0"},
    }[scope]
    await have(client, **back)

    if scope == "All":
        operator.refused.clear()
        requested = timestamp(wall())
        retry = {"metadata": {"annotations": {RETRY: requested}}}
        await client.patch(KNATIVE_FLEETS, Key("", "prod"), retry)
        await have(client, a="1.23.0", b="1.23.0", c="1.23.0")
        found = await reports(client, "RolloutComplete")
        assert found["status"]["observedRetry"] == requested


async def test_a_paused_fleet_begins_nothing(client: Client, operator: OperatorDouble):
    await client.create(KNATIVE_FLEETS, fleet(paused=True))
    await reports(client, "RolloutPaused")
    assert await children(client) == {}

    await client.patch(KNATIVE_FLEETS, Key("", "prod"), {"spec": {"paused": False}})
    await have(client, a="1.22.0", b="1.22.0", c="1.22.0")


@pytest.mark.full
async def test_a_wave_soaks_until_it_is_promoted(client: Client, operator: OperatorDouble):
    strategy = {"waves": [{"name": "canary", "names": ["a"], "minSuccessTime": "1h"}]}
    await client.create(KNATIVE_FLEETS, fleet(strategy=strategy))
    found = await reports(client, "RolloutWaiting")

    assert sorted(await children(client)) == ["a"]
    assert found["status"]["waves"][0]["state"] == "Soaking"
    started = found["status"]["rollout"]["started"]
    promote = {"metadata": {"annotations": {PROMOTE: f"{started}/canary"}}}
    await client.patch(KNATIVE_FLEETS, Key("", "prod"), promote)
    await reports(client, "RolloutComplete")


@pytest.mark.full
async def test_a_wave_that_has_soaked_is_complete(client: Client, operator: OperatorDouble):
    """The next wave begins by itself, and not before the canary has been ready so long."""
    strategy = {"waves": [{"name": "canary", "names": ["a"], "minSuccessTime": "3s"}]}
    await client.create(KNATIVE_FLEETS, fleet(strategy=strategy))
    done = await reports(client, "RolloutComplete")

    conditions = items((await children(client))["a"], "status", "conditions")
    (ready,) = [each for each in conditions if each["type"] == "Ready"]
    since, complete = (
        datetime.fromisoformat(text)
        for text in (
            ready["lastTransitionTime"],
            done["status"]["rollout"]["completedWaves"][0]["at"],
        )
    )
    assert (complete - since).total_seconds() >= 3
    await have(client, a="1.22.0", b="1.22.0", c="1.22.0")


async def test_the_next_wave_waits_between_waves(client: Client, operator: OperatorDouble):
    await client.create(KNATIVE_FLEETS, fleet(strategy={**CANARY, "betweenWaves": "1h"}))
    found = await reports(client, "RolloutWaiting")

    assert sorted(await children(client)) == ["a"]
    assert "before it begins" in found["status"]["waves"][1]["message"]


async def test_an_existing_custom_resource_is_taken_over(client: Client, operator: OperatorDouble):
    spec = {
        "version": "1.22.0",
        "clusterProfileRef": {"name": "b", "namespace": SPACE},
        "config": {"mine": {"x": "y"}},
    }
    await client.create(SERVINGS, thing(SERVINGS, "old", SERVING, spec=spec))
    await client.create(KNATIVE_FLEETS, fleet(version="1.23.0"))
    await reports(client, "RolloutComplete")

    found = await client.list(SERVINGS)
    assert sorted(each["metadata"]["name"] for each in found.items) == ["old", "prod-a", "prod-c"]
    taken = await client.get(SERVINGS, "old", SERVING)
    assert taken["metadata"]["labels"][FLEET_LABEL] == "prod"
    assert "config" not in taken["spec"]
    assert taken["spec"]["version"] == "1.23.0"


@pytest.mark.full
async def test_clusters_of_another_fleet_are_left_alone(client: Client, operator: OperatorDouble):
    names = {"namespace": SPACE, "names": ["a"]}
    await client.create(KNATIVE_FLEETS, fleet("first", clusters=names))
    await reports(client, "RolloutComplete", "first")
    await client.create(KNATIVE_FLEETS, fleet("second", version="1.23.0"))
    found = await reports(client, "RolloutHalted", "second")

    assert "belongs to the fleet first" in found["status"]["problems"][0]["message"]
    assert (await children(client))["a"]["spec"]["version"] == "1.22.0"


async def test_an_edited_child_is_reverted(client: Client, operator: OperatorDouble):
    await client.create(KNATIVE_FLEETS, fleet())
    await reports(client, "RolloutComplete")
    edit = {"spec": {"version": "1.21.0", "config": {"more": {"x": "y"}}}}
    await client.patch(SERVINGS, Key(SERVING, "prod-a"), edit)

    async def is_back() -> bool:
        spec = (await children(client))["a"]["spec"]
        return spec["version"] == "1.22.0" and "config" not in spec

    await until(is_back, "the edit is taken back")


@pytest.mark.full
async def test_an_edited_child_is_kept_if_the_policy_says_so(
    client: Client, operator: OperatorDouble
):
    await client.create(KNATIVE_FLEETS, fleet(driftPolicy="Keep"))
    await reports(client, "RolloutComplete")
    await client.patch(SERVINGS, Key(SERVING, "prod-a"), {"spec": {"version": "1.21.0"}})
    found = await reports(client, "ChildrenEdited", type_="InSync")

    assert found["status"]["clusters"] == {"total": 3, "done": 3, "drifted": 1}
    assert (await children(client))["a"]["spec"]["version"] == "1.21.0"

    await set_version(client, "1.23.0")
    await have(client, a="1.22", b="1.23.0", c="1.23.0")


async def test_a_cluster_is_upgraded_one_minor_version_at_a_time(
    client: Client, operator: OperatorDouble
):
    await client.create(KNATIVE_FLEETS, fleet(version="1.20.0"))
    await reports(client, "RolloutComplete")
    await set_version(client, "1.23.0")
    await reports(client, "RolloutComplete", number=2)

    for given in operator.versions.values():
        assert given == ["1.20.0", "1.21", "1.22", "1.23.0"]


async def test_clusters_join_leave_die_and_return(client: Client, operator: OperatorDouble):
    await client.create(KNATIVE_FLEETS, fleet(strategy=CANARY))
    await reports(client, "RolloutComplete")

    # One that joins during a rollout gets the last good revision.
    operator.held.add("a")
    await set_version(client, "1.23.0")
    await have(client, a="1.23.0", b="1.22.0", c="1.22.0")
    await set_health(client, "a", "False")
    suspended = await reports(client, "RolloutWaiting")
    assert part(suspended, "status", "clusters")["unreachable"] == 1
    await add_profiles(client, ["d"], region="us")
    await have(client, a="1.23.0", b="1.22.0", c="1.22.0", d="1.22.0")

    # One that dies is not changed before it is back, and blocks others only as the canary.
    operator.held.clear()
    await set_health(client, "a")
    await set_health(client, "c", "False")
    await have(client, a="1.23.0", b="1.23.0", c="1.22.0", d="1.23.0")
    await reports(client, "RolloutComplete")
    await set_health(client, "c")
    await have(client, a="1.23.0", b="1.23.0", c="1.23.0", d="1.23.0")

    # One that leaves loses its installation.
    await client.delete(PROFILES, Key(SPACE, "b"))
    await have(client, a="1.23.0", c="1.23.0", d="1.23.0")
    assert operator.largest == 1


async def test_a_cluster_that_joins_may_wait_for_its_wave(client: Client, operator: OperatorDouble):
    await client.create(KNATIVE_FLEETS, fleet(strategy=CANARY, joining="Wave"))
    await reports(client, "RolloutComplete")
    operator.held.add("a")
    await set_version(client, "1.23.0")
    await have(client, a="1.23.0", b="1.22.0", c="1.22.0")

    await add_profiles(client, ["d"], region="us")
    joined = await counts(client, total=4, waiting=3)
    operator.held.clear()
    operator.poke()
    await reports(client, "RolloutComplete", number=2)

    assert "d" not in joined
    assert operator.versions["d"] == ["1.23.0"]


async def counts(client: Client, **wanted: int) -> dict[str, Object]:
    """Wait until the status of a fleet counts clusters so; its children then."""

    async def does() -> bool:
        found = part(await client.get(KNATIVE_FLEETS, "prod"), "status", "clusters")
        return wanted.items() <= found.items()

    await until(does, f"the fleet counts {wanted}")
    return await children(client)


async def test_a_cluster_that_cannot_be_reached_is_no_failure(
    client: Client, operator: OperatorDouble
):
    operator.lost.add("b")
    await client.create(KNATIVE_FLEETS, fleet(strategy={"maxConcurrency": 3}))
    await have(client, a="1.22.0", b="1.22.0", c="1.22.0")
    found = await reports(client, "ClustersNotReady", type_="Ready")

    async def is_unreachable() -> bool:
        status = (await client.get(KNATIVE_FLEETS, "prod"))["status"]
        return status["clusters"].get("unreachable") == 1 and not status["clusters"].get("failed")

    await until(is_unreachable, "the cluster counts as unreachable")
    operator.lost.clear()
    operator.poke()
    await reports(client, "RolloutComplete")
    assert found["status"]["rollout"]["number"] == 1


@pytest.mark.full
async def test_selecting_nothing_removes_nothing(client: Client, operator: OperatorDouble):
    await client.create(KNATIVE_FLEETS, fleet())
    await reports(client, "RolloutComplete")
    clusters = {"clusters": {"selector": {"matchLabels": {"region": "none"}}}}
    await client.patch(KNATIVE_FLEETS, Key("", "prod"), {"spec": clusters})
    await reports(client, "NoClustersSelected", type_="ClustersSelected")

    assert sorted(await children(client)) == ["a", "b", "c"]


async def test_a_fleet_that_is_deleted_names_the_children_that_it_waits_for(
    client: Client, operator: OperatorDouble
):
    await client.create(KNATIVE_FLEETS, fleet())
    await reports(client, "RolloutComplete")
    held = {"metadata": {"finalizers": ["test.knfleet.dev/held"]}}
    await client.patch(SERVINGS, Key(SERVING, "prod-b"), held)
    await client.delete(KNATIVE_FLEETS, Key("", "prod"))
    found = await reports(client, "FleetDeleting")

    (condition,) = [
        each for each in items(found, "status", "conditions") if each["type"] == "RolledOut"
    ]
    assert "knative-serving/prod-b" in condition["message"]
    await client.patch(SERVINGS, Key(SERVING, "prod-b"), {"metadata": {"finalizers": None}})

    async def is_gone() -> bool:
        return not (await client.list(KNATIVE_FLEETS)).items

    await until(is_gone, "the fleet is gone")


@pytest.mark.parametrize("policy", ["Delete", "Orphan"])
async def test_a_deleted_fleet_removes_its_children_or_leaves_them(
    client: Client, operator: OperatorDouble, policy: str
):
    await client.create(KNATIVE_FLEETS, fleet(deletionPolicy=policy))
    await reports(client, "RolloutComplete")
    await client.delete(KNATIVE_FLEETS, Key("", "prod"))

    async def is_gone() -> bool:
        return not (await client.list(KNATIVE_FLEETS)).items

    await until(is_gone, "the fleet is gone")
    left = (await client.list(SERVINGS)).items
    assert len(left) == (3 if policy == "Orphan" else 0)
    for each in left:
        assert "ownerReferences" not in each["metadata"]
        assert FLEET_LABEL not in each["metadata"].get("labels", {})


@pytest.mark.full
async def test_revisions_are_kept_and_numbered(
    client: Client, operator: OperatorDouble, hub: HubManager
):
    await client.create(KNATIVE_FLEETS, fleet(revisionHistoryLimit=1))
    for number, version in enumerate(("1.21.0", "1.20.0", "1.21.0"), start=2):
        await reports(client, "RolloutComplete", number=number - 1)
        await set_version(client, version)
    await reports(client, "RolloutComplete", number=4)

    async def found() -> list[tuple[int, str]]:
        listed = await client.list(CONTROLLER_REVISIONS, labels=f"{FLEET_LABEL}=prod")
        return sorted(
            (each["revision"], each["data"]["serving"]["spec"]["version"]) for each in listed.items
        )

    async def are_pruned() -> bool:
        return await found() == [(3, "1.20.0"), (4, "1.21.0")]

    await until(are_pruned, "old revisions are gone")


async def test_a_wrong_selector_is_reported(client: Client, operator: OperatorDouble):
    wrong = {"matchExpressions": [{"key": "x", "operator": "In"}]}
    strategy = {"waves": [{"name": "x", "selector": wrong}]}
    await client.create(KNATIVE_FLEETS, fleet(strategy=strategy))
    found = await reports(client, "InvalidFleet")

    (condition,) = items(found, "status", "conditions")
    assert "needs values" in condition["message"]


async def test_only_who_may_use_the_profiles_writes_fleets(
    client: Client, fleet_connection: Connection
):
    account = RealHub(client, fleet_connection)
    writes = {"apiGroups": ["fleet.knfleet.dev"], "resources": ["*"], "verbs": ["create", "get"]}
    uses = {
        "apiGroups": ["multicluster.x-k8s.io"],
        "resources": ["clusterprofiles"],
        "verbs": ["use"],
    }
    token = await account.account("author", writes)
    await apply_all(client, FLEET_USE.manifests())
    async with Client(hubs.with_token(fleet_connection, token)) as author:

        async def is_enforced() -> bool:
            try:
                await author.create(KNATIVE_FLEETS, fleet(), dry_run=True)
            except Forbidden as error:
                return "permission to use clusterprofiles" in str(error)
            return False

        await until(is_enforced, "the rule is enforced")
        await account.account("author", uses, inside=SPACE)

        async def is_granted() -> bool:
            try:
                await author.create(KNATIVE_FLEETS, fleet(), dry_run=True)
            except Forbidden:
                return False
            return True

        await until(is_granted, "the author may use the profiles")
    for each in FLEET_USE.manifests():
        resource = await client.discovery.resource(each["apiVersion"], each["kind"])
        await client.delete(resource, Key("", each["metadata"]["name"]))


@pytest.mark.full
async def test_a_wave_waits_for_a_gate_and_fails_with_it(
    client: Client, operator: OperatorDouble, tmp_path: Path
):
    """First the gate asks to wait, then it passes; for the next revision it refuses."""
    answers = [425, 200, 200]

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=answers.pop(0) if answers else 500, text="by the test")

    async with on_loopback(tmp_path, answer) as url:
        gate = {
            "name": "ask",
            "webhook": {"url": url},
            "interval": "1s",
            "failureLimit": 2,
        }
        await client.create(KNATIVE_FLEETS, fleet(strategy={**CANARY, "gates": [gate]}))
        done = await reports(client, "RolloutComplete")
        await set_version(client, "1.23.0")
        halted = await reports(client, "RolloutHalted")

    assert {each["state"] for each in done["status"]["rollout"]["gates"]} == {"Passed"}
    await have(client, a="1.23.0", b="1.22.0", c="1.22.0")
    assert halted["status"]["waves"][0]["message"] == "gate ask: status 500: by the test"


@pytest.mark.full
async def test_a_wave_waits_for_a_query_and_fails_with_its_values(
    client: Client, operator: OperatorDouble, tmp_path: Path
):
    """No value decides nothing; one within the bounds passes, and one beyond them fails."""
    answers = [None, 0.1, 0.1]

    async def answer(request: web.Request) -> web.Response:
        assert (await request.post())["query"] == "rate(errors[5m])"
        value = answers.pop(0) if answers else 0.9
        result = [] if value is None else [{"value": [0, str(value)]}]
        data = {"resultType": "vector", "result": result}
        return web.json_response({"status": "success", "data": data})

    async with on_loopback(tmp_path, answer) as url:
        query = {"url": url, "query": "rate(errors[5m])", "max": "0.5"}
        gate = {"name": "errors", "prometheus": query, "interval": "1s", "failureLimit": 2}
        await client.create(KNATIVE_FLEETS, fleet(strategy={**CANARY, "gates": [gate]}))
        done = await reports(client, "RolloutComplete")
        await set_version(client, "1.23.0")
        halted = await reports(client, "RolloutHalted")

    assert {each["message"] for each in done["status"]["rollout"]["gates"]} == {
        "0.1 is within max 0.5"
    }
    await have(client, a="1.23.0", b="1.22.0", c="1.22.0")
    assert halted["status"]["waves"][0]["message"] == "gate errors: 0.9 is not within max 0.5"
    assert halted["status"]["rollout"]["gates"][-1]["failures"] == 2


async def test_a_wave_waits_until_its_clusters_are_verified(
    client: Client, operator: OperatorDouble
):
    """Simulated pods do not pass; a cluster that fails is asked again, and then fails the wave."""
    nothing: Object = {}
    gate: Object = {"name": "works", "verify": nothing, "interval": "1s", "failureLimit": 2}
    operator.verdicts["a"] = ("Unknown", "PodsSimulated")
    strategy: Object = {"waves": CANARY["waves"], "gates": [gate]}
    await client.create(KNATIVE_FLEETS, fleet(strategy=strategy))

    simulated = await gate_says(client, "Waiting", "PodsSimulated of a")
    await have(client, a="1.22.0")
    operator.verdicts = dict.fromkeys("abc", ("True", "VerificationSucceeded"))
    operator.poke()
    done = await reports(client, "RolloutComplete")
    operator.verdicts["a"] = ("False", "VerificationFailed")
    await set_version(client, "1.23.0")
    halted = await reports(client, "RolloutHalted")

    assert not simulated.get("failures")
    shown = {each["wave"]: each for each in done["status"]["rollout"]["gates"]}
    assert {each["state"] for each in shown.values()} == {"Passed"}
    assert shown["remaining"]["message"] == "2 clusters were verified"
    text = "gate works: cluster a: VerificationFailed: VerificationFailed of a"
    assert halted["status"]["waves"][0]["message"] == text
    assert halted["status"]["rollout"]["gates"][-1]["failures"] == 2
    await have(client, a="1.23.0", b="1.22.0", c="1.22.0")


async def gate_says(client: Client, state: str, words: str) -> Object:
    """Wait until the first gate of a fleet has a state, and says something; its status."""
    found: Object = {}

    async def does() -> bool:
        shown = items(await client.get(KNATIVE_FLEETS, "prod"), "status", "rollout", "gates")
        found.update(shown[0] if shown else {})
        return found.get("state") == state and words in found.get("message", "")

    await until(does, f"the gate is {state}: {words}")
    return found


async def test_decision_groups_of_a_placement_are_waves(client: Client, operator: OperatorDouble):
    await bind(client, SPACE, "default")
    await add_clusters(client, ["a"], tier="canary")
    await add_clusters(client, ["b"])
    groups = [
        {
            "groupName": "canary",
            "groupClusterSelector": {"labelSelector": {"matchLabels": {"tier": "canary"}}},
        }
    ]
    spec = {"decisionStrategy": {"groupStrategy": {"decisionGroups": groups}}}
    await client.create(PLACEMENTS, thing(PLACEMENTS, "chosen", SPACE, spec=spec))
    await decided(client, SPACE, "chosen", "a", "b")
    clusters = {"namespace": SPACE, "placementRef": {"name": "chosen"}}

    await client.create(KNATIVE_FLEETS, fleet(clusters=clusters))
    done = await reports(client, "RolloutComplete")
    waves = [each["name"] for each in done["status"]["waves"]]
    assert waves == ["canary-0", "group-1"]
    await have(client, a="1.22.0", b="1.22.0")

    # A Placement that is gone removes nothing.
    await client.delete(PLACEMENTS, Key(SPACE, "chosen"))
    await reports(client, "PlacementNotFound", type_="ClustersSelected")
    assert sorted(await children(client)) == ["a", "b"]

    await client.delete_collection(DECISIONS, SPACE)
    await client.delete_collection(BINDINGS, SPACE)
    await remove_clusters(client, ["a", "b"])
