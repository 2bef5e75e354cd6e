"""What gates say means for a wave. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from knfleet.api import durations
from knfleet.api.fleet.gate_types import FleetGate, PrometheusGate
from knfleet.api.fleet.knativefleet_status import GateStatus
from knfleet.api.knative.conditions import timestamp
from knfleet.api.moments import as_moment
from knfleet.api.texts import bounded
from knfleet.hub.knativefleet.plan.fleet_rollout import GateView
from knfleet.kube.untrusted_json import decode_json

KEPT = 20
MESSAGE_BYTES = 800
LEAST_SECONDS = 1.0
PASSES, TOO_EARLY = 200, 425


class GateResult(Struct, frozen=True):
    """What one check found."""

    state: Literal["Passed", "Waiting", "Failed"]
    """Waiting: nothing was found out, so that it counts neither way."""
    message: str = ""


class QueryData(Struct, frozen=True, rename="camel"):
    """The data of an answer of Prometheus."""

    result_type: str = ""
    result: Any = None


class QueryAnswer(Struct, frozen=True, rename="camel"):
    """An answer of Prometheus."""

    status: str = ""
    data: QueryData = QueryData()
    error: str = ""


def query_result(gate: PrometheusGate, body: bytes) -> GateResult:
    """What an answer of Prometheus means: all values must be within the bounds."""
    try:
        answer = decode_json(body, QueryAnswer)
        values = values_of(answer.data) if answer.status == "success" else []
    except (msgspec.DecodeError, ValueError, TypeError, LookupError, RecursionError):
        return GateResult("Waiting", "the answer is not one of Prometheus")
    if answer.status != "success":
        return GateResult("Waiting", f"the query failed: {answer.error}")
    if not values:
        return GateResult("Waiting", "the query has no result")
    # Written so that a value that is no number is out of bounds.
    bad = [each for each in values if not is_within(gate, each)]
    if bad:
        return GateResult("Failed", f"{bad[0]:g} is not within {bounds(gate)}")
    return GateResult("Passed", f"{max(values):g} is within {bounds(gate)}")


def values_of(data: QueryData) -> list[float]:
    """The values of a scalar or of an instant vector."""
    if data.result_type == "scalar":
        return [float(data.result[1])]
    if data.result_type != "vector":
        raise ValueError("neither a scalar nor a vector")
    series = cast("list[dict[str, Any]]", data.result)
    return [float(each["value"][1]) for each in series]


def is_within(gate: PrometheusGate, value: float) -> bool:
    """Whether a value is within the bounds of a gate."""
    least = gate.min is None or value >= float(gate.min)
    return least and (gate.max is None or value <= float(gate.max))


def bounds(gate: PrometheusGate) -> str:
    """The bounds of a gate, in words."""
    parts = [f"min {gate.min}" if gate.min is not None else ""]
    parts.append(f"max {gate.max}" if gate.max is not None else "")
    return ", ".join(filter(None, parts))


def webhook_result(code: int, body: bytes) -> GateResult:
    """What the answer of a webhook means."""
    text = bounded(body.decode(errors="replace").strip(), MESSAGE_BYTES)
    if code == PASSES:
        return GateResult("Passed", text)
    if code == TOO_EARLY:
        return GateResult("Waiting", text)
    return GateResult("Failed", f"status {code}: {text}" if text else f"status {code}")


def gate_views(
    gates: Sequence[FleetGate], known: Iterable[GateStatus], retried: datetime | None
) -> dict[str, GateView]:
    """What is known of gates, by wave; failures from before a retry do not count."""
    limits = {gate.name: gate.failure_limit for gate in gates}
    views: dict[str, GateView] = {}
    for each in known:
        view = views.get(each.wave, GateView())
        passed, failed = set(view.passed), dict(view.failed)
        if each.state == "Passed":
            passed.add(each.name)
        elif each.failures >= limits.get(each.name, each.failures + 1) and is_after(each, retried):
            failed[each.name] = each.message
        views[each.wave] = GateView(passed=frozenset(passed), failed=failed)
    return views


def is_after(status: GateStatus, retried: datetime | None) -> bool:
    """Whether a gate was checked after the last retry."""
    checked = as_moment(status.checked)
    return retried is None or (checked is not None and checked > retried)


def failures_of(status: GateStatus | None, retried: datetime | None) -> int:
    """How many times a gate failed since the last retry."""
    return status.failures if status is not None and is_after(status, retried) else 0


def next_check(gate: FleetGate, status: GateStatus | None) -> datetime | None:
    """When a gate is checked next; None: now."""
    checked = None if status is None else as_moment(status.checked)
    if checked is None:
        return None
    seconds = max(durations.seconds(gate.interval) or 0.0, LEAST_SECONDS)
    return checked + timedelta(seconds=seconds)


def updated(
    known: Sequence[GateStatus],
    wave: str,
    results: Mapping[str, GateResult],
    now: datetime,
    retried: datetime | None,
) -> list[GateStatus]:
    """The gates of a rollout after some were checked, the newest last."""
    before = {(each.wave, each.name): each for each in known}
    for name, result in results.items():
        old = before.pop((wave, name), None)
        failures = failures_of(old, retried)
        before[wave, name] = GateStatus(
            name=name,
            wave=wave,
            state=result.state,
            failures=failures + (result.state == "Failed"),
            checked=timestamp(now),
            message=bounded(result.message, MESSAGE_BYTES),
        )
    return list(before.values())[-KEPT:]
