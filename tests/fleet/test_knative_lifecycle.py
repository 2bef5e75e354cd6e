"""Both kinds of custom resource with the real releases: installed, changed, upgraded, removed."""

import pytest

from knfleet.api.core import CLUSTER_ROLES, CONFIG_MAPS, DEPLOYMENTS, JOBS
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.apply.observe.readiness import ReadinessState, health
from knfleet.apply.well_known import CONTAINS
from knfleet.dev.node.annotations import HOLD
from knfleet.kube.errors import NotFound
from testbed.operators import Hub, Operator
from testbed.waiting import until

KOURIER = {"kourier": {"enabled": True}}
MEMORY_BYTES = 90 * 2**20


async def data(hub: Hub, name: str) -> dict[str, str]:
    """The entries of one of Serving's ConfigMaps."""
    return (await hub.client.get(CONFIG_MAPS, name, "knative-serving")).get("data") or {}


async def test_both_are_installed_stay_quiet_and_go_without_a_trace(
    knative_hub: Hub, operator: Operator
) -> None:
    """The whole life of two installations, seen as people see it."""
    hub = knative_hub
    await operator.start()
    network = {"ingress-class": "kourier.ingress.networking.knative.dev", "custom": "yes"}
    await hub.create(SERVINGS, version="1.22", ingress=KOURIER, config={"network": network})
    serving = await hub.ready(SERVINGS, "1.22.1")
    assert operator.memory < MEMORY_BYTES
    await hub.create(EVENTINGS, version="1.22")
    await hub.ready(EVENTINGS, "1.22.2")

    # People and scripts read it without looking at YAML.
    waited = await hub.kubectl(
        *("wait", "--for=condition=Ready", "knativeserving/knative", "-n", "knative-serving")
    )
    assert "condition met" in waited
    shown = (await hub.kubectl("get", "knativeservings", "-A")).splitlines()
    assert shown[0].split()[:5] == ["NAMESPACE", "NAME", "VERSION", "READY", "REASON"]
    assert shown[1].split()[:4] == ["knative-serving", "knative", "1.22.1", "True"]
    folders = [path.split("/")[-2:] for path in serving["status"]["manifests"]]
    assert folders == [["knative-serving", "1.22.1"], ["1.22", "kourier"]]
    assert serving["metadata"]["finalizers"] == ["knativeservings.operator.knative.dev"]
    inventory = await hub.client.get(
        CONFIG_MAPS, "knativeserving-knative-inventory", "knative-serving"
    )
    assert "Deployment.apps" in inventory["metadata"]["annotations"][CONTAINS]
    await hub.tells("Installed", "Knative Serving 1.22.1")
    await hub.tells("FinalizerUpdate", 'Updated "knative" finalizers')

    await assert_a_forced_pass_costs_nothing(hub, operator)

    # A key that the custom resource drops disappears.
    assert (await data(hub, "config-network"))["custom"] == "yes"
    await hub.change(SERVINGS, config={"network": {"custom": None}})
    await until(lambda: has_no_key(hub), "the dropped key is gone")

    await hub.delete(SERVINGS)
    await hub.delete(EVENTINGS)
    await hub.gone(SERVINGS)
    await hub.gone(EVENTINGS)
    await hub.clean()
    assert await operator.stop() == 0


async def has_no_key(hub: Hub) -> bool:
    """Whether the key that the custom resource dropped is gone."""
    return "custom" not in await data(hub, "config-network")


async def assert_a_forced_pass_costs_nothing(hub: Hub, operator: Operator) -> None:
    """When nothing has to be done, nothing is asked and nothing is written."""
    await until(lambda: is_quiet(operator), "the operator is quiet")
    before, passes = await operator.requests(), await operator.passes()

    patch: Object = {"metadata": {"annotations": {"example.com/again": "1"}}}
    await hub.client.patch(SERVINGS, Key("knative-serving", "knative"), patch)
    await until(lambda: made_passes(operator, passes + 1), "a pass is made")

    assert await operator.requests() == before
    assert await operator.passes() == passes + 1


async def made_passes(operator: Operator, count: float) -> bool:
    """Whether so many passes were made."""
    return await operator.passes() >= count


