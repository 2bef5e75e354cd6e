"""What annotations ask for, and what happens to those that make no sense."""

import pytest

from knfleet.dev.node.annotations import (
    BREAK,
    HOLD,
    SLOW,
    Behaviour,
    WebhookBehaviour,
    asked,
    duration_seconds,
    webhook_behaviour,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 5), ("5s", 5), ("1.5s", 1.5), ("250ms", 0.25), ("2m", 120), ("1h", 3600), (" 3s ", 3)],
)
def test_durations_have_units_or_are_seconds(text: str, seconds: float) -> None:
    """As people write them."""
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1s", "5 s", "1d", "s", "1e3"])
def test_other_durations_are_refused(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueError, match="is not a duration"):
        duration_seconds(text)


def test_a_pod_overrules_its_owner_matter_by_matter() -> None:
    """One pod of a held Deployment can be let go, and is still as slow as the others."""
    decided = asked({HOLD: "false"}, {HOLD: "true", SLOW: "10"})

    assert decided.behaviour == Behaviour(hold=False, slow_seconds=10)
    assert decided.problems == ()


def test_nonsense_is_told_and_counts_as_absent() -> None:
    """Every annotation that makes no sense has a sentence of its own."""
    decided = asked({HOLD: "yes", BREAK: "crash loop", SLOW: "soon"}, {})

    assert decided.behaviour == Behaviour()
    assert [problem.partition(":")[0] for problem in decided.problems] == [HOLD, BREAK, SLOW]


def test_a_webhook_allows_unless_told_otherwise() -> None:
    """An unknown answer is no reason to hang."""
    key = "dev.knfleet.dev/webhook"

    assert webhook_behaviour({}) == WebhookBehaviour("allow", 0)
    assert webhook_behaviour({key: "perhaps"}).answer == "allow"
    assert webhook_behaviour({key: "hang", f"{key}-delay": "2s"}) == WebhookBehaviour("hang", 2)
    assert webhook_behaviour({f"{key}-delay": "a bit"}).delay_seconds == 0
