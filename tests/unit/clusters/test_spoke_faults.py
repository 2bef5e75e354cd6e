"""Spokes, profiles and plugins that misbehave, with fake servers and real plugins."""

import json
import sys
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from knfleet.api.core import CONFIG_MAPS, NAMESPACES
from knfleet.api.inventory import PROFILES
from knfleet.api.meta import Key
from knfleet.clusters import access_errors
from knfleet.clusters.access_errors import AccessError
from knfleet.clusters.cluster_metrics import watch_spokes
from knfleet.clusters.connection_state import Phase
from knfleet.clusters.pool import PoolPolicy
from knfleet.kube.cache.informer import Informer
from knfleet.runtime.metrics import Metrics
from testbed.fakes.certificates import Authority
from testbed.fakes.fleet import HANGING, QUICK, V1, Fleet, key, state_of, token_script, until_phase
from testbed.fakes.proxies import Wire
from testbed.waiting import until

CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "probe", "namespace": "default"},
}
CALM = replace(QUICK, probe=60.0)
"""No probe comes by itself while a test runs."""


def printing(status: dict[str, str]) -> str:
    """A plugin that prints a credential of its own making."""
    credential = {"apiVersion": V1, "kind": "ExecCredential", "status": status}
    return f"#!/bin/sh\necho '{json.dumps(credential)}'\n"


PAST = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
BAD_PLUGINS = {
    "failing": ("#!/bin/sh\necho no luck >&2\nexit 3\n", "failed with exit code 3: no luck"),
    "garbage": ("#!/bin/sh\necho 'tok: {en'\n", "neither JSON nor YAML"),
    "silent": ("#!/bin/sh\n", "printed nothing"),
    "expired": (printing({"token": "t", "expirationTimestamp": PAST}), "credential that ended"),
    "huge": ("#!/bin/sh\nyes | head -c 3000000\n", "printed more than 1024 KiB"),
    "keyless": (printing({"clientCertificateData": "x"}), "a certificate without its key"),
    "nothing": (printing({}), "neither a token nor a certificate"),
    "no interpreter": ("#!/no/such/interpreter\n", "the interpreter in its #! line, is not there"),
}


@pytest.mark.parametrize("name", BAD_PLUGINS)
async def test_a_bad_plugin_is_an_access_provider_that_failed(fleet: Fleet, name: str) -> None:
    """It is told what it did; a better one in its place is run by itself."""
    script, said = BAD_PLUGINS[name]
    fleet.write_plugin("plugin", script)
    fleet.add_spoke("one")
    async with fleet.running() as spokes:
        spokes.use(key("one"), "test")
        expected = access_errors.ACCESS_PROVIDER_FAILED
        state = await until_phase(spokes, "one", Phase.REFUSED, expected)
        assert "failed to build config from ClusterProfile fleet/one" in state.message
        assert said in state.message

        fleet.write_plugin("plugin", token_script())
        await until_phase(spokes, "one", Phase.UP)


@pytest.mark.parametrize(("mode", "said"), [(None, "there is no such file"), (0o644, "chmod +x")])
async def test_a_plugin_that_cannot_be_run_is_run_when_it_can(
    fleet: Fleet, mode: int | None, said: str
) -> None:
    """Whether it is missing, or not executable; the next try would come minutes later."""
    plugin = fleet.folder / "plugin"
    if mode is None:
        plugin.unlink()
    else:
        plugin.chmod(mode)
    fleet.add_spoke("one")
    patient = replace(QUICK, retry=600.0, plugin_retry_limit=600.0)
    async with fleet.running(PoolPolicy(timing=patient)) as spokes:
        spokes.use(key("one"), "test")
        expected = access_errors.ACCESS_PROVIDER_FAILED
        state = await until_phase(spokes, "one", Phase.REFUSED, expected)
        assert said in state.message

        fleet.write_plugin("plugin", token_script())
        await until_phase(spokes, "one", Phase.UP)


