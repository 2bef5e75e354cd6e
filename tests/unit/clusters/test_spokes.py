"""Spokes as controllers see them, with fake servers and real plugins."""

import asyncio

import pytest

from knfleet.api.core import CONFIG_MAPS, NAMESPACES
from knfleet.api.inventory import PROFILES
from knfleet.api.meta import Key
from knfleet.clusters import access_errors
from knfleet.clusters.access_errors import AccessError
from knfleet.clusters.connection_state import Phase
from knfleet.clusters.pool import ClusterPool, PoolPolicy
from testbed.fakes.fleet import HANGING, Fleet, key, state_of, token_script, until_phase
from testbed.waiting import PATIENCE_SECONDS, until


async def up(spokes: ClusterPool, name: str) -> None:
    """Use a spoke, and wait until it is up."""
    spokes.use(key(name), "test")
    await until_phase(spokes, name, Phase.UP)


async def refusal(spokes: ClusterPool, name: str) -> AccessError:
    """Why a spoke cannot be used."""
    with pytest.raises(AccessError) as caught:
        await spokes.live(key(name))
    return caught.value


async def test_a_profile_leads_to_a_client_that_works(fleet: Fleet) -> None:
    """Everything on the way is real but the server: the plugin's token is what the server gets."""
    spoke = fleet.add_spoke("one")
    spoke.faults.tokens = {"sesame-open"}

    async with fleet.running() as spokes:
        spokes.use(key("one"), "test")
        live = await spokes.live(key("one"))
        await live.client.apply(CONFIG_MAPS, config_map())

        state = state_of(spokes, "one")
        assert (state.phase, state.reason) == (Phase.UP, "")
        assert state.last_contact is not None
        assert state.provider == "test"
        assert state.plugin_runs == 1
        assert live.cluster == "fleet/one"
        assert live.version == state.version == "v1.35.0-fake"
        assert live.uid == spoke.objects[NAMESPACES][Key("", "kube-system")]["metadata"]["uid"]
        assert Key("default", "probe") in spoke.objects[CONFIG_MAPS]


async def test_a_frozen_spoke_is_lost_and_comes_back_by_itself(fleet: Fleet) -> None:
    """Its client fails at once while it is lost, and works again afterwards; it is the same."""
    spoke = fleet.add_spoke("one")
    async with fleet.running() as spokes:
        await up(spokes, "one")
        live = await spokes.live(key("one"))

        spoke.faults.latency_seconds = 600
        state = await until_phase(
            spokes, "one", Phase.LOST, access_errors.REMOTE_CLIENT_CREATION_FAILED
        )
        with pytest.raises(AccessError, match="does not answer"):
            await live.client.list(NAMESPACES)
        assert "does not answer" in state.message
        assert (await refusal(spokes, "one")).reason == access_errors.REMOTE_CLIENT_CREATION_FAILED

        spoke.faults.latency_seconds = 0
        await until_phase(spokes, "one", Phase.UP)
        assert (await spokes.live(key("one"))).client is live.client
        assert (await live.client.list(NAMESPACES)).items


async def test_probes_have_a_connection_of_their_own_until_something_goes_wrong(
    fleet: Fleet,
) -> None:
    """Where an old connection leads says nothing about new ones, which writes would be sent on."""
    spoke = fleet.add_spoke("one")
    async with fleet.running() as spokes:
        await up(spokes, "one")
        session = spokes.spokes[key("one")].session
        assert session is not None

        async def probed() -> object:
            """What the spoke is probed over, a few probes later."""
            before = len(spoke.requests)

            async def is_probed() -> bool:
                return session.pulse.line is not None and len(spoke.requests) >= before + 3

            await until(is_probed, "it is probed")
            return session.pulse.line

        await probed()
        line = await probed()
        assert await probed() is line

        session.suspect()
        assert await probed() is not line
        assert not session.doubt


async def test_requests_under_way_are_cut_when_the_spoke_is_lost(fleet: Fleet) -> None:
    """Whoever waits for an answer learns of the loss, long before the deadline of the request."""
    spoke = fleet.add_spoke("one")
    async with fleet.running() as spokes:
        await up(spokes, "one")
        live = await spokes.live(key("one"))
        spoke.faults.latency_seconds = 600

        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises(AccessError):
                await live.client.list(NAMESPACES, deadline=5 * PATIENCE_SECONDS)


async def test_another_cluster_behind_the_same_address_is_never_written_to(fleet: Fleet) -> None:
    """The old client is dead for good; a new one says which cluster it leads to."""
    spoke = fleet.add_spoke("one")
    async with fleet.running() as spokes:
        await up(spokes, "one")
        live = await spokes.live(key("one"))
        spoke.delete(NAMESPACES, Key("", "kube-system"))
        spoke.put(NAMESPACES, {"metadata": {"name": "kube-system"}})

        async def is_other() -> bool:
            state = state_of(spokes, "one")
            return state.phase is Phase.UP and state.uid != live.uid

        await until(is_other, "the new cluster is known")
        with pytest.raises(AccessError, match="another cluster") as caught:
            await live.client.apply(CONFIG_MAPS, config_map())
        assert caught.value.reason == access_errors.REMOTE_CLUSTER_STALE
        other = await spokes.live(key("one"))
        assert other.client is not live.client
        assert spoke.objects[CONFIG_MAPS] == {}


