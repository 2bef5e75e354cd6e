"""The Knative Operator and knfleet make the same of every sample, but for the listed differences.

`KNFLEET_PEERS=quick` compares a few samples, and all those that the Knative Operator has installed
on this machine before; `KNFLEET_PEERS=all` compares all of them, and takes its time once.
"""

import pytest

from tests.peers.corpus import CORPUS
from tests.peers.differences import DELIBERATE
from tests.peers.laboratory import Compared
from tests.peers.samples import Sample

pytestmark = pytest.mark.xdist_group("peers")


@pytest.mark.parametrize("sample", CORPUS, ids=[sample.name for sample in CORPUS])
def test_both_make_the_same_of_a_custom_resource(sample: Sample, compared: dict[str, Compared]):
    """Every difference is one of the list, and those that the list promises are really there."""
    if sample.name not in compared:
        pytest.skip("not installed by the Knative Operator yet; KNFLEET_PEERS=all has it done")
    found = compared[sample.name].differences

    unexpected = [str(each) for each in found if not any(d.covers(each) for d in DELIBERATE)]
    unseen = [
        deliberate.reason
        for deliberate in DELIBERATE
        if deliberate.shown_by == sample.name and not any(deliberate.covers(d) for d in found)
    ]

    assert unexpected == []
    assert unseen == []
    assert compared[sample.name].objects or compared[sample.name].problem
