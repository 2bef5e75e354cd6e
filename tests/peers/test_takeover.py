"""From the Knative Operator to knfleet and back, on a cluster that goes on working meanwhile."""

import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest
from msgspec import Struct

from knfleet.api.core import CONFIG_MAPS, PODS, REPLICA_SETS
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.apply.manifest_fields import part
from knfleet.kube.client.verbs import Client
from testbed.clusters import Lend, Lent
from testbed.operators import Hub, Operator
from testbed.peers.goproject import GoProject, go_project
from testbed.peers.operator import running, silenced
from testbed.peers.remote import offer
from testbed.peers.samples import serving
from testbed.peers.surroundings import prepare
from testbed.printed import Printed
from testbed.waiting import until
from tests.support.expected import difference, members, serving_refs

pytestmark = [pytest.mark.xdist_group("peers"), pytest.mark.full]

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
async def clusters(lend: Lend) -> list[Lent]:
    """Two clusters, the hub first."""
    return await lend(2)


@pytest.fixture
async def stage(clusters: list[Lent], project: GoProject) -> AsyncIterator[Hub]:
    """A cluster with the Knative Operator's definitions, on which it may work."""
    lent = clusters[0]
    async with Client(lent.connection) as client:
        await prepare(client, SAMPLE, project.definitions())
        with silenced():
            yield Hub(lent, client)


class Spoke(Struct, frozen=True):
    """Another cluster, known on the hub by its profile."""

    client: Client
    reference: dict[str, str]
    options: list[str]
    """What an operator must be told to reach it."""


@pytest.fixture
async def spoke(clusters: list[Lent], stage: Hub, tmp_path: Path) -> AsyncIterator[Spoke]:
    """A second cluster, registered on the first."""
    profile, lent = Key("fleet", "spoke"), clusters[1]
    async with Client(lent.connection) as client:
        options = await offer(stage.client, lent, profile, tmp_path, hub=stage.lent)
        reference = {"name": profile.name, "namespace": profile.namespace}
        yield Spoke(client, reference, options)


async def life(client: Client) -> dict[str, list[str]]:
    """What changes when a Deployment is rolled out, or a pod started anew."""
    sets = (await client.list(REPLICA_SETS, SPACE)).items
    pods = (await client.list(PODS, SPACE)).items
    return {
        "replica sets": sorted(each["metadata"]["uid"] for each in sets),
        "pods": sorted(each["metadata"]["uid"] for each in pods if not is_job(each)),
    }


def is_job(pod: Object) -> bool:
    """Whether a pod is a Job's, which come and go."""
    return any(each["kind"] == "Job" for each in pod["metadata"].get("ownerReferences") or ())


async def network(client: Client) -> dict[str, str]:
    """What is set in config-network."""
    found = await client.get(CONFIG_MAPS, "config-network", SPACE)
    return found.get("data") or {}


async def has(client: Client, key: str) -> bool:
    """Whether config-network has a key."""
    return key in await network(client)


async def has_not(client: Client, key: str) -> bool:
    """Whether it lacks one."""
    return not await has(client, key)


def go_operator(
    project: GoProject, hub: Hub, log: Path, *options: str
) -> AbstractAsyncContextManager[object]:
    """The Knative Operator at work."""
    return running(project, SAMPLE, ["--kubeconfig", str(hub.lent.kubeconfig), *options], log)


