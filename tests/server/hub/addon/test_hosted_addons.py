"""Hosted add-ons on a real API server: their agents run on another cluster than the managed one."""

import pytest

from knfleet.api.addon.addontemplate import ADDON_TEMPLATES
from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.addon.names import HOSTED_LOCATION, HOSTING_CLEANUP, HOSTING_CLUSTER
from knfleet.api.cluster.managedcluster import ACCEPTED, CLUSTERS
from knfleet.api.core import NAMESPACES, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from knfleet.api.meta import Key, Object
from knfleet.api.rbac_rules import cluster_role, rule
from knfleet.api.work.manifestwork import WORKS
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import Forbidden
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


async def test_only_who_may_write_works_of_a_cluster_has_it_host_an_add_on(
    fleet: Client, fleet_connection: Connection
):
    """The hub sends the manifests there with its own rights."""
    for name in ("tenant", "lender"):
        await fleet.apply(NAMESPACES, addons.thing(NAMESPACES, name, {}))
    connection = await tenant(fleet, fleet_connection)
    hosted = addons.addon("borrowed", "tenant")
    hosted["metadata"]["annotations"] = {HOSTING_CLUSTER: "lender"}
    key = Key("tenant", "borrowed")
    async with Client(connection) as client:

        async def is_refused() -> bool:
            try:
                await client.create(ADDONS, hosted, "tenant", dry_run=True)
            except Forbidden as error:
                return "to have cluster lender host an add-on" in str(error)
            return False

        await until(is_refused, "the rule is enforced")
        await client.create(ADDONS, addons.addon("borrowed", "tenant"), "tenant")
        annotation = {"metadata": {"annotations": {HOSTING_CLUSTER: "lender"}}}
        with pytest.raises(Forbidden, match="host an add-on"):
            await client.patch(ADDONS, key, annotation)

        await fleet.patch(ADDONS, key, annotation)
        config = {**addons.DEPLOY_TYPE, "name": "mine", "namespace": "tenant"}
        with pytest.raises(Forbidden, match="host an add-on"):
            await client.patch(ADDONS, key, {"spec": {"configs": [config]}})
        await client.patch(ADDONS, key, {"metadata": {"labels": {"a": "b"}}})

        await permit(fleet, "lender", rule(WORKS.group, [WORKS.plural], ["create"]))
        await client.patch(ADDONS, key, {"spec": {"configs": [config]}})
    await fleet.delete(ADDONS, key)


async def tenant(fleet: Client, connection: Connection) -> Connection:
    """One who may write add-ons in one namespace."""
    meta = {"name": "tenant", "namespace": "tenant"}
    await fleet.apply(
        SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
    )
    verbs = ["create", "get", "update", "patch"]
    await permit(fleet, "tenant", rule(ADDONS.group, [ADDONS.plural], verbs))
    return await hubs.as_account(connection, "tenant", "tenant")


async def permit(fleet: Client, namespace: str, permitted: Object) -> None:
    """Let the tenant do something in a namespace."""
    meta = {"name": "tenant", "namespace": namespace}
    await fleet.apply(
        ROLES, {**cluster_role("tenant", [permitted]), "kind": "Role", "metadata": meta}
    )
    binding: Object = {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": ROLE_BINDINGS.kind,
        "metadata": meta,
        "roleRef": {"apiGroup": ROLES.group, "kind": "Role", "name": "tenant"},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": "tenant"}],
    }
    await fleet.apply(ROLE_BINDINGS, binding)
