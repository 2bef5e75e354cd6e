"""Gates of fleets, asked over real connections on loopback."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from knfleet.api.fleet.fleet_members import FleetClusters
from knfleet.api.fleet.gate_types import FleetGate, PrometheusGate, WebhookGate
from knfleet.api.fleet.knativefleet import KnativeFleet, KnativeFleetSpec
from knfleet.api.schema import ObjectMeta
from knfleet.hub.knativefleet.gates.gate_checks import GateChecks, GateLimits
from knfleet.hub.knativefleet.gates.gate_results import (
    GateResult,
    gate_views,
    next_check,
    query_result,
    updated,
)
from tests.support.loopback import on_loopback

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FLEET = KnativeFleet(
    metadata=ObjectMeta(name="prod"), spec=KnativeFleetSpec(clusters=FleetClusters(namespace="x"))
)

LOCAL = GateChecks(GateLimits(loopback=True))
"""Asks servers of a test, which are on loopback."""


def vector(*values: str) -> bytes:
    series = [{"value": [0, value]} for value in values]
    data = {"resultType": "vector", "result": series}
    return msgspec.json.encode({"status": "success", "data": data})


def prometheus(url: str, least: str | None = None, most: str | None = "0.01") -> FleetGate:
    return FleetGate(
        name="errors", prometheus=PrometheusGate(url=url, query="rate(x[5m])", min=least, max=most)
    )


@pytest.mark.parametrize(
    ("body", "state", "message"),
    [
        (vector("0.001", "0.01"), "Passed", "0.01 is within max 0.01"),
        (vector("0.001", "0.02"), "Failed", "0.02 is not within max 0.01"),
        (vector("NaN"), "Failed", "nan is not within"),
        (vector(), "Waiting", "no result"),
        (b'{"status":"error","error":"parse error"}', "Waiting", "the query failed: parse error"),
        (b'{"status":"success","data":{"resultType":"scalar","result":[0,"0"]}}', "Passed", "0 is"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "Waiting", "not one"),
        (b"<html>", "Waiting", "not one of Prometheus"),
        (b"[" * 3000, "Waiting", "not one of Prometheus"),
        (b'{"data":' + b"[" * 3000, "Waiting", "not one of Prometheus"),
        (
            b'{"status":"success","data":{"resultType":"vector","result":[{}]}}',
            "Waiting",
            "not one",
        ),
    ],
)
def test_all_values_of_a_query_must_be_within_bounds(body: bytes, state: str, message: str):
    gate = prometheus("http://x").prometheus
    assert gate is not None

    result = query_result(gate, body)

    assert result.state == state
    assert message in result.message


async def test_prometheus_is_asked_without_credentials(tmp_path: Path):
    seen: list[tuple[str, str, dict[str, str]]] = []

    async def answer(request: web.Request) -> web.Response:
        form = await request.post()
        seen.append((request.path, str(form["query"]), dict(request.headers)))
        return web.Response(body=vector("0.5"))

    async with on_loopback(tmp_path, answer) as url:
        result = await LOCAL.check(FLEET, "canary", prometheus(f"{url}/prom/"))

    assert result == GateResult("Failed", "0.5 is not within max 0.01")
    ((path, query, headers),) = seen
    assert (path, query) == ("/prom/api/v1/query", "rate(x[5m])")
    assert {"Authorization", "Cookie"}.isdisjoint(headers)


@pytest.mark.parametrize(
    ("status", "state"), [(200, "Passed"), (425, "Waiting"), (500, "Failed"), (302, "Failed")]
)
async def test_a_webhook_decides_by_its_status(tmp_path: Path, status: int, state: str):
    told: list[object] = []

    async def answer(request: web.Request) -> web.Response:
        told.append(await request.json())
        headers = {"Location": "/elsewhere"} if status == 302 else {}
        return web.Response(status=status, text="because", headers=headers)

    async with on_loopback(tmp_path, answer) as url:
        gate = FleetGate(name="ask", webhook=WebhookGate(url=f"{url}/check"))
        result = await LOCAL.check(FLEET, "canary", gate)

    assert result.state == state
    assert "because" in result.message
    assert told == [{"fleet": "prod", "gate": "ask", "wave": "canary", "revision": 0}]


async def test_an_address_that_misbehaves_only_makes_a_gate_wait(tmp_path: Path):
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        if request.path.startswith("/silent"):
            await asyncio.Event().wait()
        while True:
            await response.write(b"x" * 10_000)

    checks = GateChecks(GateLimits(seconds=0.5, bytes=100_000, loopback=True))
    async with on_loopback(tmp_path, endless) as url:
        large = await checks.check(FLEET, "w", prometheus(url))
        silent = await checks.check(FLEET, "w", prometheus(f"{url}/silent"))
    closed = await checks.check(FLEET, "w", prometheus(url))
    metadata = await checks.check(FLEET, "w", prometheus("http://169.254.169.254"))

    assert large == GateResult("Waiting", "the answer has more than 100000 bytes")
    assert silent == GateResult("Waiting", "no answer within 0.5 s")
    assert closed.message.startswith("cannot be asked: ")
    assert metadata == GateResult("Waiting", "cannot be asked: 169.254.169.254 is not allowed")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_a_gate_does_not_reach_the_pod_of_the_hub(tmp_path: Path, host: str):
    """What listens there takes its clients to be a part of the hub."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response()

    async with on_loopback(tmp_path, answer) as url:
        hidden = url.replace("127.0.0.1", host)
        gate = FleetGate(name="ask", webhook=WebhookGate(url=hidden))
        result = await GateChecks().check(FLEET, "canary", gate)

    assert result.state == "Waiting"
    assert "is not allowed" in result.message
    assert asked == []


def test_a_gate_fails_the_rollout_only_after_its_limit_and_not_after_a_retry():
    gates = [prometheus("http://x")]
    known = updated([], "w", {"errors": GateResult("Failed", "bad")}, NOW, None)
    known = updated(known, "w", {"errors": GateResult("Waiting")}, NOW, None)
    known = updated(known, "w", {"errors": GateResult("Failed", "bad")}, NOW, None)

    assert gate_views(gates, known, None)["w"].failed == {}
    known = updated(known, "w", {"errors": GateResult("Failed", "worse")}, NOW, None)
    assert gate_views(gates, known, None)["w"].failed == {"errors": "worse"}
    assert gate_views(gates, known, NOW + timedelta(seconds=1))["w"].failed == {}
    again = updated(known, "w", {"errors": GateResult("Passed")}, NOW, NOW)
    assert gate_views(gates, again, None)["w"].passed == {"errors"}


def test_a_gate_is_asked_once_in_its_interval():
    gate = prometheus("http://x")
    (status,) = updated([], "w", {"errors": GateResult("Waiting")}, NOW, None)

    assert next_check(gate, None) is None
    assert next_check(gate, status) == NOW + timedelta(seconds=30)