async def test_a_new_token_is_fetched_when_the_old_one_is_refused(fleet: Fleet) -> None:
    """A token that was revoked costs one more run of the plugin."""
    spoke = fleet.add_spoke("one")
    async with fleet.running() as spokes:
        await up(spokes, "one")
        fleet.write_plugin("plugin", token_script("second"))
        spoke.faults.tokens = {"second"}

        await until(lambda: state_of(spokes, "one").plugin_runs >= 2, "the plugin ran again")
        await until_phase(spokes, "one", Phase.UP)
        await (await spokes.live(key("one"))).client.apply(CONFIG_MAPS, config_map())
        assert len(spoke.objects[CONFIG_MAPS]) == 1


async def test_a_spoke_that_refuses_the_token_is_not_up(fleet: Fleet) -> None:
    """And is, as soon as it accepts it."""
    spoke = fleet.add_spoke("one")
    spoke.faults.tokens = {"another"}
    async with fleet.running() as spokes:
        spokes.use(key("one"), "test")
        expected = access_errors.REMOTE_CLIENT_CREATION_FAILED
        state = await until_phase(spokes, "one", Phase.REFUSED, expected)
        assert "does not accept the credentials of access provider test" in state.message
        assert "sesame" not in state.message

        spoke.faults.tokens = None
        await until_phase(spokes, "one", Phase.UP)


async def test_a_profile_that_moves_leads_to_a_new_client(fleet: Fleet) -> None:
    """Heartbeats change nothing; another server does."""
    fleet.add_spoke("one")
    other = fleet.servers.add("elsewhere")
    other.put(NAMESPACES, {"metadata": {"name": "kube-system"}})
    async with fleet.running() as spokes:
        await up(spokes, "one")
        live = await spokes.live(key("one"))
        fleet.put_profile("one", fleet.servers.url("elsewhere"))

        await until(lambda: "elsewhere" in state_of(spokes, "one").server, "the profile is read")
        moved = await spokes.live(key("one"))
        assert moved.client is not live.client
        with pytest.raises(AccessError) as caught:
            await live.client.list(NAMESPACES)
        assert caught.value.reason == access_errors.REMOTE_CLUSTER_STALE


async def test_a_failing_plugin_is_told_of_and_run_again_when_replaced(fleet: Fleet) -> None:
    """And is run again when somebody replaces it."""
    fleet.add_spoke("one")
    fleet.write_plugin("plugin", "#!/bin/sh\nexit 3\n")
    async with fleet.running() as spokes:
        spokes.use(key("one"), "test")
        expected = access_errors.ACCESS_PROVIDER_FAILED
        state = await until_phase(spokes, "one", Phase.REFUSED, expected)
        assert "failed with exit code 3" in state.message

        fleet.write_plugin("plugin", token_script())
        await until_phase(spokes, "one", Phase.UP)


async def test_an_unhealthy_profile_may_be_used_to_remove_things(fleet: Fleet) -> None:
    """For everything else it is not ready, whether it answers or not."""
    fleet.add_spoke("one")
    fleet.put_profile("one", conditions=[])
    async with fleet.running() as spokes:
        spokes.use(key("one"), "test")
        expected = access_errors.CLUSTER_PROFILE_NOT_READY
        await until_phase(spokes, "one", Phase.REFUSED, expected)
        assert "ClusterProfile fleet/one is not ready" in str(await refusal(spokes, "one"))

        live = await spokes.live(key("one"), even_unhealthy=True)
        assert (await live.client.list(NAMESPACES)).items
        assert (await refusal(spokes, "one")).reason == expected


async def test_a_deleted_profile_may_be_used_to_remove_things(fleet: Fleet) -> None:
    """The last way in is remembered while somebody uses it."""
    fleet.add_spoke("one")
    async with fleet.running() as spokes:
        await up(spokes, "one")
        fleet.hub.delete(PROFILES, key("one"))
        await until_phase(spokes, "one", Phase.REFUSED, access_errors.CLUSTER_PROFILE_NOT_FOUND)

        live = await spokes.live(key("one"), even_unhealthy=True)
        assert (await live.client.list(NAMESPACES)).items


async def test_without_a_provider_file_there_are_no_spokes(fleet: Fleet) -> None:
    """The message is the Knative Operator's."""
    fleet.add_spoke("one")
    async with fleet.running(enabled=False) as spokes:
        spokes.use(key("one"), "test")
        error = await refusal(spokes, "one")

    assert error.reason == access_errors.MULTICLUSTER_DISABLED
    assert "set --clusterprofile-provider-file to enable" in str(error)


async def test_hanging_spokes_cost_the_others_nothing(fleet: Fleet) -> None:
    """Neither hung plugins nor frozen servers hold what others need."""
    healthy = [f"healthy{number}" for number in range(15)]
    sick = [f"sick{number}" for number in range(5)]
    fleet.write_plugin("hanging", HANGING)
    fleet.write_providers(test="plugin", hanging="hanging")
    for name in healthy:
        fleet.add_spoke(name)
    for number, name in enumerate(sick):
        cluster = fleet.add_spoke(name, provider="hanging" if number < 3 else "test")
        cluster.faults.latency_seconds = 600

    async with fleet.running(PoolPolicy()) as spokes:
        for name in (*sick, *healthy):
            spokes.use(key(name), "test")
        await asyncio.gather(*(spokes.live(key(name)) for name in healthy))

        assert all(state_of(spokes, name).phase is not Phase.UP for name in sick)


def config_map() -> dict[str, object]:
    """Something to write."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "probe", "namespace": "default"},
    }
