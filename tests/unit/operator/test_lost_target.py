"""What a removal does when its target is lost, by the clock."""

from datetime import UTC, datetime, timedelta

import pytest

from knfleet.api.meta import Object
from knfleet.operator.uninstall.lost_target import (
    GRACE,
    ON_LOST_TARGET,
    LostPolicy,
    policy_of,
    policy_problem,
    remaining_seconds,
)

LOST_AT = datetime(2026, 1, 1, tzinfo=UTC)


def resource(policy: str = "", grace: str = "", *, is_lost: bool = True) -> Object:
    """A custom resource on a target that is lost, or not."""
    annotations = {ON_LOST_TARGET: policy, GRACE: grace}
    condition = {
        "type": "TargetClusterResolved",
        "status": "False" if is_lost else "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    given = {name: text for name, text in annotations.items() if text}
    return {"metadata": {"annotations": given}, "status": {"conditions": [condition]}}


@pytest.mark.parametrize(
    ("manifest", "minutes", "left"),
    [
        (resource(), 10_000, float("inf")),
        (resource("wait"), 10_000, float("inf")),
        (resource("defer"), 0, 3600),
        (resource("defer"), 59, 60),
        (resource("defer"), 60, 0),
        (resource("defer"), 600, 0),
        (resource("defer", "30m"), 10, 1200),
        (resource("defer", "soon"), 10, 3000),
        (resource("defer", is_lost=False), 10_000, 3600),
        (resource("orphan"), 0, 0),
        (resource("force"), 0, 0),
        (resource("forget"), 10_000, float("inf")),
    ],
)
def test_how_long_a_removal_waits_for_a_lost_target(
    manifest: Object, minutes: int, left: float
) -> None:
    """From when it was lost, whichever process noted that."""
    assert remaining_seconds(manifest, LOST_AT + timedelta(minutes=minutes)) == left


def test_a_policy_that_makes_no_sense_waits_and_is_named() -> None:
    """With what it may be."""
    assert policy_of(resource("forget")) is LostPolicy.WAIT
    assert policy_problem(resource("forget")).endswith("must be wait, defer, orphan or force")
    assert "an hour counts" in policy_problem(resource("defer", "soon"))
    assert policy_problem(resource("defer", "30m")) == ""
