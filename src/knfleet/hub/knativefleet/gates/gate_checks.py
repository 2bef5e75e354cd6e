"""Asks the addresses of gates, with bounds on everything that they can do.

An address gets no credential of any cluster, is not followed to another one, and leads never to
link-local or metadata addresses. It leads to loopback only if the hub was started so: what listens
there beside the hub, in its own pod, takes other clients to be a part of the pod.
"""

import asyncio
from collections.abc import Iterable
from urllib.parse import urlencode

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from msgspec import Struct

from knfleet import __version__
from knfleet.api.fleet.gate_types import FleetGate
from knfleet.api.fleet.knativefleet import KnativeFleet
from knfleet.api.meta import Object
from knfleet.hub.knativefleet.gates.gate_results import GateResult, query_result, webhook_result
from knfleet.release.source.address_guard import AddressGuard

SECONDS = 10.0
ANSWER_BYTES = 1024 * 1024
QUERY_PATH = "/api/v1/query"
HTTP_OK = 200


class GateLimits(Struct, frozen=True):
    """How far a check may go."""

    seconds: float = SECONDS
    bytes: int = ANSWER_BYTES
    loopback: bool = False
    """Whether addresses of the hub's own machine or pod may be asked."""


class AnswerTooLarge(Exception):
    """An answer has more bytes than it may."""


class GateChecks:
    """Checks gates."""

    def __init__(self, limits: GateLimits | None = None) -> None:
        self.limits = limits or GateLimits()

    async def check_all(
        self, fleet: KnativeFleet, wave: str, gates: Iterable[FleetGate]
    ) -> dict[str, GateResult]:
        """What gates say now, all asked at once."""
        chosen = list(gates)
        found = await asyncio.gather(*(self.check(fleet, wave, each) for each in chosen))
        return {gate.name: result for gate, result in zip(chosen, found, strict=True)}

    async def check(self, fleet: KnativeFleet, wave: str, gate: FleetGate) -> GateResult:
        """What a gate says now; Waiting when it cannot be asked."""
        guard = AddressGuard(loopback=self.limits.loopback)
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await self.ask(guard, fleet, wave, gate)
        except TimeoutError:
            return GateResult("Waiting", f"no answer within {self.limits.seconds:g} s")
        except AnswerTooLarge:
            return GateResult("Waiting", f"the answer has more than {self.limits.bytes} bytes")
        except (ClientError, OSError, ValueError) as error:
            text = f"{guard.refused} is not allowed" if guard.refused else str(error)
            return GateResult("Waiting", f"cannot be asked: {text or type(error).__name__}")

    async def ask(
        self, guard: AddressGuard, fleet: KnativeFleet, wave: str, gate: FleetGate
    ) -> GateResult:
        """Ask the address of a gate."""
        connector = TCPConnector(socket_factory=guard.socket, use_dns_cache=False)
        headers = {"User-Agent": f"knfleet/{__version__}", "Accept-Encoding": "identity"}
        async with ClientSession(
            connector=connector,
            headers=headers,
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=self.limits.seconds),
            auto_decompress=False,
        ) as session:
            if gate.prometheus is not None:
                url = gate.prometheus.url.rstrip("/") + QUERY_PATH
                form = urlencode({"query": gate.prometheus.query})
                kind = "application/x-www-form-urlencoded"
                code, body = await self.post(session, url, form.encode(), kind)
                if code != HTTP_OK:
                    return GateResult("Waiting", f"Prometheus answered with status {code}")
                return query_result(gate.prometheus, body)
            if gate.webhook is not None:
                told = msgspec.json.encode(subject(fleet, wave, gate))
                code, body = await self.post(session, gate.webhook.url, told, "application/json")
                return webhook_result(code, body)
        return GateResult("Waiting", "the gate has no address")

    async def post(
        self, session: ClientSession, url: str, body: bytes, kind: str
    ) -> tuple[int, bytes]:
        """Status and body of an answer; raises AnswerTooLarge."""
        async with session.post(
            url, data=body, headers={"Content-Type": kind}, allow_redirects=False
        ) as response:
            content = bytearray()
            async for chunk in response.content.iter_chunked(65536):
                content += chunk
                if len(content) > self.limits.bytes:
                    raise AnswerTooLarge
            return response.status, bytes(content)


def subject(fleet: KnativeFleet, wave: str, gate: FleetGate) -> Object:
    """What a webhook gets."""
    return {
        "fleet": fleet.metadata.name,
        "gate": gate.name,
        "wave": wave,
        "revision": fleet.status.rollout.number,
    }
