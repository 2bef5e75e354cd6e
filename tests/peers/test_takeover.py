"""From the Knative Operator to knfleet and back, on a cluster that goes on working meanwhile."""

import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from knfleet.api.core import CONFIG_MAPS, PODS
from knfleet.api.knative import SERVINGS
from knfleet.api.meta import Object, Resource
from knfleet.apply.parts import part
from knfleet.kube.client import Client
from tests.conftest import Lend
from tests.fleet.expected import difference, members, serving_refs
from tests.fleet.operators import Hub, Operator
from tests.peers.goproject import GoProject, go_project
from tests.peers.laboratory import Printed
from tests.peers.operator import running, silenced
from tests.peers.samples import serving
from tests.peers.surroundings import prepare
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("peers")

REPLICA_SETS = Resource("apps", "v1", "ReplicaSet", "replicasets")
SPEC = {"version": "1.23.0", "ingress": {"kourier": {"enabled": True}}}
SAMPLE = serving("takeover", SPEC | {"config": {"network": {"first": "1", "second": "2"}}})
SPACE = SAMPLE.namespace


@pytest.fixture
async def project() -> GoProject:
    """The Knative Operator."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed, so that the Knative Operator cannot be built")
    return await go_project(Printed())


@pytest.fixture
async def stage(lend: Lend, project: GoProject) -> AsyncIterator[Hub]:
    """A cluster with the Knative Operator's definitions, on which it may work."""
    (lent,) = await lend(1)
    async with Client(lent.connection) as client:
        await prepare(client, SAMPLE, project.definitions())
        with silenced():
            yield Hub(lent, client)


async def life(hub: Hub) -> dict[str, list[str]]:
    """What changes when a Deployment is rolled out, or a pod started anew."""
    sets = (await hub.client.list(REPLICA_SETS, SPACE)).items
    pods = (await hub.client.list(PODS, SPACE)).items
    return {
        "replica sets": sorted(each["metadata"]["uid"] for each in sets),
        "pods": sorted(each["metadata"]["uid"] for each in pods if not is_job(each)),
    }


def is_job(pod: Object) -> bool:
    """Whether a pod is a Job's, which come and go."""
    return any(each["kind"] == "Job" for each in pod["metadata"].get("ownerReferences") or ())


async def network(hub: Hub) -> dict[str, str]:
    """What is set in config-network."""
    found = await hub.client.get(CONFIG_MAPS, "config-network", SPACE)
    return found.get("data") or {}


async def has(hub: Hub, key: str) -> bool:
    """Whether config-network has a key."""
    return key in await network(hub)


async def has_not(hub: Hub, key: str) -> bool:
    """Whether it lacks one."""
    return not await has(hub, key)


def go_operator(project: GoProject, hub: Hub, log: Path) -> AbstractAsyncContextManager[object]:
    """The Knative Operator at work."""
    return running(project, SAMPLE, ["--kubeconfig", str(hub.lent.kubeconfig)], log)


async def test_taken_over_without_a_restart_and_given_back(
    stage: Hub, project: GoProject, tmp_path: Path
) -> None:
    """Everything is ours, no pod notices, a dropped key goes; then it is theirs again."""
    hub = stage
    async with go_operator(project, hub, tmp_path / "first.log"):
        await hub.client.create(SERVINGS, SAMPLE.manifest, SPACE)
        await hub.ready(SERVINGS, "1.23.0")
    before = await life(hub)
    assert len(before["pods"]) > 5
    assert {"first", "second"} <= (await network(hub)).keys()

    ours = Operator(hub.lent.kubeconfig, project.kodata, tmp_path / "ours.log")
    await hub.prepare()
    await ours.start()
    try:
        await hub.tells("Adopted", "taken over from the Knative Operator")
        await until(partial(is_ours, hub, project, tmp_path), "everything is ours")
        await hub.ready(SERVINGS, "1.23.0")
        assert await life(hub) == before
        await hub.change(SERVINGS, config={"network": {"first": None}})
        await until(lambda: has_not(hub, "first"), "the dropped key is gone")
        assert (await network(hub))["second"] == "2"
        await hub.ready(SERVINGS, "1.23.0")
        assert await life(hub) == before
        assert await ours.stop() == 0
    finally:
        await ours.kill()

    async with go_operator(project, hub, tmp_path / "second.log"):
        await hub.change(SERVINGS, config={"network": {"third": "3"}})
        await until(lambda: has(hub, "third"), "the Knative Operator sets a key")
        await hub.ready(SERVINGS, "1.23.0")
        assert "first" not in await network(hub)
        assert await life(hub) == before


async def is_ours(hub: Hub, project: GoProject, cache: Path) -> bool:
    """Whether exactly the release is ours, without a trace of the Knative Operator."""
    wanted = await serving_refs(project.kodata, cache, **SAMPLE.manifest["spec"])
    found = await members(hub.client)
    marked = [each for each in found.values() if "manifestival" in annotations(each)]
    return not marked and not difference(found, wanted)


def annotations(manifest: Object) -> Object:
    """The annotations of an object."""
    return part(manifest, "metadata", "annotations")