async def test_a_hanging_plugin_is_told_of_while_it_hangs(fleet: Fleet) -> None:
    """Whoever asks waits a while, and learns what is waited for."""
    fleet.write_plugin("plugin", HANGING)
    fleet.add_spoke("one")
    async with fleet.running() as spokes:
        spokes.use(key("one"), "test")
        with pytest.raises(AccessError, match="plugin has not answered yet") as caught:
            await spokes.live(key("one"))

    assert caught.value.reason == access_errors.ACCESS_PROVIDER_FAILED


async def test_the_next_token_is_fetched_before_the_current_one_ends(fleet: Fleet) -> None:
    """The plugin takes longer than a probe may, so the spoke would be lost for a moment."""
    script = f"""#!{sys.executable}
import datetime, json, time
time.sleep(0.9)
ends = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=6)
status = {{"token": "sesame-open", "expirationTimestamp": ends.isoformat()}}
print(json.dumps({{"apiVersion": "{V1}", "kind": "ExecCredential", "status": status}}))
"""
    fleet.write_plugin("plugin", script)
    fleet.add_spoke("one")
    async with fleet.running() as spokes:
        spokes.use(key("one"), "test")
        await until_phase(spokes, "one", Phase.UP)

        def ran_again() -> bool:
            assert state_of(spokes, "one").phase is Phase.UP
            return state_of(spokes, "one").plugin_runs >= 3

        await until(ran_again, "the plugin ran again")


async def test_a_wrong_ca_is_told_and_a_right_one_taken_up(fleet: Fleet) -> None:
    """No token is sent to a server that cannot be trusted."""
    spoke = fleet.add_spoke("one")
    fleet.put_profile("one", ca=Authority("other").pem)
    async with fleet.running() as spokes:
        spokes.use(key("one"), "test")
        expected = access_errors.REMOTE_CLIENT_CREATION_FAILED
        state = await until_phase(spokes, "one", Phase.REFUSED, expected)
        assert "certificate-authority-data" in state.message
        assert spoke.requests == []

        fleet.put_profile("one")
        await until_phase(spokes, "one", Phase.UP)


async def test_the_provider_file_is_followed(fleet: Fleet) -> None:
    """A provider that comes, goes or changes counts at once; a bad file changes nothing."""
    fleet.add_spoke("one")
    fleet.write_providers()
    async with fleet.running() as spokes:
        spokes.use(key("one"), "test")
        expected = access_errors.ACCESS_PROVIDER_NOT_CONFIGURED
        await until_phase(spokes, "one", Phase.REFUSED, expected)

        fleet.write_providers(other="plugin")
        expected = access_errors.CLUSTER_PROFILE_UNAVAILABLE
        await until_phase(spokes, "one", Phase.REFUSED, expected)

        fleet.write_providers(test="plugin")
        await until_phase(spokes, "one", Phase.UP)
        live = await spokes.live(key("one"))

        fleet.write_file("{")
        assert spokes.providers is not None
        await until(lambda: "not JSON" in problem_of(spokes.providers), "the problem is told")
        assert (await spokes.live(key("one"))).client is live.client

        fleet.write_providers(other="plugin")
        await until_phase(spokes, "one", Phase.REFUSED, expected)
        with pytest.raises(AccessError):
            await live.client.list(NAMESPACES)


async def test_not_one_request_goes_to_a_place_that_the_profile_left(fleet: Fleet) -> None:
    """The gate is closed when the change is read, before anything else has its turn."""
    fleet.add_spoke("one")
    async with fleet.running() as spokes:
        spokes.use(key("one"), "test")
        live = await spokes.live(key("one"))
        spoke = spokes.spokes[key("one")]
        access = spoke.access
        assert access is not None
        spoke.aim(replace(access, provider="another"), None)
        with pytest.raises(AccessError) as caught:
            await live.client.list(NAMESPACES)
        spoke.aim(access, None)

        assert caught.value.reason == access_errors.REMOTE_CLUSTER_STALE
        assert (await spokes.live(key("one"))).client is not live.client


