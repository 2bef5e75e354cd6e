"""`knfleet operator` as a program: flags, start-up, ports, election, end."""

import asyncio
from pathlib import Path

import pytest

from knfleet.api.core import CONFIG_MAPS, CRDS, LEASES, NAMESPACES
from knfleet.api.crds.generator import definitions
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.kube.client.verbs import Client
from knfleet.operator.settings import LEASE
from testbed.clusters import Lend, Lent
from testbed.operators import Hub, Operator
from testbed.waiting import until


async def said(operator: Operator, words: str) -> None:
    """Wait until something is logged."""
    await until(lambda: words in operator.said(), f"it logs {words!r}")


async def ended(operator: Operator) -> int:
    """Wait until it ends; its exit code."""
    assert operator.process is not None
    return await asyncio.wait_for(operator.process.wait(), 60)


async def is_well(operator: Operator, path: str) -> bool:
    """Whether it answers, and answers that it is well."""
    try:
        return (await operator.fetch(path)).startswith("ok")
    except OSError:
        return False


@pytest.mark.full
async def test_missing_definitions_are_named_and_waited_for(
    lend: Lend, small_root: Path, tmp_path: Path
) -> None:
    """It is alive meanwhile, and of use when they come."""
    (lent,) = await lend(1)
    operator = Operator(lent.kubeconfig, small_root, tmp_path / "operator.log")
    await operator.start("-disable-ha", "--v=0", "-logtostderr=true", "--kube-api-qps=50")
    try:
        await said(operator, "custom resource definitions are missing; waiting for them")
        await said(operator, "knfleet manifests --crds | kubectl apply -f -")
        assert await is_well(operator, "/health")
        assert not await is_well(operator, "/readiness")

        async with Client(lent.connection) as client:
            for manifest in definitions():
                await client.apply(CRDS, manifest)

        await until(lambda: is_well(operator, "/readiness"), "it is of use")
        assert await operator.stop() == 0
    finally:
        await operator.kill()


async def test_an_old_kubernetes_is_refused(lent: Lent, small_root: Path, tmp_path: Path) -> None:
    """With both versions, and the way around it."""
    operator = Operator(lent.kubeconfig, small_root, tmp_path / "operator.log")
    await operator.start("--disable-ha", KUBERNETES_MIN_VERSION="v1.99.0")

    assert await ended(operator) == 1
    assert "is older than v1.99.0" in operator.said()
    assert "KUBERNETES_MIN_VERSION" in operator.said()
    await operator.kill()


async def test_without_release_files_it_says_where_to_get_some(lent: Lent, tmp_path: Path) -> None:
    """One sentence, no traceback."""
    operator = Operator(lent.kubeconfig, tmp_path / "nothing", tmp_path / "operator.log")
    await operator.start("--disable-ha")

    assert await ended(operator) == 1
    assert "there is no such folder" in operator.said()
    assert "Traceback" not in operator.said()
    await operator.kill()


async def test_it_leads_by_the_go_operators_lease_and_gives_it_back(
    knative_hub: Hub, small_root: Path, tmp_path: Path
) -> None:
    """While another process holds it nothing is installed; settings are read while it runs."""
    hub = knative_hub
    namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ops"}}
    await hub.client.create(NAMESPACES, namespace)
    election = {"lease-duration": "30s", "renew-deadline": "20s", "retry-period": "1s"}
    await hub.client.create(
        CONFIG_MAPS, {"metadata": {"name": "config-leader-election"}, "data": election}, "ops"
    )
    first, second = (
        Operator(hub.lent.kubeconfig, small_root, tmp_path / f"{name}.log")
        for name in ("first", "second")
    )
    try:
        await first.start("--disable-ha=false", SYSTEM_NAMESPACE="ops")
        await said(first, '"leading"')
        await second.start("--disable-ha=false", SYSTEM_NAMESPACE="ops")
        await said(second, '"following"')
        await hub.create(SERVINGS, version="1.23", ingress={})
        await hub.ready(SERVINGS, "1.23.0")
        assert await second.passes() == 0

        data = {"loglevel.knative-operator": "error"}
        logging: Object = {"metadata": {"name": "config-logging"}, "data": data}
        await hub.client.create(CONFIG_MAPS, logging, "ops")
        assert await first.stop() == 0

        await until(lambda: leads(hub, second), "the second leads")
        await hub.delete(SERVINGS)
        await hub.gone(SERVINGS)
        gauge = 'knfleet_custom_resources{condition="Ready",kind="KnativeServing",status="True"}'
        assert (await second.metrics())[gauge] == 0
    finally:
        await first.kill()
        await second.kill()


async def leads(hub: Hub, operator: Operator) -> bool:
    """Whether a process holds the Lease, and has made a pass."""
    lease = await hub.client.get(LEASES, LEASE, "ops")
    return bool(lease["spec"].get("holderIdentity")) and await operator.passes() > 0


async def test_a_lost_finalizer_comes_back_and_strange_words_are_corrected(
    knative_hub: Hub, small: Operator
) -> None:
    """Somebody takes off the finalizer, somebody writes the status; neither lasts."""
    hub = knative_hub
    await hub.create(SERVINGS, version="1.23", ingress={})
    await hub.ready(SERVINGS, "1.23.0")
    key = Key("knative-serving", "knative")

    await hub.client.patch(SERVINGS, key, {"metadata": {"finalizers": None}})
    await until(lambda: has_finalizer(hub), "the finalizer is back")
    await hub.client.patch(SERVINGS, key, {"status": {"version": "9.9.9"}}, subresource="status")

    await hub.ready(SERVINGS, "1.23.0")


async def has_finalizer(hub: Hub) -> bool:
    """Whether the custom resource has its finalizer."""
    return "finalizers" in (await hub.get(SERVINGS))["metadata"]
