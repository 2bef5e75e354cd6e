"""What consumers of a Placement may conclude from it."""

import pytest

from knfleet.api.meta import Object
from knfleet.hub.placement.decisions.decision_groups import agrees
from knfleet.hub.rollout.rollout_model import Group

SCHEDULED = [{"type": "PlacementSatisfied", "status": "True"}]


@pytest.mark.parametrize(
    ("status", "clusters", "is_known"),
    [
        ({}, (), False),
        ({"conditions": SCHEDULED}, (), True),
        ({"conditions": SCHEDULED, "numberOfSelectedClusters": 2}, ("a", "b"), True),
        ({"conditions": SCHEDULED, "numberOfSelectedClusters": 2}, ("a",), False),
        ({"numberOfSelectedClusters": 1}, ("a",), False),
    ],
)
def test_what_a_placement_selects_is_known_when_it_and_its_decisions_agree(
    status: Object, clusters: tuple[str, ...], is_known: bool
):
    """A Placement without conditions was not scheduled yet: works stay as they are."""
    assert agrees({"status": status}, [Group(0, clusters)]) is is_known