def problem_of(file: object) -> str:
    """What is wrong with a provider file."""
    return str(getattr(file, "problem", ""))


async def test_heartbeats_of_a_profile_cost_nothing(fleet: Fleet) -> None:
    """No request to the spoke, no run of the plugin, no news to anybody."""
    spoke = fleet.add_spoke("one")
    async with fleet.running(PoolPolicy(timing=CALM)) as spokes:
        spokes.use(key("one"), "test")
        live = await spokes.live(key("one"))
        spoke.requests.clear()
        fleet.told.clear()

        for number in range(5):
            beat = {"type": "ControlPlaneHealthy", "status": "True", "message": f"beat {number}"}
            fleet.put_profile("one", conditions=[beat])
            await until(lambda n=number: is_read(spokes.profile(key("one")), n), "it is read")

        assert spoke.requests == []
        assert fleet.told == []
        assert state_of(spokes, "one").plugin_runs == 1
        assert (await spokes.live(key("one"))).client is live.client


def is_read(manifest: dict[str, object] | None, number: int) -> bool:
    """Whether a profile is as it was written last."""
    return f"beat {number}" in str(manifest)


async def test_nothing_is_written_before_a_closed_connection_is_known_again(fleet: Fleet) -> None:
    """Between two probes the address went to another cluster, and nobody told us."""
    spoke = fleet.add_spoke("one")
    other = fleet.servers.add("other")
    other.put(NAMESPACES, {"metadata": {"name": "kube-system"}})
    async with Wire(fleet.servers.url("one")) as wire:
        fleet.put_profile("one", f"{wire.url}/one")
        async with fleet.running(PoolPolicy(timing=CALM)) as spokes:
            spokes.use(key("one"), "test")
            live = await spokes.live(key("one"))
            await live.client.apply(CONFIG_MAPS, CONFIG_MAP)
            fleet.servers.clusters["one"] = other
            await wire.cut()
            await until(lambda: not live.client.transport.connected(), "it is noticed")

            with pytest.raises(AccessError, match="leads to another cluster"):
                await live.client.apply(CONFIG_MAPS, CONFIG_MAP)

    assert other.objects[CONFIG_MAPS] == {}
    assert spoke.objects[CONFIG_MAPS]


async def test_a_watch_goes_on_when_the_spoke_is_back(fleet: Fleet) -> None:
    """It waits for the spoke instead of trying again and again, and misses nothing."""
    spoke = fleet.add_spoke("one")
    async with Wire(fleet.servers.url("one")) as wire:
        fleet.put_profile("one", f"{wire.url}/one")
        async with fleet.running() as spokes:
            spokes.use(key("one"), "test")
            live = await spokes.live(key("one"))
            informer = Informer(live.client, CONFIG_MAPS)
            spokes.lifetimes[key("one")].add(informer, "config maps")
            await informer.synced.wait()

            wire.refusing = True
            await wire.cut()
            expected = access_errors.REMOTE_CLIENT_CREATION_FAILED
            await until_phase(spokes, "one", Phase.LOST, expected)
            spoke.put(CONFIG_MAPS, CONFIG_MAP)
            wire.refusing = False

            await until(lambda: bool(informer.items()), "the watch went on")
            assert state_of(spokes, "one").phase is Phase.UP


async def test_a_slow_spoke_is_slow_and_not_lost(fleet: Fleet) -> None:
    """Slower than a probe may take: it is given the time that it is known to need."""
    spoke = fleet.add_spoke("one")
    spoke.faults.latency_seconds = 0.7
    timing = replace(QUICK, slow_answer=5.0, patience=10.0)
    async with fleet.running(PoolPolicy(timing=timing)) as spokes:
        spokes.use(key("one"), "test")
        await spokes.live(key("one"))
        probes = len(spoke.requests)
        await until(lambda: len(spoke.requests) >= probes + 3, "it was probed")

        state = state_of(spokes, "one")
        assert (state.phase, state.failures) == (Phase.UP, 0)


