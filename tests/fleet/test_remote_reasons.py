"""Why a target cannot be used: every reason, as people meet it, and how each is over."""

from pathlib import Path
from typing import Any

import pytest

from knfleet.api.core import CRDS, EVENTS
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key
from testbed.operators import Operator
from testbed.waiting import until
from tests.support.fleets import HEALTHY, PROVIDER, SMALL, Fleet, Road, write

UNHEALTHY = HEALTHY | {"status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}


async def test_profiles_providers_and_plugins_are_told_apart_and_each_goes_on_when_mended(
    fleet: Fleet,
) -> None:
    """Each mistake has its own reason, and is over without a restart; the other spoke is fine."""
    fleet.providers.unlink()
    await fleet.start()
    await without_a_usable_file(fleet)

    fleet.provide()
    await fleet.deploy("nowhere", on="nowhere")
    await fleet.lost("fleet/nowhere", reason="ClusterProfileNotFound", name="nowhere")
    await fleet.deploy("other", on="spoke2")
    await fleet.lost("lists no provider", reason="AccessProviderNotConfigured")

    fleet.provide("unknown")
    await fleet.lost(reason="ClusterProfileUnavailable")
    fleet.provide(PROVIDER)
    await fleet.hub.ready(SERVINGS, "1.23.0")
    await fleet.hub.ready(SERVINGS, "1.23.0", "other")

    await fleet.profile("spoke1", conditions=[UNHEALTHY])
    await fleet.lost("fleet/spoke1", reason="ClusterProfileNotReady")
    await stays(fleet, {"InstallSucceeded": "True", "DeploymentsAvailable": "True"})
    await fleet.profile("spoke1")
    await fleet.hub.ready(SERVINGS, "1.23.0")

    plain = fleet.one.cluster("http://127.0.0.1:1")
    await fleet.profile("spoke1", accessProviders=[{"name": PROVIDER, "cluster": plain}])
    await fleet.lost("https", reason="RemoteClientCreationFailed")

    fleet.one.spoil("echo no luck with token=hidden-value >&2; exit 3")
    await fleet.profile("spoke1")
    said = await fleet.lost("exit code 3", reason="AccessProviderFailed")
    assert "no luck with token=<redacted>" in said

    async def is_told() -> bool:
        told = str((await fleet.hub.client.list(EVENTS)).items)
        assert "hidden-value" not in told
        return "no luck with token=<redacted>" in told

    await until(is_told, "an Event tells it")
    fleet.one.mend()
    await fleet.hub.ready(SERVINGS, "1.23.0")

    await fleet.hub.ready(SERVINGS, "1.23.0", "other")
    # One that was never installed anywhere goes at once, whatever its profile is.
    await fleet.hub.delete(SERVINGS, "nowhere")
    await fleet.hub.gone(SERVINGS, "nowhere")


async def without_a_usable_file(fleet: Fleet) -> None:
    """The hub's own cluster is installed on; what needs the file names it and what is wrong."""
    await fleet.hub.create(SERVINGS, "local", **SMALL)
    await fleet.deploy()
    missing = f"{fleet.providers} cannot be read"
    await fleet.lost(missing, reason="AccessProviderNotConfigured")
    await fleet.hub.ready(SERVINGS, "1.23.0", "local")

    write(fleet.providers, "{")
    await fleet.lost(f"{fleet.providers}: not JSON", reason="AccessProviderNotConfigured")


async def stays(fleet: Fleet, wanted: dict[str, str]) -> None:
    """Conditions that others do not touch."""
    found = await fleet.conditions()
    assert {type_: found[type_] for type_ in wanted} == wanted
    assert found["Ready"] == "False"


@pytest.mark.full
async def test_without_a_provider_file_the_flag_is_named(fleet: Fleet) -> None:
    """There are no spokes then."""
    await fleet.start("--disable-ha")
    await fleet.deploy()
    await fleet.lost("--clusterprofile-provider-file", reason="MulticlusterDisabled")


@pytest.mark.full
async def test_a_missing_api_is_told_and_found_when_it_comes(fleet: Fleet) -> None:
    """Nobody has to start anything again."""
    name = "clusterprofiles.multicluster.x-k8s.io"
    definition = await fleet.hub.client.get(CRDS, name)
    await fleet.hub.client.delete(CRDS, Key("", name))
    await until(lambda: is_unserved(fleet), "profiles are not served")
    await fleet.start()
    await fleet.deploy()
    await fleet.lost("not installed", reason="ClusterProfileNotFound")

    fresh: dict[str, Any] = {
        "apiVersion": definition["apiVersion"],
        "kind": definition["kind"],
        "metadata": {"name": name, "annotations": definition["metadata"].get("annotations", {})},
        "spec": definition["spec"],
    }
    await fleet.hub.client.create(CRDS, fresh)
    await until(lambda: serves_profiles(fleet), "profiles are served")
    await fleet.profile("spoke1")

    await fleet.hub.ready(SERVINGS, "1.23.0")


async def is_unserved(fleet: Fleet) -> bool:
    """Whether the hub serves no profiles."""
    return not await serves_profiles(fleet)


async def serves_profiles(fleet: Fleet) -> bool:
    """Whether the hub serves profiles."""
    from knfleet.api.inventory import PROFILES

    return await fleet.hub.serves(PROFILES)


@pytest.mark.full
async def test_a_spoke_that_moves_is_stale_until_it_answers(fleet: Fleet, tmp_path: Path) -> None:
    """A new address counts at once; until it answers, nothing is written."""
    road = fleet.one.road = Road(fleet.one.lent.connection.endpoint.server)
    await fleet.start()
    await fleet.deploy()
    await fleet.hub.ready(SERVINGS, "1.23.0")

    server = await road.open(tmp_path / "road")
    # What takes less than ten seconds is not worth a condition.
    fleet.one.spoil("sleep 13")
    moved = fleet.one.cluster(server)
    await fleet.profile("spoke1", accessProviders=[{"name": PROVIDER, "cluster": moved}])
    await fleet.lost("fleet/spoke1", reason="RemoteClusterStale")
    await fleet.hub.ready(SERVINGS, "1.23.0")
    fleet.one.mend()

    await road.close()
    message = await fleet.lost(server, reason="RemoteClientCreationFailed")
    assert "does not answer" in message


@pytest.mark.full
async def test_shutting_down_is_told_to_who_waits(fleet: Fleet) -> None:
    """And does not take longer than anything else."""
    fleet.one.spoil("sleep 25")
    await fleet.start()
    await fleet.deploy()
    await until(lambda: is_waiting(fleet), "the plugin runs")

    assert await fleet.operator.stop() == 0

    await fleet.lost(reason="ClusterProviderClosed")


async def is_waiting(fleet: Fleet) -> bool:
    """Whether a pass waits for a connection."""
    found = await fleet.hub.get(SERVINGS)
    return bool(found["metadata"].get("finalizers"))


@pytest.mark.full
async def test_only_the_leader_connects(fleet: Fleet, small_root: Path, tmp_path: Path) -> None:
    """Another process is ready to go on, and costs the spokes nothing."""
    other = Operator(fleet.hub.lent.kubeconfig, small_root, tmp_path / "other.log")
    file = f"--clusterprofile-provider-file={fleet.providers}"
    try:
        await fleet.start("--disable-ha=false", file)
        await fleet.deploy()
        await fleet.hub.ready(SERVINGS, "1.23.0")
        await other.start("--disable-ha=false", file, SYSTEM_NAMESPACE="fleet")
        await until(lambda: answers(other), "the other one runs")

        assert await states(other) == []
        await fleet.operator.kill()
        await fleet.hub.change(SERVINGS, config={"network": {"seen": "yes"}})
        await until(lambda: has_connected(other), "the other one connects")
    finally:
        await other.kill()


async def answers(operator: Operator) -> bool:
    """Whether it serves its metrics."""
    try:
        return bool(await operator.metrics())
    except OSError:
        return False


async def has_connected(operator: Operator) -> bool:
    """Whether it is connected to the first spoke."""
    return any('phase="up"' in line for line in await states(operator))


async def states(operator: Operator) -> list[str]:
    """What it tells of spokes."""
    return [each for each in await operator.metrics() if each.startswith("knfleet_spoke_state{")]