async def test_taken_over_without_a_restart_and_given_back(
    stage: Hub, project: GoProject, tmp_path: Path
) -> None:
    """Everything is ours, no pod notices, a dropped key goes; then it is theirs again."""
    hub = stage
    async with go_operator(project, hub, tmp_path / "first.log"):
        await hub.client.create(SERVINGS, SAMPLE.manifest, SPACE)
        await hub.ready(SERVINGS, "1.23.0")
    before = await life(hub.client)
    assert len(before["pods"]) > 5
    assert {"first", "second"} <= (await network(hub.client)).keys()

    ours = Operator(hub.lent.kubeconfig, project.kodata, tmp_path / "ours.log")
    await hub.prepare()
    await ours.start()
    try:
        await hub.tells("Adopted", "taken over from the Knative Operator")
        await until(partial(is_ours, hub.client, project, tmp_path), "everything is ours")
        await hub.ready(SERVINGS, "1.23.0")
        assert await life(hub.client) == before
        await hub.change(SERVINGS, config={"network": {"first": None}})
        await until(lambda: has_not(hub.client, "first"), "the dropped key is gone")
        assert (await network(hub.client))["second"] == "2"
        await hub.ready(SERVINGS, "1.23.0")
        assert await life(hub.client) == before
        assert await ours.stop() == 0
    finally:
        await ours.kill()

    async with go_operator(project, hub, tmp_path / "second.log"):
        await hub.change(SERVINGS, config={"network": {"third": "3"}})
        await until(lambda: has(hub.client, "third"), "the Knative Operator sets a key")
        await hub.ready(SERVINGS, "1.23.0")
        assert "first" not in await network(hub.client)
        assert await life(hub.client) == before


async def test_a_spoke_is_taken_over_without_a_restart_and_cleaned(
    stage: Hub, spoke: Spoke, project: GoProject, tmp_path: Path
) -> None:
    """Everything there is ours, its anchor stays what it was, and in the end nothing is left."""
    hub, far = stage, spoke.client
    spec: Object = {**SAMPLE.manifest["spec"], "clusterProfileRef": spoke.reference}
    sample: Object = {**SAMPLE.manifest, "spec": spec}
    async with go_operator(project, hub, tmp_path / "theirs.log", *spoke.options):
        await hub.client.create(SERVINGS, sample, SPACE)
        await hub.ready(SERVINGS, "1.23.0")
    before, anchor = await life(far), await anchor_of(far)
    assert len(before["pods"]) > 5

    ours = Operator(hub.lent.kubeconfig, project.kodata, tmp_path / "ours.log")
    await hub.prepare()
    await ours.start("--disable-ha", *spoke.options)
    try:
        await hub.tells("Adopted", "taken over from the Knative Operator")
        await until(partial(is_ours, far, project, tmp_path), "everything is ours")
        await hub.ready(SERVINGS, "1.23.0")
        await hub.change(SERVINGS, config={"network": {"first": None}})
        await until(lambda: has_not(far, "first"), "the dropped key is gone")
        await hub.ready(SERVINGS, "1.23.0")
        assert await life(far) == before
        assert await anchor_of(far) == anchor

        await hub.client.delete(SERVINGS, Key(SPACE, sample["metadata"]["name"]))
        await until(partial(is_clean, hub, far), "nothing is left", seconds=120)
    finally:
        await ours.kill()


async def anchor_of(client: Client) -> str:
    """The uid of the object that owns what is installed on a spoke."""
    name = f"knativeserving-{SAMPLE.manifest['metadata']['name']}-root-owner"
    return (await client.get(CONFIG_MAPS, name, SPACE))["metadata"]["uid"]


async def is_clean(hub: Hub, spoke: Client) -> bool:
    """Whether the custom resource is gone, and all of it from the spoke."""
    if (await hub.client.list(SERVINGS)).items:
        return False
    lists = [await spoke.list(each, SPACE) for each in (CONFIG_MAPS, REPLICA_SETS, PODS)]
    names = {each["metadata"]["name"] for found in lists for each in found.items}
    return names <= {"kube-root-ca.crt"}


async def is_ours(client: Client, project: GoProject, cache: Path) -> bool:
    """Whether exactly the release is ours, without a trace of the Knative Operator."""
    wanted = await serving_refs(project.kodata, cache, **SAMPLE.manifest["spec"])
    found = await members(client)
    marked = [each for each in found.values() if "manifestival" in annotations(each)]
    return not marked and not difference(found, wanted)


def annotations(manifest: Object) -> Object:
    """The annotations of an object."""
    return part(manifest, "metadata", "annotations")
