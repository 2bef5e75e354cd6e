"""Texts that fit where the API takes them, whatever a server or a plugin said."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knfleet.api.conditions import StandardCondition, put
from knfleet.api.knative.conditions import READY, Condition, mark_false
from knfleet.api.texts import bounded
from knfleet.kube.client.responses import HttpResponse, as_error

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
LONG = "é" * 40_000


@given(st.text(max_size=3000), st.integers(min_value=3, max_value=2000))
def test_a_message_fits_and_keeps_its_beginning(message: str, limit: int) -> None:
    """Never half a character, and untouched when it fits."""
    short = bounded(message, limit)
    encoded = message.encode(errors="replace")

    assert len(short.encode(errors="replace")) <= limit
    assert encoded.startswith(short.removesuffix("…").encode(errors="replace"))
    assert (short == message) == (len(encoded) <= limit)


@pytest.mark.parametrize("kind", [Condition, StandardCondition])
def test_no_condition_is_too_long_however_it_is_made(
    kind: type[Condition] | type[StandardCondition],
) -> None:
    """Made, changed or decoded: what the API server would refuse is cut."""
    made = kind(type="A", status="False", message=LONG)
    changed = msgspec.structs.replace(kind(type="A", status="False"), message=LONG)
    decoded = msgspec.convert({"type": "A", "status": "False", "message": LONG}, kind)

    assert {len(each.message.encode()) for each in (made, changed, decoded)} <= {32767, 32768}


def test_a_long_message_that_is_said_again_is_no_change() -> None:
    """Else every pass would write the status."""
    marked = mark_false([], READY, reason="A", message=LONG, now=NOW)
    later = datetime(2027, 1, 1, tzinfo=UTC)
    said = StandardCondition(type="A", status="False", message=LONG)

    assert mark_false(marked, READY, reason="A", message=LONG, now=later) == marked
    assert put(put([], said, NOW), said, later) == put([], said, NOW)


def test_what_a_server_says_in_an_error_is_bounded() -> None:
    """It is logged and put into conditions, by whoever asked."""
    cause = {"field": "spec", "message": LONG}
    status = {"kind": "Status", "code": 422, "message": LONG, "details": {"causes": [cause] * 2}}

    error = as_error(HttpResponse(422, msgspec.json.encode(status)), "spoke: GET /")

    assert len(str(error)) < 40_000
    assert len(str(getattr(error, "causes", ()))) < 80_000
