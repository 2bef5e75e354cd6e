"""Hosted add-ons on a real API server: their agents run on another cluster than the managed one."""

from knfleet.api.addon.addontemplate import ADDON_TEMPLATES
from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.addon.names import HOSTED_LOCATION, HOSTING_CLEANUP, HOSTING_CLUSTER
from knfleet.api.cluster.managedcluster import ACCEPTED, CLUSTERS
from knfleet.api.meta import Key, Object
from knfleet.api.work.manifestwork import WORKS
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from testbed import hubs
from testbed.waiting import until
from tests.support import addons
from tests.support.registration import accept, is_said, managed_cluster

KEY = Key("guest", "hosted")
HERE, THERE = (
    Key("guest", "addon-hosted-deploy-0"),
    Key("host", "addon-hosted-deploy-hosting-guest-0"),
)


def located(name: str, location: str) -> Object:
    """A manifest that belongs somewhere."""
    made = addons.config_map(name)
    made["metadata"]["annotations"] = {HOSTED_LOCATION: location}
    return made


def names(work: Object) -> list[str]:
    """The objects that a work carries."""
    return [each["metadata"]["name"] for each in work["spec"]["workload"]["manifests"]]


async def test_manifests_of_a_hosted_add_on_go_to_the_hosting_cluster_and_leave_it(
    fleet: Client, fleet_connection: Connection
):
    """A hosting cluster that is not one of the fleet is named, and nothing goes there."""
    async with hubs.running(fleet_connection):
        for name in ("guest", "host"):
            await fleet.create(CLUSTERS, managed_cluster(name))
            await accept(fleet, name)
            await until(lambda name=name: is_said(fleet, name, ACCEPTED, "True"), name)
        made = addons.template(
            "hosted",
            located("here", "managed"),
            located("there", "hosting"),
            located("nowhere", "none"),
        )
        await fleet.create(ADDON_TEMPLATES, made)
        await fleet.create(CLUSTER_ADDONS, addons.cluster_addon("hosted"))
        addon = addons.addon("hosted", "guest")
        addon["metadata"]["annotations"] = {HOSTING_CLUSTER: "unknown"}
        await fleet.create(ADDONS, addon, "guest")
        await addons.is_said(fleet, KEY, "HostingClusterValidity", "False", "HostingClusterInvalid")

        await fleet.patch(ADDONS, KEY, {"metadata": {"annotations": {HOSTING_CLUSTER: "host"}}})

        assert names(await addons.work_of(fleet, THERE.name, "host")) == ["there"]
        assert "here" in names(await addons.work_of(fleet, HERE.name, "guest"))
        for each in (HERE, THERE):
            await addons.report(fleet, each)
        await addons.is_said(fleet, KEY, "HostingClusterValidity", "True")
        await addons.is_said(fleet, KEY, "HostingManifestApplied", "True")
        await addons.is_said(fleet, KEY, "Available", "True")
        await addons.is_said(fleet, KEY, "Progressing", "False", "Completed")
        found = await fleet.get(ADDONS, KEY.name, KEY.namespace)
        assert HOSTING_CLEANUP in found["metadata"]["finalizers"]

        await fleet.delete(ADDONS, KEY)
        await addons.is_gone(fleet, WORKS, THERE)
        await addons.is_gone(fleet, ADDONS, KEY)
        await addons.is_gone(fleet, WORKS, HERE)
        await fleet.delete(CLUSTER_ADDONS, Key("", "hosted"))
