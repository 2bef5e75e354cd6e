"""The rollout of the getting-started guide on eight clusters, with a clock of its own."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from knfleet.api.addon.addondeploymentconfig import CONFIGS
from knfleet.api.addon.addontemplate import ADDON_TEMPLATES
from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.cluster.managedcluster import ACCEPTED, CLUSTERS
from knfleet.api.meta import Key, Object
from knfleet.api.work.manifestwork import WORKS
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from testbed import hubs
from testbed.waiting import until
from tests.support import addons
from tests.support.registration import accept, is_said, managed_cluster

pytestmark = pytest.mark.full
WEST, EAST = "guide-west", "guide-east"
OTHERS = [f"guide-{number}" for number in range(1, 7)]
CLUSTERS_ALL = [WEST, EAST, *OTHERS]
ADDON = Key("", "guide")
WORK = "addon-guide-deploy-0"
PROGRESSIVE: Object = {
    "type": "Progressive",
    "progressive": {
        "mandatoryDecisionGroups": [
            {"groupName": "prod-canary-west"},
            {"groupName": "prod-canary-east"},
        ],
        "maxConcurrency": "25%",
        "minSuccessTime": "5m",
        "progressDeadline": "10m",
        "maxFailures": 2,
    },
}
"""As the guide has it."""


class Guide:
    """The fleet of the guide, and its clock."""

    def __init__(self, hub: Client) -> None:
        self.hub = hub
        self.ahead = timedelta(0)
        self.looks = 0

    def now(self) -> datetime:
        """The time of the hub."""
        return datetime.now(UTC) + self.ahead

    async def install(self) -> None:
        """Install the add-on on all clusters at once."""
        for name in CLUSTERS_ALL:
            await self.hub.create(CLUSTERS, managed_cluster(name))
            await accept(self.hub, name)
        for name in CLUSTERS_ALL:
            await until(lambda name=name: is_said(self.hub, name, ACCEPTED, "True"), name)
        texts = addons.config_map("a", text="{{TEXT}}")
        await self.hub.create(ADDON_TEMPLATES, addons.template("guide", texts))
        await self.hub.create(CONFIGS, config("old"), "default")
        groups = (("prod-canary-west", [WEST]), ("prod-canary-east", [EAST]), ("", OTHERS))
        await addons.select(self.hub, "guide", *groups)
        await self.hub.create(CLUSTER_ADDONS, addons.cluster_addon("guide", strategy({})))
        for name in CLUSTERS_ALL:
            await addons.work_of(self.hub, WORK, name)
        await self.report(CLUSTERS_ALL)
        await self.says("Completed", "8/8 completed with no errors")

    async def report(self, clusters: Sequence[str], *, applied: str = "True") -> None:
        """Report as agents do, and wait until the hub knows."""
        for name in clusters:
            await addons.report(self.hub, Key(name, WORK), applied=applied)
        reason = "Completed" if applied == "True" else "Failed"
        for name in clusters:
            await addons.is_said(self.hub, Key(name, "guide"), "Progressing", "False", reason)

    async def strategy(self, rollout: Object) -> None:
        """Change the rollout strategy."""
        spec = {"installStrategy": {"type": "Placements", "placements": [strategy(rollout)]}}
        await self.hub.patch(CLUSTER_ADDONS, ADDON, {"spec": spec})

    async def wait(self, minutes: float) -> None:
        """Let time pass, and the hub look."""
        self.ahead += timedelta(minutes=minutes)
        self.looks += 1
        annotations = {"looks": str(self.looks)}
        await self.hub.patch(CLUSTER_ADDONS, ADDON, {"metadata": {"annotations": annotations}})

    async def says(self, reason: str, words: str) -> None:
        """Return when the status of the rollout says something."""

        async def message() -> str:
            found = await self.hub.get(CLUSTER_ADDONS, "guide")
            progressions: list[Object] = found.get("status", {}).get("installProgressions") or []
            said = progressions[0]["conditions"][0] if progressions else Object()
            return f"{said.get('reason')}: {said.get('message')}"

        async def holds() -> bool:
            text = await message()
            return text.startswith(f"{reason}:") and words in text

        try:
            await until(holds, f"the rollout is {reason}: {words}", seconds=30)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {await message()}") from error

    async def have_new(self, *clusters: str) -> None:
        """Return when exactly these clusters have the new configuration."""

        async def found() -> set[str]:
            texts = {
                name: (await self.hub.get(WORKS, WORK, name))["spec"]["workload"]["manifests"]
                for name in CLUSTERS_ALL
            }
            return {name for name, (first, *_) in texts.items() if first["data"]["text"] == "new"}

        async def holds() -> bool:
            return await found() == set(clusters)

        try:
            await until(holds, f"{clusters} have the new configuration", seconds=30)
        except AssertionError as error:
            raise AssertionError(f"{error}; {await found()} have it") from error


def config(text: str) -> Object:
    """The configuration that is rolled out."""
    variables = [{"name": "TEXT", "value": text}]
    return addons.deployment_config("guide", customizedVariables=variables)


def strategy(rollout: Object) -> Object:
    """The placement of the install strategy."""
    made: Object = {
        "name": "guide",
        "namespace": "default",
        "configs": [{**addons.DEPLOY_TYPE, "name": "guide", "namespace": "default"}],
    }
    return {**made, "rolloutStrategy": rollout} if rollout else made


async def test_canaries_come_first_waves_follow_and_failures_halt_until_they_are_fixed(
    fleet: Client, fleet_connection: Connection
):
    guide = Guide(fleet)
    async with hubs.running(fleet_connection, now=guide.now):
        await guide.install()
        await guide.strategy(PROGRESSIVE)
        await fleet.patch(CONFIGS, Key("default", "guide"), {"spec": config("new")["spec"]})

        await guide.have_new(WEST)
        await guide.report([WEST], applied="False")
        await guide.says("Progressing", f"{WEST} failed or timed out in mandatory decision group")
        await guide.wait(6)
        await guide.have_new(WEST)
        await guide.report([WEST])
        await guide.says("Progressing", "prod-canary-west must succeed first; waiting for")
        await guide.wait(4)
        await guide.have_new(WEST)
        await guide.wait(2)
        await guide.have_new(WEST, EAST)
        await guide.report([EAST])
        await guide.says("Progressing", "prod-canary-east must succeed first; waiting for")
        await guide.wait(6)

        await guide.have_new(WEST, EAST, *OTHERS[:2])
        await guide.report(OTHERS[:1], applied="False")
        await guide.have_new(WEST, EAST, *OTHERS[:3])
        await guide.says("Progressing", "1 failed 0 timeout")
        budget = {**PROGRESSIVE["progressive"], "maxFailures": 0}
        await guide.strategy({**PROGRESSIVE, "progressive": budget})
        await guide.says("Progressing", f"{OTHERS[0]} failed or timed out, where no failure")
        await guide.report(OTHERS[1:3])
        await guide.wait(6)
        await guide.have_new(WEST, EAST, *OTHERS[:3])
        await guide.report(OTHERS[:1])
        await guide.wait(6)

        await guide.have_new(WEST, EAST, *OTHERS[:5])
        await guide.report(OTHERS[3:5])
        await guide.wait(6)
        await guide.have_new(*CLUSTERS_ALL)
        await guide.report(OTHERS[5:])
        await guide.wait(6)
        await guide.says("Completed", "8/8 completed with no errors")

        await fleet.delete(CLUSTER_ADDONS, ADDON)
        for name in CLUSTERS_ALL:
            await addons.is_gone(fleet, ADDONS, Key(name, "guide"))
