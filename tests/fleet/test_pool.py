"""The pool of clusters that tests use: clean between tests, and gone with its owner."""

import asyncio
import os
import signal
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from knfleet.api.core import CONFIG_MAPS, CRDS, NAMESPACES, SERVICE_ACCOUNTS
from knfleet.api.meta import Key, Object
from knfleet.dev import ports, processes
from knfleet.dev.dev_folder import DevFolder
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from testbed.clusters import Lend, Pool
from testbed.waiting import heed_interrupts, until

HELD_BY_FINALIZER: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "held", "namespace": "dirty", "finalizers": ["example.com/never"]},
}
CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"kind": "Thing", "plural": "things"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


async def test_a_used_cluster_is_lent_clean(lend: Lend) -> None:
    """Namespaces, CRDs, and objects that a dead controller's finalizer holds, are gone."""
    (hub,) = await lend(1)
    async with Client(hub.connection) as client:
        namespace: Object = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "dirty"},
        }
        await client.create(NAMESPACES, namespace)
        account = Key("dirty", "default")
        await until(lambda: exists(client, account), "the namespace has an account")
        await client.create(CONFIG_MAPS, HELD_BY_FINALIZER)
        await client.create(CRDS, CRD)

    (again,) = await lend(1)

    async with Client(again.connection) as client:
        for resource, name in ((NAMESPACES, "dirty"), (CRDS, "things.example.com")):
            with pytest.raises(NotFound):
                await client.get(resource, name)
        assert not await exists(client, account)
        assert await exists(client, Key("default", "default"))


async def exists(client: Client, account: Key) -> bool:
    """Whether a ServiceAccount is there."""
    try:
        await client.get(SERVICE_ACCOUNTS, account.name, account.namespace)
    except NotFound:
        return False
    return True


@pytest.mark.full
async def test_namespaces_end_without_the_controller(pool: Pool, lend: Lend) -> None:
    """It would go on emptying one when there is a new one of the same name already."""
    (hub,) = await lend(1)
    async with Client(hub.connection) as client:
        await client.create(NAMESPACES, {"metadata": {"name": "short"}})
        last: list[Object] = []

        async def follow() -> None:
            events = client.watch(NAMESPACES, fields="metadata.name=short")
            async with aclosing(events):
                async for event in events:
                    if event.type != "BOOKMARK":
                        last.append(event.object)
                    if event.type == "DELETED":
                        return

        following = asyncio.create_task(follow())
        await until(lambda: bool(last), "the namespace is seen")
        await pool.clean("hub")
        await asyncio.wait_for(following, 20)

    marked = [each for each in last if "deletionTimestamp" in each["metadata"]]
    assert marked
    assert [each for each in marked if each["spec"].get("finalizers")] == []


@pytest.mark.full
async def test_a_cluster_that_resists_is_replaced(pool: Pool, lend: Lend) -> None:
    """The new one has the same name and address, and nothing in it."""
    (hub,) = await lend(1)
    async with Client(hub.connection) as client:
        await client.create(CONFIG_MAPS, {"metadata": {"name": "old"}}, "default")

    await pool.renew("hub")

    async with Client(hub.connection) as client:
        with pytest.raises(NotFound):
            await client.get(CONFIG_MAPS, "old", "default")
    await lend(1)


BLOCKED = """
import signal
async def test_blocks(lent):
    open({marker!r}, "w").write(str(lent.folder.root))
    signal.pause()
"""


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.full
async def test_nothing_is_left_of_an_interrupted_run(tmp_path: Path, blow: signal.Signals) -> None:
    """Not even when the test runner is killed without a chance to clean up."""
    marker = tmp_path / "marker"
    test = tmp_path / "test_blocked.py"
    test.write_text(BLOCKED.format(marker=str(marker)))
    project = Path(__file__).parents[2]
    command = ["-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-q", str(test)]
    settings = ["-c", str(project / "pyproject.toml"), f"--basetemp={tmp_path / 'base'}"]
    runner = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        *settings,
        cwd=project,
        env={key: value for key, value in os.environ.items() if "PYTEST" not in key},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )
    await until(lambda: marker.exists() and bool(marker.read_text()), "a test runs", seconds=120)
    folder = DevFolder(Path(marker.read_text()))
    started = list(processes.recorded(folder).values())
    used = [cluster.port for cluster in folder.read().clusters]
    assert len(started) == 4

    runner.send_signal(blow)
    await asyncio.wait_for(runner.wait(), 90)

    await until(lambda: not any(each.live() for each in started), "all processes end")
    await until(lambda: all(ports.is_free(port) for port in used), "all ports are free")
    await until(lambda: not folder.root.exists(), "all files are removed")


@pytest.mark.full
async def test_several_clusters_are_replaced_at_once(pool: Pool) -> None:
    """Who cleans one cluster does not fail because another one is being replaced."""
    lent = await pool.lend(3)

    await asyncio.gather(*(pool.renew(each.name) for each in lent[1:]))

    for each in lent[1:]:
        async with Client(each.connection) as client:
            assert await client.version()
