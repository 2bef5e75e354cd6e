"""What the process counts and says of itself over HTTP."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp

from knfleet.api.core import PODS
from knfleet.api.meta import HUB, ClusterName, Key, Request
from knfleet.kube.client.options import ClientObserver
from knfleet.runtime.controller import Controller, ControllerOptions, Result
from knfleet.runtime.http.health import HealthServer
from knfleet.runtime.http.listen_address import ListenAddress, bind_host
from knfleet.runtime.metrics import Metrics
from knfleet.runtime.queue import QueueOptions
from testbed.fakes.sockets import free_port
from testbed.waiting import PATIENCE_SECONDS
from tests.unit.runtime.clocks import HandClock

GONE, STAYS = ClusterName("gone"), ClusterName("stays")


async def text(metrics: Metrics) -> str:
    body, _ = await metrics.scrape()
    return body.decode()


async def test_requests_are_counted_by_cluster_verb_and_class_of_code():
    """Not by path, not by object."""
    metrics = Metrics()
    observer: ClientObserver = metrics
    observer.request(HUB, "get", 200, 0.02)
    observer.request(HUB, "get", 204, 0.02)
    observer.request(HUB, "get", 0, 0.02)

    told = await text(metrics)

    assert 'knfleet_client_requests_total{cluster="hub",code="2xx",verb="get"} 2.0' in told
    assert 'knfleet_client_requests_total{cluster="hub",code="none",verb="get"} 1.0' in told
    assert 'knfleet_client_request_duration_seconds_count{verb="get"} 3.0' in told


async def test_what_was_counted_for_a_cluster_goes_when_it_leaves():
    """Other clusters keep theirs, and one that comes back starts anew."""
    metrics = Metrics()
    for cluster in (GONE, STAYS):
        metrics.request(cluster, "get", 200, 0.1)
        metrics.watch_restarted(cluster, PODS, None)
        metrics.credential_refreshed(cluster)
        metrics.event(cluster, "dropped")

    metrics.forget(GONE)
    told = await text(metrics)
    metrics.request(GONE, "get", 200, 0.1)

    assert 'cluster="gone"' not in told
    assert told.count('_total{cluster="stays"') == 4
    assert 'requests_total{cluster="gone",code="2xx",verb="get"} 1.0' in await text(metrics)


async def test_a_controller_and_its_queue_are_counted():
    """Depth and age are as they are at the moment of asking."""
    metrics = Metrics()
    clock = HandClock()
    bound = metrics.controller("serving")

    async def reconcile(request: Request) -> Result:
        return Result.never()

    controller = Controller(
        "serving",
        reconcile,
        ControllerOptions(queue=QueueOptions(clock=clock, observe=bound), observe=bound),
    )
    metrics.watch_queue("serving", controller.queue)
    for name in ("a", "b", "c"):
        controller.queue.add(Request(HUB, Key("", name)))
    taken = controller.queue.take()
    clock.advance(7)
    told = await text(metrics)
    assert taken is not None
    await controller.process(taken)

    assert 'knfleet_workqueue_depth{name="serving"} 2.0' in told
    assert 'knfleet_workqueue_adds_total{name="serving"} 3.0' in told
    assert 'knfleet_workqueue_longest_running_seconds{name="serving"} 7.0' in told
    done = await text(metrics)
    assert 'knfleet_reconcile_total{controller="serving",result="success"} 1.0' in done
    assert 'knfleet_reconcile_duration_seconds_count{controller="serving"} 1.0' in done


async def test_two_sets_of_metrics_do_not_meet():
    """No registry is shared by the whole process."""
    one, other = Metrics(), Metrics()
    one.leader(leads=True)

    assert "knfleet_leader 1.0" in await text(one)
    assert "knfleet_leader 0.0" in await text(other)


def test_where_to_listen():
    """All addresses in a pod, loopback elsewhere, unless said otherwise."""
    assert bind_host({}) == "127.0.0.1"
    assert bind_host({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) is None
    assert bind_host({"KNFLEET_BIND_ADDRESS": "::1", "KUBERNETES_SERVICE_HOST": "x"}) == "::1"


@asynccontextmanager
async def served(health: HealthServer) -> AsyncGenerator[aiohttp.ClientSession]:
    """A session with the server, which runs as long as the block."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        task = asyncio.ensure_future(health.run())
        await health.listening.wait()
        assert health.address is not None
        host, port = health.address
        try:
            async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
                yield session
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def ask(session: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    async with session.get(path) as answer:
        return answer.status, await answer.text()


async def test_health_and_readiness_are_different_questions():
    """A process that waits for its cluster is healthy, and not ready."""
    health = HealthServer(ListenAddress(port=free_port()))
    health.health["loop"] = lambda: None
    health.readiness["informers"] = lambda: "waiting for hub"

    def broken() -> str:
        raise KeyError("x")

    health.readiness["odd"] = broken
    async with served(health) as session:
        assert await ask(session, "/healthz") == (200, "ok")
        assert await ask(session, "/healthz?verbose") == (
            200,
            "[+]loop ok\nhealthz check passed\n",
        )
        assert await ask(session, "/readyz") == (
            503,
            "[-]informers failed: waiting for hub\n[-]odd failed: KeyError\nreadyz check failed\n",
        )
        assert (await ask(session, "/metrics"))[0] == 404


async def test_metrics_are_served_as_prometheus_reads_them():
    """In the format that it asks for."""
    metrics = Metrics()
    metrics.leader(leads=True)
    async with served(HealthServer(ListenAddress(port=free_port()), metrics)) as session:
        status, told = await ask(session, "/metrics")
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        async with session.get("/metrics", headers=accept) as answer:
            kind = answer.headers["Content-Type"]

    assert (status, "knfleet_leader 1.0" in told) == (200, True)
    assert kind.startswith("application/openmetrics-text")