async def test_a_spoke_that_fails_is_lost_for_as_long_as_it_does(fleet: Fleet) -> None:
    """An answer that says 503 is no answer."""
    spoke = fleet.add_spoke("one")
    async with fleet.running() as spokes:
        spokes.use(key("one"), "test")
        await until_phase(spokes, "one", Phase.UP)
        spoke.faults.fail = 10_000
        await until_phase(spokes, "one", Phase.LOST, access_errors.REMOTE_CLIENT_CREATION_FAILED)

        spoke.faults.fail = 0
        await until_phase(spokes, "one", Phase.UP)


async def test_an_old_spoke_is_refused_but_can_be_cleaned(fleet: Fleet) -> None:
    """The fake says that it is v1.35.0."""
    fleet.add_spoke("one")
    async with fleet.running(PoolPolicy(timing=QUICK, minimum="v1.36.0")) as spokes:
        spokes.use(key("one"), "test")
        expected = access_errors.REMOTE_CLIENT_CREATION_FAILED
        state = await until_phase(spokes, "one", Phase.REFUSED, expected)
        assert "Kubernetes v1.35.0-fake is older than v1.36.0" in state.message
        with pytest.raises(AccessError, match="older than"):
            await spokes.live(key("one"))

        live = await spokes.live(key("one"), even_unhealthy=True)
        assert (await live.client.list(NAMESPACES)).items


async def test_a_spoke_that_hides_its_name_is_used_all_the_same(fleet: Fleet) -> None:
    """What that means is said."""
    spoke = fleet.add_spoke("one")
    spoke.delete(NAMESPACES, Key("", "kube-system"))
    async with fleet.running() as spokes:
        spokes.use(key("one"), "test")
        live = await spokes.live(key("one"))
        await live.client.apply(CONFIG_MAPS, CONFIG_MAP)

        state = state_of(spokes, "one")
        assert (live.uid, state.uid, state.phase) == ("", "", Phase.UP)
        assert "may not read the namespace kube-system" in state.message


async def test_profiles_may_come_later_than_we_do(fleet: Fleet) -> None:
    """First there is no such API, then no such profile, then it is there, gone, and back."""
    del fleet.hub.resources[PROFILES.group, PROFILES.version, PROFILES.plural]
    async with fleet.running() as spokes:
        spokes.use(key("one"), "test")
        missing = access_errors.CLUSTER_PROFILE_NOT_FOUND
        state = await until_phase(spokes, "one", Phase.REFUSED, missing)
        assert "API is not installed" in state.message

        fleet.hub.resources[PROFILES.group, PROFILES.version, PROFILES.plural] = PROFILES
        await until(lambda: "goes on when it is created" in message_of(fleet, spokes), "it is read")
        fleet.add_spoke("one")
        await until_phase(spokes, "one", Phase.UP)
        fleet.hub.delete(PROFILES, key("one"))
        await until_phase(spokes, "one", Phase.REFUSED, missing)
        fleet.put_profile("one")
        await until_phase(spokes, "one", Phase.UP)


def message_of(fleet: Fleet, spokes: object) -> str:
    """What is said about the first spoke."""
    return state_of(spokes, "one").message  # pyright: ignore[reportArgumentType]


async def test_profiles_that_may_not_be_read_are_unavailable(fleet: Fleet) -> None:
    """The hub's own words are in the message."""
    fleet.hub.faults.tokens = set()
    async with fleet.running() as spokes:
        spokes.use(key("one"), "test")
        expected = access_errors.CLUSTER_PROFILE_UNAVAILABLE
        state = await until_phase(spokes, "one", Phase.REFUSED, expected)

    assert "failed to get ClusterProfile fleet/one: hub: GET" in state.message
    assert "Unauthorized" in state.message


