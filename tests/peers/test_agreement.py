"""The Knative Operator and knfleet make the same of every sample, but for the listed differences.

`KNFLEET_PEERS=quick` compares a few samples, and all those that the Knative Operator has installed
on this machine before; `KNFLEET_PEERS=all` compares all of them, and takes its time once.
"""

import pytest

from testbed.peers.samples import Sample
from tests.peers.corpus import CORPUS
from tests.peers.laboratory import Compared

pytestmark = [pytest.mark.xdist_group("peers"), pytest.mark.full]


@pytest.mark.parametrize("sample", CORPUS, ids=[sample.name for sample in CORPUS])
def test_both_make_the_same_of_a_custom_resource(sample: Sample, compared: dict[str, Compared]):
    """Every difference is one of the list, and those that the list promises are really there."""
    if sample.name not in compared:
        pytest.skip("not installed by the Knative Operator yet; KNFLEET_PEERS=all has it done")
    found = compared[sample.name]

    assert found.unexpected() == []
    assert found.unseen(sample.name) == []
    assert found.objects or found.problem
