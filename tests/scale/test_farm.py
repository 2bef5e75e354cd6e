"""The fake spokes that scale is measured with are like real ones where it counts."""

import asyncio
from pathlib import Path

from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES
from knfleet.api.meta import ClusterName, Key
from knfleet.apply.applyset import ApplySet
from knfleet.apply.change_set import Action
from knfleet.apply.engine import Engine
from knfleet.apply.observe.readiness import ReadinessState, health
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.cache.informer import Informer
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.kube.errors import NetworkError
from testbed import small_release
from testbed.fakes.lean.farm import Farm, Place, a_farm
from testbed.waiting import until

SPACE = "knative-serving"


def client_of(place: Place) -> Client:
    """A client of a spoke."""
    endpoint = Endpoint(place.server, ca=place.ca.encode())
    credential = StaticCredential(Credential(token=place.token))
    return Client(Connection(ClusterName(place.name), endpoint, credential))


async def install(client: Client) -> Engine:
    """Apply the small release."""
    parent = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p", "namespace": "n"}}
    await client.create(CONFIG_MAPS, parent)
    engine = Engine(client, ApplySet(CONFIG_MAPS, Key("n", "p")))
    changes = await engine.apply(small_release.objects("1.23.0"))
    assert changes.settled, str(changes)
    return engine


async def test_what_was_applied_is_unchanged_for_another_process(tmp_path: Path):
    """Managed fields and hashes are there, so that a restart has nothing to write."""
    async with a_farm(tmp_path / "farm", 1) as farm, client_of(farm.places[0]) as client:
        await install(client)
        other = Engine(client, ApplySet(CONFIG_MAPS, Key("n", "p")))

        again = await other.apply(small_release.objects("1.23.0"))

        assert {each.action for each in again.changes} == {Action.UNCHANGED}


async def test_deployments_become_available_and_watches_tell_of_it(tmp_path: Path):
    """Somebody who waits for readiness has something to wait for."""
    async with a_farm(tmp_path / "farm", 1) as farm, client_of(farm.places[0]) as client:
        await install(client)
        informer = Informer(client, DEPLOYMENTS)
        following = asyncio.create_task(informer.run())

        def are_available() -> bool:
            found = informer.items()
            return len(found) == 3 and all(
                health(each).state == ReadinessState.READY for each in found
            )

        try:
            await until(are_available, "all are available")
        finally:
            following.cancel()
            await asyncio.wait([following])


async def test_spokes_are_different_clusters_that_can_be_cut(tmp_path: Path):
    """Each has a CA, a token and a uid of its own; one that is cut off troubles no other."""
    async with a_farm(tmp_path / "farm", 2) as farm:
        one, two = farm.places
        async with client_of(one) as first, client_of(two) as second:
            uids = {await uid_of(each) for each in (first, second)}
            await farm.behave([one.name], "cut")
            refused = await fails(first)
            still = await uid_of(second)
            await farm.behave([one.name], "well")
            back = await uid_of(first)

        assert len(uids) == 2
        assert refused
        assert {still, back} == uids
        assert await handshakes(farm) >= 3


async def uid_of(client: Client) -> str:
    """By what a cluster is known."""
    return (await client.get(NAMESPACES, "kube-system"))["metadata"]["uid"]


async def fails(client: Client) -> bool:
    """Whether a spoke does not answer."""
    try:
        await client.get(NAMESPACES, "kube-system", deadline=1)
    except NetworkError:
        return True
    return False


async def handshakes(farm: Farm) -> int:
    """How many connections were made."""
    return (await farm.counts()).handshakes