async def test_a_profile_that_cannot_be_read_is_unavailable(fleet: Fleet) -> None:
    """The field is named."""
    broken = {"metadata": {"name": "one", "namespace": "fleet"}, "spec": 7}
    fleet.hub.put(PROFILES, broken)
    async with fleet.running() as spokes:
        spokes.use(key("one"), "test")
        expected = access_errors.CLUSTER_PROFILE_UNAVAILABLE
        state = await until_phase(spokes, "one", Phase.REFUSED, expected)

    assert "spec: Expected `object`, got `int`" in state.message


async def test_a_connection_lives_as_long_as_somebody_uses_it(fleet: Fleet) -> None:
    """The last one to leave closes it."""
    fleet.add_spoke("one")
    async with fleet.running() as spokes:
        spokes.use(key("one"), "serving")
        spokes.use(key("one"), "eventing")
        live = await spokes.live(key("one"))
        spokes.leave(key("one"), "serving")
        assert (await live.client.list(NAMESPACES)).items

        spokes.leave(key("one"), "eventing")
        assert spokes.states() == []
        await until(lambda: not live.client.transport.connected(), "it is closed")
        with pytest.raises(AccessError):
            await live.client.list(NAMESPACES)


async def test_after_the_signal_nobody_begins_anything_on_a_spoke(fleet: Fleet) -> None:
    """And nobody is told of connections that end with the process."""
    fleet.add_spoke("one")
    async with fleet.running() as spokes:
        spokes.use(key("one"), "test")
        await spokes.live(key("one"))
        fleet.told.clear()
        spokes.stop()
        with pytest.raises(AccessError, match="cluster provider closed") as caught:
            await spokes.live(key("one"))

    assert caught.value.reason == access_errors.CLUSTER_PROVIDER_CLOSED
    assert fleet.told == []


async def test_tries_and_runs_of_a_spoke_are_counted(fleet: Fleet) -> None:
    """Until nobody uses them any more."""
    fleet.add_spoke("one")
    broken = fleet.add_spoke("two")
    broken.faults.tokens = set()
    metrics = Metrics()
    async with fleet.running(PoolPolicy(observe=metrics, timing=QUICK)) as spokes:
        watch_spokes(metrics, spokes)
        spokes.use(key("one"), "test")
        spokes.use(key("two"), "test")
        await until_phase(spokes, "one", Phase.UP)
        expected = access_errors.REMOTE_CLIENT_CREATION_FAILED
        await until_phase(spokes, "two", Phase.REFUSED, expected)

        text = (await metrics.scrape())[0].decode()
        assert 'knfleet_spoke_plugin_runs_total{cluster="fleet/one"} 1.0' in text
        assert (
            'knfleet_spoke_connect_failures_total{cluster="fleet/two",'
            'reason="RemoteClientCreationFailed"}' in text
        )
        assert 'knfleet_client_requests_total{cluster="fleet/one"' in text

        spokes.leave(key("one"), "test")
        text = (await metrics.scrape())[0].decode()
        assert 'cluster="fleet/one"' not in text
        assert 'cluster="fleet/two"' in text


async def test_a_fault_of_ours_ends_one_spoke_and_no_other(fleet: Fleet) -> None:
    """It is told, and the process goes on."""
    fleet.add_spoke("one")
    fleet.add_spoke("two")
    async with fleet.running() as spokes:
        spokes.use(key("two"), "test")
        await until_phase(spokes, "two", Phase.UP)

        def stumble(profile: Key) -> None:
            if profile == key("one") and state_of(spokes, "one").phase is Phase.UP:
                raise RuntimeError("stumbled")

        spokes.on_change(stumble)
        spokes.use(key("one"), "test")
        expected = access_errors.REMOTE_CLIENT_CREATION_FAILED
        state = await until_phase(spokes, "one", Phase.REFUSED, expected)

        assert "a fault of knfleet" in state.message
        assert state_of(spokes, "two").phase is Phase.UP
        assert (await spokes.live(key("two"))).client
