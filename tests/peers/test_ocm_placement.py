"""The placement controller of Open Cluster Management and ours decide the same."""

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from knfleet.api.cluster.clusterset import CLUSTER_SETS
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.cluster.placement import (
    DECISIONS,
    GROUP_INDEX_LABEL,
    GROUP_NAME_LABEL,
    MISCONFIGURED,
    PLACEMENT_LABEL,
    PLACEMENTS,
    SATISFIED,
    SCORES,
)
from knfleet.api.core import NAMESPACES
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import items, part
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists
from testbed import hubs
from testbed.clusters import Lend
from testbed.peers.ocm_hub import ocm_hub, prepare_hub, running
from testbed.printed import Printed
from testbed.waiting import until
from tests.peers import placement_cases
from tests.peers.placement_cases import PlacementCases
from tests.support.placements import bind, thing

pytestmark = [pytest.mark.xdist_group("peers"), pytest.mark.full]

SEED = 2311
COUNT = 200
Outcome = tuple[tuple[tuple[int, str, tuple[str, ...]], ...], int, str, str]
"""Groups with their clusters, how many were selected, and the reasons of both conditions."""


async def test_both_decide_the_same(lend: Lend, tmp_path: Path):
    """For random fleets and Placements, apart from what the page on compatibility names."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed, so that Open Cluster Management cannot be built")
    theirs_lent, ours_lent = await lend(2)
    wanted = placement_cases.cases(SEED, COUNT)
    binaries = await ocm_hub(Printed())
    async with Client(theirs_lent.connection) as theirs, Client(ours_lent.connection) as ours:
        await prepare_hub(theirs)
        await hubs.install(ours_lent.connection)
        async with (
            running(binaries, theirs_lent, tmp_path / "ocm", ("placement",)),
            hubs.running(ours_lent.connection),
        ):
            await asyncio.gather(place(theirs, wanted), place(ours, wanted))
            await until(lambda: is_decided(theirs), "Open Cluster Management decided")
            await until(lambda: is_decided(ours), "the hub decided")
            try:
                await until(lambda: is_same(theirs, ours), "both decided the same")
            except AssertionError:
                pytest.fail("\n".join(differences(await outcomes(theirs), await outcomes(ours))))
            found = await outcomes(ours)
    selected = [outcome for outcome in found.values() if outcome[1]]
    assert len(found) == COUNT
    assert len(selected) > COUNT / 4
    assert len({outcome[2] for outcome in found.values()}) > 3


async def place(client: Client, wanted: PlacementCases) -> None:
    """Create a fleet and Placements; Placements come when all that they select from is there."""
    await create(client, CLUSTER_SETS, wanted.sets)
    for namespace, bound in placement_cases.NAMESPACES.items():
        await bind(client, namespace, *bound)
    names = [each["metadata"]["name"] for each in wanted.clusters]
    await create(client, NAMESPACES, [thing(NAMESPACES, name) for name in names])
    await create(client, CLUSTERS, wanted.clusters)
    await create(client, SCORES, wanted.scores)
    await create(client, PLACEMENTS, wanted.placements)


async def create(client: Client, resource: Resource, manifests: Iterable[Object]) -> None:
    """Create objects, each with its status."""

    async def create_one(manifest: Object) -> None:
        body = {key: value for key, value in manifest.items() if key != "status"}
        try:
            await client.create(resource, body)
        except AlreadyExists:
            return
        if "status" in manifest:
            patch = {"status": manifest["status"]}
            await client.patch(resource, Key.of(manifest), patch, subresource="status")

    await asyncio.gather(*map(create_one, manifests))


async def is_decided(client: Client) -> bool:
    """Whether every Placement was scheduled."""
    found = await outcomes(client)
    return len(found) == COUNT and all(reason for *_, reason in found.values())


async def is_same(theirs: Client, ours: Client) -> bool:
    """Whether both have the same outcomes."""
    return await outcomes(theirs) == await outcomes(ours)


async def outcomes(client: Client) -> dict[str, Outcome]:
    """What every Placement selects, by namespace and name."""
    decisions: dict[tuple[str, str], dict[tuple[int, str], list[str]]] = {}
    for each in (await client.list(DECISIONS)).items:
        labels = part(each["metadata"], "labels")
        owner = (each["metadata"]["namespace"], labels.get(PLACEMENT_LABEL, ""))
        group = (int(labels[GROUP_INDEX_LABEL]), labels.get(GROUP_NAME_LABEL, ""))
        names = [one["clusterName"] for one in items(each, "status", "decisions")]
        decisions.setdefault(owner, {}).setdefault(group, []).extend(names)
    found: dict[str, Outcome] = {}
    for each in (await client.list(PLACEMENTS)).items:
        meta = each["metadata"]
        groups = decisions.get((meta["namespace"], meta["name"]), {})
        found[f"{meta['namespace']}/{meta['name']}"] = (
            tuple(
                (index, name, tuple(sorted(clusters)))
                for (index, name), clusters in sorted(groups.items())
            ),
            part(each, "status").get("numberOfSelectedClusters", 0),
            reason(each, SATISFIED),
            reason(each, MISCONFIGURED),
        )
    return found


def reason(manifest: Object, type_: str) -> str:
    """Status and reason of a condition; empty when there is none."""
    said = [each for each in items(manifest, "status", "conditions") if each["type"] == type_]
    return f"{said[0]['status']} {said[0]['reason']}" if said else ""


def differences(theirs: dict[str, Outcome], ours: dict[str, Outcome]) -> list[str]:
    """What differs, in lines."""
    return [
        f"{name}: Open Cluster Management {theirs.get(name)}, knfleet {ours.get(name)}"
        for name in sorted(theirs.keys() | ours.keys())
        if theirs.get(name) != ours.get(name)
    ]
