"""The fleet as it changes: by watches, and without a kind that the hub does not have."""

import asyncio

import msgspec
import pytest

from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.conditions import READY
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.cli.knative.status import StatusView
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Endpoint
from knfleet.kube.errors import ConnectionRefused
from knfleet.kube.yaml import load_all
from knfleet.view.fleet_reader import read_fleet, read_objects
from knfleet.view.fleet_watch import following
from knfleet.view.target_access import providers_for
from testbed.fakes.clients import client_for
from testbed.fakes.fleet import Fleet
from testbed.waiting import PATIENCE_SECONDS, until
from tests.support.overview_samples import condition, install, managed, profile


@pytest.fixture
def full(fleet: Fleet) -> Fleet:
    """A fake hub that has all kinds but KnativeEventings."""
    for resource in (CLUSTERS, SERVINGS):
        fleet.hub.resources[resource.group, resource.version, resource.plural] = resource
        fleet.hub.objects[resource] = {}
    return fleet


async def test_a_fleet_is_four_requests_to_the_hub(hub: Client, full: Fleet) -> None:
    """A kind that is not installed counts as empty, and is told."""
    full.hub.put(CLUSTERS, managed("edge-1"))
    full.hub.put(PROFILES, profile("edge-1"))
    full.hub.put(SERVINGS, install("s", condition(READY, "True"), on="edge-1"))
    full.hub.requests.clear()

    fleet = await read_fleet(hub)

    assert len(full.hub.requests) == 4
    assert [row.cluster for row in fleet.installs] == ["edge-1"]
    assert fleet.warnings == (f"{EVENTINGS} are not installed on this cluster",)


async def test_a_hub_that_does_not_answer_is_an_error_not_an_empty_fleet() -> None:
    endpoint = Endpoint("https://127.0.0.1:1", insecure=True)

    async with client_for(endpoint) as client:
        with pytest.raises(ConnectionRefused):
            await read_fleet(client)


async def test_a_change_on_the_hub_is_seen_without_asking(hub: Client, full: Fleet) -> None:
    """After the first look nothing is listed any more."""
    full.hub.put(CLUSTERS, managed("edge-1"))

    async with asyncio.timeout(PATIENCE_SECONDS), following(hub) as live:
        assert len(live.objects().clusters) == 1
        full.hub.requests.clear()
        full.hub.put(CLUSTERS, managed("edge-2"))
        await live.changed()

        assert len(live.objects().clusters) == 2
        assert full.hub.requests == []
        assert live.problem == ""


async def test_status_watch_prints_a_line_for_each_change(
    hub: Client, full: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a pipe, what is new is told once; a kind that is missing is noted once."""
    full.hub.put(CLUSTERS, managed("edge-1"))
    lines: list[str] = []

    def has_told(*words: str) -> bool:
        lines.extend(capsys.readouterr().out.splitlines())
        return any(all(word in line for word in words) for line in lines)

    following_it = asyncio.create_task(StatusView(hub, "", "text", None).follow())
    try:
        await until(lambda: has_told("ManagedCluster/edge-1 True"), "the first state is told")
        full.hub.put(CLUSTERS, managed("edge-2", "Unknown"))
        await until(lambda: has_told("ManagedCluster/edge-2 Unknown"), "the change is told")
    finally:
        following_it.cancel()
        await asyncio.gather(following_it, return_exceptions=True)

    assert len(lines) == 2


async def test_status_asks_a_target_again_only_when_the_hub_says_something_new(
    hub: Client, full: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --watch a large fleet stirs all the time; a sick spoke is not asked each time."""
    spoke = full.add_spoke("one")
    waiting = [condition(type_, "False", "NotReady", "wait") for type_ in (READY, "Other")]
    waiting.append(condition("TargetClusterResolved", "True"))
    full.hub.put(SERVINGS, install("s", *waiting, on="one"))
    view = StatusView(hub, "s", "text", providers_for(full.file))

    await view.show(await read_objects(hub))
    asked = len(spoke.requests)
    full.hub.put(CLUSTERS, managed("edge-1"))
    await view.show(await read_objects(hub))

    assert asked > 0
    assert len(spoke.requests) == asked
    waiting[0]["message"] = "wait a little more"
    full.hub.put(SERVINGS, install("s", *waiting, on="one"))
    await view.show(await read_objects(hub))
    assert len(spoke.requests) > asked
    assert capsys.readouterr().out.count("KnativeServing knative/s on fleet/one") == 3


@pytest.mark.parametrize("name", ["", "s", "edge-1"])
async def test_programs_get_the_same_by_json_and_yaml(
    hub: Client, full: Fleet, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """The whole fleet, one chain, one cluster: one document each, nothing else on that stream."""
    full.hub.put(CLUSTERS, managed("edge-1"))
    full.hub.put(SERVINGS, install("s", condition(READY, "True")))

    await StatusView(hub, name, "json", None).once()
    by_json = msgspec.json.decode(capsys.readouterr().out)
    await StatusView(hub, name, "yaml", None).once()
    (by_yaml,) = load_all(capsys.readouterr().out)
    await StatusView(hub, name, "name", None).once()
    names = capsys.readouterr().out.split()

    assert {**by_json, "when": ""} == {**by_yaml, "when": ""}
    every = ["ManagedCluster/edge-1", "KnativeServing/knative/s"]
    assert names == {"": every, "edge-1": every[:1], "s": every[1:]}[name]