async def is_quiet(operator: Operator) -> bool:
    """Whether all that was recorded is written, and no pass is under way."""
    before = await operator.requests(), await operator.passes()
    for _ in range(10):
        if (await operator.requests(), await operator.passes()) != before:
            return False
    return True


async def test_an_upgrade_keeps_the_old_release_until_the_new_one_works(
    knative_hub: Hub, operator: Operator
) -> None:
    """One Deployment that is held stops the upgrade where nothing is lost, and it says so."""
    hub = knative_hub
    await operator.start()
    await hub.create(SERVINGS, version="1.22", ingress=KOURIER)
    await hub.ready(SERVINGS, "1.22.1")
    old_job = "storage-version-migration-serving-serving-1.22.1"
    activator = Key("knative-serving", "activator")
    await hub.client.patch(DEPLOYMENTS, activator, {"metadata": {"annotations": {HOLD: "true"}}})

    await hub.change(SERVINGS, version="1.23")

    said = await hub.says(
        SERVINGS, "DeploymentsAvailable", "Waiting on deployments: activator; ", "activator 0/1"
    )
    assert "7 of 8 ready" in said or "6 of 7 ready" in said, said
    assert await hub.says(SERVINGS, "Ready", "Waiting on deployments: activator") == said
    found = await hub.get(SERVINGS)
    assert found["status"]["version"] == "1.22.1"
    jobs = await hub.kubectl("get", "jobs", "-n", "knative-serving", "-o", "name")
    assert f"job.batch/{old_job}" in jobs.splitlines()

    await hub.client.patch(DEPLOYMENTS, activator, {"metadata": {"annotations": {HOLD: None}}})

    await hub.ready(SERVINGS, "1.23.0")
    await hub.tells("Pruned", old_job)
    jobs = await hub.kubectl("get", "jobs", "-n", "knative-serving", "-o", "name")
    assert f"job.batch/{old_job}" not in jobs.splitlines()
    await hub.tells("Upgraded", "from 1.22.1 to 1.23.0")

    # Two minor versions at once are refused in the words that people know; nothing changes.
    await hub.change(SERVINGS, version="1.21")
    said = await hub.says(SERVINGS, "VersionMigrationEligible")
    assert said == (
        "Version migration is not eligible with message: not supported to upgrade or downgrade "
        "across multiple MINOR versions. The installed KnativeServing version is v1.23.0"
    )


@pytest.mark.full
async def test_jobs_hold_up_an_upgrade_but_no_first_installation(
    knative_hub: Hub, operator: Operator
) -> None:
    """At first there is nothing to migrate; an upgrade is done when everything is migrated."""
    hub = knative_hub
    await operator.start()
    held = {"name": "storage-version-migration-serving-", "annotations": {HOLD: "true"}}
    await hub.create(SERVINGS, version="1.22", ingress=KOURIER, workloads=[held])
    await hub.ready(SERVINGS, "1.22.1")
    job = await hub.client.get(JOBS, f"{held['name']}serving-1.22.1", "knative-serving")
    assert health(job).state == ReadinessState.PROGRESSING

    await hub.change(SERVINGS, version="1.23")

    name = f"{held['name']}serving-1.23.0"
    await hub.says(SERVINGS, "DeploymentsAvailable", status="True")
    waiting = f"{name} 0/1: it is not complete"
    await hub.says(SERVINGS, "InstallSucceeded", waiting, status="Unknown")
    found = await hub.get(SERVINGS)
    assert found["status"]["version"] == "1.22.1"
    await hub.change(SERVINGS, workloads=None)
    await hub.ready(SERVINGS, "1.23.0")


@pytest.mark.full
async def test_what_comes_back_after_an_uninstall_is_removed_too(
    knative_hub: Hub, operator: Operator
) -> None:
    """Aggregated ClusterRoles are often made anew by their controller right after they went."""
    hub = knative_hub
    await operator.start()
    await hub.create(EVENTINGS, version="1.23")
    await hub.ready(EVENTINGS, "1.23.0")

    await hub.delete(EVENTINGS)
    await hub.gone(EVENTINGS)

    for name in ("addressable-resolver", "channelable-manipulator", "podspecable-binding"):
        try:
            await hub.client.get(CLUSTER_ROLES, name)
        except NotFound:
            continue
        raise AssertionError(f"{name} is there")
