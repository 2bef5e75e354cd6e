"""Our outcomes are those that were compared with the Knative Operator's."""

import asyncio
from pathlib import Path

import pytest

from knfleet.kube.client.verbs import Client
from testbed.clusters import Pool
from testbed.peers.goproject import modules_digest
from tests.peers import golden
from tests.peers.corpus import CORPUS
from tests.peers.ours import Ours

pytestmark = pytest.mark.xdist_group("golden")


@pytest.fixture(scope="module")
def outcomes(
    pool: Pool, bundle_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The digests of our outcomes, by sample."""

    async def render_all() -> dict[str, str]:
        (lent,) = await pool.lend(1)
        async with Client(lent.connection) as client:
            ours = Ours(bundle_root, client, tmp_path_factory.mktemp("ours"))
            return {each.name: golden.digest(each, await ours.outcome(each)) for each in CORPUS}

    return asyncio.run(render_all())


def test_every_outcome_was_compared(outcomes: dict[str, str]) -> None:
    """A change of an outcome needs a comparison with the Knative Operator itself."""
    recorded = golden.read()

    changed = [name for name, digest in outcomes.items() if recorded.samples.get(name) != digest]

    assert changed == [], "not compared with the Knative Operator yet: run `make peers`"
    assert recorded.operator == modules_digest(), "another Knative Operator: run `make peers`"
