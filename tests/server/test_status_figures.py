"""`knfleet status` on a real API server: what it costs at 300 clusters, and without any CRD."""

import asyncio
import os
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.core import CRDS, NAMESPACES, SECRETS
from knfleet.api.crds.fleet import hub_definitions
from knfleet.api.crds.generator import definitions
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.conditions import READY
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Object, Resource
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.view.fleet_reader import KINDS, read_fleet
from testbed.clusters import Lent
from testbed.fakes.clients import Heard
from testbed.hubs import established
from tests.support.commands import done, refused, type_in
from tests.support.overview_samples import condition, install, managed, profile

COUNT = 300
AT_ONCE = 24
PLANTED = "hunter2xyz"


@pytest.mark.full
async def test_three_hundred_clusters_are_four_requests_to_the_hub(
    lent: Lent, tmp_path: Path
) -> None:
    """Not one request is made for each cluster; names, completion and bundle work at that size."""
    await bare_cluster_says_so(lent)
    async with Client(lent.connection, ClientOptions(concurrency=AT_ONCE)) as client:
        await prepare(client)
        await fill(client)
    heard = Heard()
    async with Client(lent.connection, ClientOptions(observe=heard)) as client:
        fleet = await read_fleet(client)

    assert heard.requests == [("list", 200)] * len(KINDS)
    assert (len(fleet.clusters), len(fleet.installs), fleet.warnings) == (COUNT, 2 * COUNT, ())
    printed = await done(lent.kubeconfig, "status")
    assert f"{COUNT} clusters: 1 in trouble, {COUNT - 1} healthy" in printed
    assert f"{2 * COUNT} installations: 1 in trouble, {2 * COUNT - 1} ready" in printed

    choices = "KnativeEventing/knative/edge-007, KnativeServing/knative/edge-007"
    assert choices in await refused(lent.kubeconfig, "status", "knative/edge-007")
    assert await completions(lent.kubeconfig, "knfleet doctor edge-29") == [
        f"edge-29{number}" for number in range(10)
    ]
    bundle = tmp_path / "bundle.tar.gz"
    await done(lent.kubeconfig, "support-bundle", "-q", "-f", str(bundle))
    with tarfile.open(bundle) as packed:
        texts = [packed.extractfile(each) for each in packed.getmembers()]
        whole = b"".join(text.read() for text in texts if text is not None).decode()
    assert PLANTED not in whole
    assert "token-of-edge" in whole


async def bare_cluster_says_so(lent: Lent) -> None:
    """On a cluster that is no hub, kinds that are missing are told, and are no failure."""
    async with Client(lent.connection) as client:
        fleet = await read_fleet(client)

    assert len(fleet.warnings) == len(KINDS)
    printed = await type_in(lent.kubeconfig, "status")
    assert (printed.code, printed.out) == (0, "No clusters and no installations yet.\n")
    assert "knativeservings.operator.knative.dev are not installed on this cluster" in printed.err
    assert "This cluster is no hub; `knfleet init` makes it one." in printed.err


async def prepare(client: Client) -> None:
    """Install the CRDs of a hub, and namespaces."""
    crds = {each["metadata"]["name"]: each for each in (*definitions(), *hub_definitions())}
    for each in crds.values():
        for version in each["spec"]["versions"]:
            # So an object and its status are one request.
            version.pop("subresources", None)
    await asyncio.gather(*(client.apply(CRDS, each) for each in crds.values()))
    for name in crds:
        await established(client, name)
    for name in ("knative", "fleet"):
        await client.apply(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )
    meta = {"name": "token-of-edge", "namespace": "fleet"}
    secret: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
    await client.create(SECRETS, secret | {"stringData": {"token": PLANTED}})


async def fill(client: Client) -> None:
    """Make the clusters, a profile and two installations for each; the first one is broken."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def make(kind: Resource, manifest: Object) -> None:
        async with gate:
            await client.create(kind, manifest)

    async with asyncio.TaskGroup() as group:
        for kind, manifest in objects():
            group.create_task(make(kind, manifest))


def objects() -> Iterable[tuple[Resource, Object]]:
    """All that a hub with so many clusters has."""
    for number in range(COUNT):
        name = f"edge-{number:03}"
        health = "True" if number else "Unknown"
        yield CLUSTERS, managed(name, health)
        published = profile(name)
        published["spec"] = {"clusterManager": {"name": "open-cluster-management"}}
        # Whether a cluster is healthy is read from the ManagedCluster where there is one.
        del published["status"]
        yield PROFILES, published
        ready = condition(READY, "True")
        lost = condition(READY, "False", "ClusterProfileNotReady", "it is not healthy")
        for kind in (SERVINGS, EVENTINGS):
            said = lost if not number and kind == SERVINGS else ready
            made = install(name, said, on=name, version="1.23.0", resource=kind)
            made["status"]["observedGeneration"] = 1
            yield kind, made


async def completions(kubeconfig: Path, line: str) -> list[str]:
    """What bash is told for a line whose last word is to be completed."""
    asked = {
        "_KNFLEET_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "KNFLEET_COMPLETION_SECONDS": "60",
        "KUBECONFIG": str(kubeconfig),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "knfleet"),
        env={**os.environ, **asked},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return [entry.partition(",")[2] for entry in out.decode().splitlines()]
