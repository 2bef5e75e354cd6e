"""What a KnativeFleet's status says to users, and when it is not about what they asked for."""

from typing import Any

import pytest

from knfleet.api.fleet.fleet_names import RETRY
from knfleet.api.fleet.knativefleet import RETRY_CHARACTERS, KnativeFleet
from knfleet.api.schema import decode
from knfleet.view.knativefleet.fleet_overview import overview

ROLLED_BACK = {
    "type": "RolledOut",
    "status": "False",
    "reason": "RolledBack",
    "message": "revision 2 is taken back",
}


def rolled_back(retry: str, **status: Any) -> KnativeFleet:
    """A fleet that was rolled back, perhaps with a request to try again."""
    return decode(
        {
            "metadata": {"name": "prod", "generation": 2, "annotations": {RETRY: retry}},
            "spec": {"clusters": {"namespace": "fleet", "names": ["a"]}},
            "status": {"phase": "RolledBack", "conditions": [ROLLED_BACK], **status},
        },
        KnativeFleet,
    )


@pytest.mark.parametrize("retry", ["now", "n" * 2 * RETRY_CHARACTERS])
def test_a_rollback_that_the_hub_knows_a_retry_of_is_its_last_state(retry: str):
    seen = retry[:RETRY_CHARACTERS]
    found = overview(rolled_back(retry, observedGeneration=2, observedRetry=seen))

    assert found.is_stopped
    assert found.message == "revision 2 is taken back"


@pytest.mark.parametrize(
    "status",
    [
        {"observedGeneration": 2},
        {"observedGeneration": 2, "observedRetry": "before"},
        {"observedGeneration": 1, "observedRetry": "now"},
    ],
)
def test_what_was_before_a_change_or_a_retry_ends_no_watch(status: dict[str, Any]):
    found = overview(rolled_back("now", **status))

    assert not found.is_stopped
    assert not found.is_complete
    assert found.message == "the hub has not looked at the change yet"
