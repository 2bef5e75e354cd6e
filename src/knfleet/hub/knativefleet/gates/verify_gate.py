"""Gates that have the clusters of a wave verified.

The hub asks by an annotation of each child, and the operator answers in the child's condition
Verified, so that this needs no access to clusters. A cluster about which nothing was found out is
asked about again; it never counts as verified.
"""

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from msgspec import Struct

from knfleet.api.fleet.fleet_names import RETRY
from knfleet.api.fleet.gate_types import FleetGate, VerifyGate
from knfleet.api.fleet.knativefleet import KnativeFleet
from knfleet.api.knative.resources import Component
from knfleet.api.knative.verification import (
    VERIFY,
    BadVerifyRequest,
    VerifyAnswer,
    VerifyRequest,
    answer_of,
    parse_request,
    request_patch,
)
from knfleet.api.meta import Key, Object
from knfleet.apply.manifest_fields import part
from knfleet.hub.knativefleet.fleet_cache import FleetCache
from knfleet.hub.knativefleet.fleet_events import few
from knfleet.hub.knativefleet.gates.gate_results import GateResult
from knfleet.hub.knativefleet.template.fleet_template import COMPONENTS, KINDS
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, NotFound
from knfleet.operator.kinds import annotations_of, profile_of, uid_of
from knfleet.operator.status.status_builder import status_of

AT_ONCE = 16
"""How many children are asked at once."""


class VerifyCheck(Struct, frozen=True):
    """What a gate found in one child."""

    cluster: str
    answer: VerifyAnswer | None = None
    """The answer to the newest request of this gate, if there is one."""
    ask: VerifyRequest | None = None
    """What is to be asked now."""


class VerifyGates:
    """Checks gates of the kind `verify`."""

    def __init__(self, client: Client, cache: FleetCache) -> None:
        self.client = client
        self.cache = cache

    async def check_all(
        self,
        fleet: KnativeFleet,
        wave: str,
        clusters: Collection[str],
        gates: Mapping[str, tuple[FleetGate, int]],
    ) -> dict[str, GateResult]:
        """What gates say of the clusters of a wave; each comes with its number of failures."""
        found: dict[str, GateResult] = {}
        for name, (gate, failures) in gates.items():
            if gate.verify is None:
                continue
            base = request_base(fleet, wave, gate, failures)
            children = self.children(fleet, clusters)
            checks = [check(manifest, gate.verify, base) for _, manifest in children]
            await self.ask(children, checks)
            found[name] = verify_result(checks)
        return found

    def children(
        self, fleet: KnativeFleet, clusters: Collection[str]
    ) -> list[tuple[Component, Object]]:
        """The children of a fleet on some clusters."""
        namespace = fleet.spec.clusters.namespace
        return [
            (component, manifest)
            for component in COMPONENTS
            for manifest in self.cache.of_fleet(component, fleet.metadata.name)
            if (profile := profile_of(manifest)) is not None
            and profile.namespace == namespace
            and profile.name in clusters
        ]

    async def ask(
        self, children: Iterable[tuple[Component, Object]], checks: Iterable[VerifyCheck]
    ) -> None:
        """Ask what is to be asked; a child that is gone, or changed, is seen in the next pass."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def send(component: Component, manifest: Object, request: VerifyRequest) -> None:
            async with slots:
                with suppress(NotFound, Conflict):
                    patch = request_patch(uid_of(manifest), request)
                    resource = KINDS[component].resource
                    answer = await self.client.patch(resource, Key.of(manifest), patch)
                    self.cache.remember(answer)

        await asyncio.gather(
            *(
                send(component, manifest, found.ask)
                for (component, manifest), found in zip(children, checks, strict=True)
                if found.ask is not None
            )
        )


def request_base(fleet: KnativeFleet, wave: str, gate: FleetGate, failures: int) -> str:
    """What requests of a gate begin with; another one after each failure and each retry."""
    rollout, wanted = fleet.status.rollout, gate.verify or VerifyGate()
    parts = (
        fleet.metadata.uid,
        rollout.revision,
        rollout.started,
        wave,
        gate.name,
        str(failures),
        fleet.metadata.annotations.get(RETRY, ""),
        wanted.image,
        wanted.text,
        wanted.timeout,
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def check(manifest: Object, gate: VerifyGate, base: str) -> VerifyCheck:
    """What a child says to a gate, and what it is asked."""
    annotations = annotations_of(manifest)
    cluster = str(part(manifest, "spec", "clusterProfileRef").get("name", ""))
    try:
        asked = parse_request(annotations.get(VERIFY, "")).request
    except BadVerifyRequest:
        asked = ""
    start, _, number = asked.partition(".")
    if start != base or not number.isdecimal():
        return VerifyCheck(cluster, ask=request(gate, base, 0))
    answer = answer_of(annotations, status_of(manifest).conditions, asked)
    if answer is not None and answer.status == "Unknown":
        return VerifyCheck(cluster, answer, request(gate, base, int(number) + 1))
    return VerifyCheck(cluster, answer)


def request(gate: VerifyGate, base: str, number: int) -> VerifyRequest:
    """The request with a number."""
    return VerifyRequest(
        request=f"{base}.{number}", image=gate.image, text=gate.text, timeout=gate.timeout
    )


def verify_result(checks: Iterable[VerifyCheck]) -> GateResult:
    """What the answers of all children mean for a gate."""
    every = list(checks)
    failed = [each for each in every if each.answer is not None and each.answer.status == "False"]
    if failed:
        return GateResult("Failed", described(failed))
    silent = sorted({each.cluster for each in every if each.answer is None})
    unknown = [each for each in every if each.answer is not None and each.answer.status != "True"]
    if unknown:
        return GateResult("Waiting", f"nothing was verified: {described(unknown)}")
    if silent:
        return GateResult("Waiting", f"being verified: {few(silent)}")
    count = len({each.cluster for each in every})
    return GateResult("Passed", f"{count} clusters were verified" if count else "no clusters")


def described(checks: list[VerifyCheck]) -> str:
    """What the first of some answers says, and which clusters say the like."""
    first = min(checks, key=lambda each: each.cluster)
    text = "" if first.answer is None else f"{first.answer.reason}: {first.answer.message}"
    others = sorted({each.cluster for each in checks} - {first.cluster})
    more = f"; the same kind of answer from {few(others)}" if others else ""
    return f"cluster {first.cluster}: {text}{more}"
