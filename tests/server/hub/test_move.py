"""`knfleet move`, typed against a real API server; the operator is played by the test."""

from collections.abc import AsyncIterator

import pytest

from knfleet.api.fleet.fleet_names import FLEET_LABEL
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from testbed.clusters import Lent
from testbed.waiting import until
from tests.support.commands import done, refused
from tests.support.knative_fleets import (
    SERVING,
    SPACE,
    OperatorDouble,
    add_profiles,
    operated,
    remove_all,
)
from tests.support.placements import thing

HOLD = "test.knfleet.dev/hold"


@pytest.fixture
async def operator(fleet: Client) -> AsyncIterator[OperatorDouble]:
    """An operator for the clusters a, b and c; a has Knative Serving."""
    await add_profiles(fleet, ["a", "b", "c"])
    made = serving("edge-a", "a")
    made["metadata"]["labels"] = {"team": "blue"}
    made["metadata"]["annotations"] = {"example.com/owner": "blue"}
    await fleet.create(SERVINGS, made)
    async with operated(fleet) as double:
        yield double
    await remove_all(fleet)


def serving(name: str, profile: str) -> Object:
    """Knative Serving on a cluster."""
    reference = {"name": profile, "namespace": SPACE}
    return thing(
        SERVINGS,
        name,
        SERVING,
        spec={"version": "1.22.0", "ingress": {}, "clusterProfileRef": reference},
    )


async def there_are(client: Client, *names: str) -> None:
    """Wait until there are exactly these custom resources."""

    async def are() -> bool:
        found = await client.list(SERVINGS, SERVING)
        return sorted(each["metadata"]["name"] for each in found.items) == sorted(names)

    await until(are, f"there are {names}")


async def test_an_installation_is_made_on_the_new_cluster_before_the_old_one_goes(
    fleet: Client, fleet_lent: Lent, operator: OperatorDouble
):
    """A move that has not ended is taken back, or goes on."""
    config = fleet_lent.kubeconfig
    operator.refused.add(("b", "1.22.0"))

    steps = (await done(config, "move", "edge-a", "--to", "b", "--dry-run")).splitlines()
    assert steps == [
        f"create KnativeServing {SERVING}/edge-b on ClusterProfile {SPACE}/b",
        f"wait until KnativeServing {SERVING}/edge-b is Ready",
        f"delete KnativeServing {SERVING}/edge-a, and wait until its cluster is clean",
    ]
    await there_are(fleet, "edge-a")

    late = await refused(config, "move", "edge-a", "--to", "b", "--timeout", "1")
    assert f"KnativeServing {SERVING}/edge-b is not Ready" in late
    assert "run the same command to go on, or `knfleet move edge-a --abort`" in late
    await there_are(fleet, "edge-a", "edge-b")
    other = await refused(config, "move", "edge-a", "--to", "c")
    assert f"is being moved to ClusterProfile {SPACE}/b" in other
    back = await done(config, "move", "edge-a", "--abort")
    assert back == (
        f"KnativeServing {SERVING}/edge-b is deleted; {SERVING}/edge-a stays as it was\n"
    )
    assert "is not being moved" in await refused(config, "move", "edge-a", "--abort")

    await refused(config, "move", "edge-a", "--to", "b", "--timeout", "1")
    operator.refused.clear()
    operator.changed.set()
    ended = await done(config, "move", "edge-a", "--to", "b")
    assert ended.splitlines() == [
        f"KnativeServing {SERVING}/edge-b is Ready",
        f"KnativeServing {SERVING}/edge-a is deleted",
    ]
    await there_are(fleet, "edge-b")
    moved = await fleet.get(SERVINGS, "edge-b", SERVING)
    assert moved["spec"]["clusterProfileRef"] == {"name": "b", "namespace": SPACE}
    assert moved["spec"]["version"] == "1.22.0"
    assert moved["metadata"]["labels"] == {"team": "blue"}
    assert moved["metadata"]["annotations"]["example.com/owner"] == "blue"
    again = await done(config, "move", "edge-a", "--to", "b")
    assert again == f"KnativeServing {SERVING}/edge-b is Ready\n"


@pytest.mark.full
async def test_the_old_cluster_is_waited_for(
    fleet: Client, fleet_lent: Lent, operator: OperatorDouble
):
    """A removal that takes longer than the command goes on by itself."""
    config = fleet_lent.kubeconfig
    key = Key(SERVING, "edge-a")
    await fleet.patch(SERVINGS, key, {"metadata": {"finalizers": [HOLD]}})

    late = await refused(config, "move", "edge-a", "--to", f"{SPACE}/c", "--timeout", "5")

    assert f"KnativeServing {SERVING}/edge-a is being deleted" in late
    assert "it goes on by itself" in late
    gone = await refused(config, "move", "edge-a", "--abort")
    assert f"is being deleted already, and {SERVING}/edge-c replaces it" in gone
    await fleet.patch(SERVINGS, key, {"metadata": {"finalizers": None}})
    await there_are(fleet, "edge-c")


async def test_what_cannot_be_moved_is_refused_with_what_to_do(
    fleet: Client, fleet_lent: Lent, operator: OperatorDouble
):
    config = fleet_lent.kubeconfig
    await fleet.create(SERVINGS, serving("other", "b"))
    child = serving("prod-c", "c")
    child["metadata"]["labels"] = {FLEET_LABEL: "prod"}
    await fleet.create(SERVINGS, child)

    async def says(*arguments: str) -> str:
        return await refused(config, "move", *arguments)

    assert "ClusterProfile d does not exist; there are a, b, c" in await says("edge-a", "--to", "d")
    assert f"is on ClusterProfile {SPACE}/a already" in await says("edge-a", "--to", "a")
    occupied = await says("edge-a", "--to", "b")
    assert f"ClusterProfile {SPACE}/b has KnativeServing {SERVING}/other already" in occupied
    belongs = await says("prod-c", "--to", "a")
    assert "belongs to KnativeFleet prod; change spec.clusters of the fleet instead" in belongs
    assert "nothing on this hub is called edge" in await says("edge", "--to", "b")
    assert "name the new cluster with --to" in await says("edge-a")
    with pytest.raises(NotFound):
        await fleet.get(SERVINGS, "edge-b", SERVING)
