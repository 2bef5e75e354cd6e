"""Add-ons on a real API server: installed, configured, delivered, reported and removed."""

from collections.abc import AsyncIterator

import pytest

from knfleet.api.addon.addondeploymentconfig import CONFIGS
from knfleet.api.addon.addontemplate import ADDON_TEMPLATES
from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.addon.names import (
    ADDON_LABEL,
    ADDON_NAMESPACE_LABEL,
    DEFAULT_NAMESPACE,
    FEATURE_LABEL,
    PRE_DELETE,
)
from knfleet.api.cluster.managedcluster import ACCEPTED, CLUSTERS
from knfleet.api.core import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS
from knfleet.api.meta import Key, Object
from knfleet.api.operator import CLUSTER_MANAGER, OPERATOR_NAMESPACE
from knfleet.api.rbac_rules import rule
from knfleet.api.work.manifestwork import CONFIG_SPEC_HASH, WORKS
from knfleet.hub.addon.spec_hash import spec_hash
from knfleet.hub.manager import HubManager
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from testbed import hubs
from testbed.waiting import until
from tests.support import addons
from tests.support.hub_works import work
from tests.support.registration import accept, is_said, managed_cluster


@pytest.fixture
async def running(fleet_connection: Connection) -> AsyncIterator[HubManager]:
    """A hub that runs."""
    async with hubs.running(fleet_connection) as manager:
        yield manager


async def joined(fleet: Client, *names: str) -> None:
    """Make clusters of which nothing but their acceptance matters."""
    for name in names:
        await fleet.create(CLUSTERS, managed_cluster(name))
        await accept(fleet, name)
    for name in names:
        await until(lambda name=name: is_said(fleet, name, ACCEPTED, "True"), f"{name} accepted")


async def test_a_template_add_on_is_delivered_and_reported(fleet: Client, running: HubManager):
    await joined(fleet, "d1")
    made = await fleet.create(
        ADDON_TEMPLATES,
        addons.template(
            "delivered",
            addons.deployment("agent"),
            addons.config_map("settings", cluster="{{CLUSTER_NAME}}", text="{{TEXT}}"),
        ),
    )
    variables = [{"name": "TEXT", "value": "hello"}]
    config = await fleet.create(
        CONFIGS, addons.deployment_config("delivered", customizedVariables=variables), "default"
    )
    await fleet.create(
        CLUSTER_ADDONS, addons.cluster_addon("delivered", default_config="delivered")
    )

    await fleet.create(ADDONS, addons.addon("delivered", "d1"), "d1")

    work = await addons.work_of(fleet, "addon-delivered-deploy-0", "d1")
    deployment, settings = work["spec"]["workload"]["manifests"]
    assert settings["metadata"]["namespace"] == DEFAULT_NAMESPACE
    assert settings["data"] == {"cluster": "d1", "text": "hello"}
    assert deployment["spec"]["template"]["spec"]["containers"][0]["env"] == [
        {"name": "CLUSTER_NAME", "value": "d1"},
        {"name": "INSTALL_NAMESPACE", "value": DEFAULT_NAMESPACE},
    ]
    assert work["metadata"]["annotations"][CONFIG_SPEC_HASH] == (
        '{"addondeploymentconfigs.addon.open-cluster-management.io/default/delivered":'
        f'"{spec_hash(config)}",'
        f'"addontemplates.addon.open-cluster-management.io//delivered":"{spec_hash(made)}"}}'
    )
    key = Key("d1", "delivered")
    await addons.is_said(fleet, key, "Configured", "True", "ConfigurationsConfigured")
    await addons.is_said(fleet, key, "RegistrationApplied", "True", "NilRegistration")

    await addons.report(fleet, Key.of(work), ready=0)
    await addons.is_said(fleet, key, "Available", "False", "ProbeUnavailable")
    await addons.report(fleet, Key.of(work))
    await addons.is_said(fleet, key, "Available", "True", "ProbeAvailable")
    await addons.is_said(fleet, key, "Progressing", "False", "Completed")
    found = await fleet.get(ADDONS, "delivered", "d1")
    assert found["status"]["namespace"] == DEFAULT_NAMESPACE
    assert found["status"]["healthCheck"] == {"mode": "Customized"}
    assert found["status"]["supportedConfigs"] == [addons.DEPLOY_TYPE, addons.TEMPLATE_TYPE]
    assert [each["lastAppliedConfig"] for each in found["status"]["configReferences"]] == [
        {"name": "delivered", "namespace": "default", "specHash": spec_hash(config)},
        {"name": "delivered", "specHash": spec_hash(made)},
    ]

    await fleet.delete(CLUSTER_ADDONS, Key("", "delivered"))
    await addons.is_gone(fleet, ADDONS, key)
    await addons.is_gone(fleet, WORKS, Key.of(work))


async def test_works_that_others_label_say_nothing_about_an_add_on(
    fleet: Client, running: HubManager
):
    """Labels of a replica set are those of its works on all clusters."""
    await joined(fleet, "o1", "o2")
    foreign = Key("o1", "addon-claimed-deploy-7"), Key("o2", "elsewhere")
    for key in foreign:
        made = work(key.name, addons.config_map("a"))
        made["metadata"]["labels"] = {ADDON_LABEL: "claimed", ADDON_NAMESPACE_LABEL: "o1"}
        await fleet.create(WORKS, made, key.namespace)
    await fleet.create(ADDON_TEMPLATES, addons.template("claimed", addons.config_map("a")))
    await fleet.create(CLUSTER_ADDONS, addons.cluster_addon("claimed"))
    await fleet.create(ADDONS, addons.addon("claimed", "o1"), "o1")

    await addons.report(fleet, Key.of(await addons.work_of(fleet, "addon-claimed-deploy-0", "o1")))

    await addons.is_said(fleet, Key("o1", "claimed"), "Progressing", "False", "Completed")
    for key in foreign:
        await fleet.delete(WORKS, key)
    await fleet.delete(CLUSTER_ADDONS, Key("", "claimed"))


async def test_placements_decide_where_an_add_on_is_installed(fleet: Client, running: HubManager):
    """What a user installed by hand stays, whatever placements select."""
    await joined(fleet, "p1", "p2", "p3")
    await fleet.create(ADDON_TEMPLATES, addons.template("placed", addons.config_map("a")))
    await fleet.create(ADDONS, addons.addon("placed", "p3"), "p3")
    await addons.select(fleet, "placed", ("", ["p1", "p2", "not-there"]))
    strategy = {"name": "placed", "namespace": "default"}

    await fleet.create(CLUSTER_ADDONS, addons.cluster_addon("placed", strategy))

    for cluster in ("p1", "p2", "p3"):
        work = await addons.work_of(fleet, "addon-placed-deploy-0", cluster)
        await addons.report(fleet, Key.of(work))
        await addons.is_said(fleet, Key(cluster, "placed"), "Available", "True")
    found = await fleet.get(ADDONS, "placed", "p1")
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["controller"]) == ("ClusterManagementAddOn", True)

    await addons.select(fleet, "placed", ("", ["p2"]))

    await addons.is_gone(fleet, ADDONS, Key("p1", "placed"))
    await addons.is_gone(fleet, WORKS, Key("p1", "addon-placed-deploy-0"))
    await fleet.get(ADDONS, "placed", "p2")
    await fleet.get(ADDONS, "placed", "p3")
    await fleet.delete(CLUSTER_ADDONS, Key("", "placed"))
    for cluster in ("p2", "p3"):
        await addons.is_gone(fleet, ADDONS, Key(cluster, "placed"))


async def text_of(fleet: Client, cluster: str, addon: str) -> str:
    """The text that a cluster is to have."""
    work = await fleet.get(WORKS, f"addon-{addon}-deploy-0", cluster)
    return work["spec"]["workload"]["manifests"][0]["data"]["text"]


async def test_a_configuration_reaches_canaries_first_and_halts_when_one_fails(
    fleet: Client, running: HubManager
):
    clusters = ["r1", "r2", "r3", "r4"]
    await joined(fleet, *clusters)
    texts = addons.config_map("a", text="{{TEXT}}")
    await fleet.create(ADDON_TEMPLATES, addons.template("rolled", texts))
    old = [{"name": "TEXT", "value": "old"}]
    await fleet.create(
        CONFIGS, addons.deployment_config("rolled", customizedVariables=old), "default"
    )
    await addons.select(fleet, "rolled", ("canary", ["r4"]), ("", ["r1", "r2", "r3"]))
    strategy: Object = {
        "name": "rolled",
        "namespace": "default",
        "configs": [{**addons.DEPLOY_TYPE, "name": "rolled", "namespace": "default"}],
        "rolloutStrategy": {
            "type": "Progressive",
            "progressive": {
                "mandatoryDecisionGroups": [{"groupName": "canary"}],
                "maxConcurrency": 1,
            },
        },
    }
    await fleet.create(CLUSTER_ADDONS, addons.cluster_addon("rolled", strategy))
    for cluster in ("r4", "r1", "r2", "r3"):
        work = await addons.work_of(fleet, "addon-rolled-deploy-0", cluster)
        await addons.report(fleet, Key.of(work))

    async def progress(reason: str, words: str) -> None:
        async def holds() -> bool:
            found = await fleet.get(CLUSTER_ADDONS, "rolled")
            progressions: list[Object] = found.get("status", {}).get("installProgressions") or []
            said = progressions[0]["conditions"][0] if progressions else Object()
            return said.get("reason") == reason and words in said.get("message", "")

        await until(holds, f"the rollout is {reason}: {words}")

    await progress("Completed", "4/4 completed with no errors")

    new = {"spec": {"customizedVariables": [{"name": "TEXT", "value": "new"}]}}
    await fleet.patch(CONFIGS, Key("default", "rolled"), new)

    async def has(cluster: str, text: str) -> None:
        async def holds() -> bool:
            return await text_of(fleet, cluster, "rolled") == text

        await until(holds, f"{cluster} has {text}")

    await has("r4", "new")
    await progress("Progressing", "mandatory decision group canary must succeed first")
    for cluster in ("r1", "r2", "r3"):
        assert await text_of(fleet, cluster, "rolled") == "old"
        await addons.is_said(
            fleet, Key(cluster, "rolled"), "Configured", "False", "ConfigurationsNotConfigured"
        )
    await addons.report(fleet, Key("r4", "addon-rolled-deploy-0"))
    await has("r1", "new")
    await addons.report(fleet, Key("r1", "addon-rolled-deploy-0"), applied="False")
    await progress("Progressing", "1 failed 0 timeout. r1 failed or timed out, where no failure")
    assert await text_of(fleet, "r2", "rolled") == "old"

    await addons.report(fleet, Key("r1", "addon-rolled-deploy-0"))
    for cluster in ("r2", "r3"):
        await has(cluster, "new")
        await addons.report(fleet, Key(cluster, "addon-rolled-deploy-0"))
    await progress("Completed", "4/4 completed with no errors")
    found = await fleet.get(CLUSTER_ADDONS, "rolled")
    (progression,) = found["status"]["installProgressions"]
    (reference,) = progression["configReferences"]
    assert reference["desiredConfig"] == reference["lastAppliedConfig"]
    await fleet.delete(CLUSTER_ADDONS, Key("", "rolled"))
    for cluster in clusters:
        await addons.is_gone(fleet, ADDONS, Key(cluster, "rolled"))


async def test_a_configuration_that_is_deleted_while_in_use_changes_nothing_on_clusters(
    fleet: Client, running: HubManager
):
    await joined(fleet, "m1")
    await fleet.create(ADDON_TEMPLATES, addons.template("missing", addons.config_map("a")))
    config = addons.deployment_config("missing", agentInstallNamespace="elsewhere")
    await fleet.create(CONFIGS, config, "default")
    await fleet.create(CLUSTER_ADDONS, addons.cluster_addon("missing", default_config="missing"))
    await fleet.create(ADDONS, addons.addon("missing", "m1"), "m1")
    work = await addons.work_of(fleet, "addon-missing-deploy-0", "m1")
    key = Key("m1", "missing")
    await addons.is_said(fleet, key, "Configured", "True")

    await fleet.delete(CONFIGS, Key("default", "missing"))

    await addons.is_said(fleet, key, "Configured", "False", "ConfigurationsNotConfigured")
    said = await addons.condition(fleet, key, "Configured")
    assert (
        "addondeploymentconfigs.addon.open-cluster-management.io default/missing"
        in (said["message"])
    )
    kept = await fleet.get(WORKS, "addon-missing-deploy-0", "m1")
    assert kept["spec"] == work["spec"]
    assert [each["kind"] for each in kept["spec"]["workload"]["manifests"]] == [
        "Namespace",
        "ConfigMap",
    ]
    await fleet.create(CONFIGS, config, "default")
    await addons.is_said(fleet, key, "Configured", "True")
    await fleet.delete(CLUSTER_ADDONS, Key("", "missing"))


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (addons.config_map("a", text="{{NO_SUCH}}"), "ConfigMap a uses {{NO_SUCH}}"),
        (addons.config_map("a", text="x" * 600_000), "ConfigMap a has 600"),
    ],
    ids=["unknown-variable", "too-large"],
)
async def test_a_template_that_cannot_be_delivered_says_why(
    fleet: Client, running: HubManager, manifest: Object, words: str
):
    await joined(fleet, "t1")
    await fleet.create(ADDON_TEMPLATES, addons.template("wrong", manifest))
    await fleet.create(CLUSTER_ADDONS, addons.cluster_addon("wrong"))
    await fleet.create(ADDONS, addons.addon("wrong", "t1"), "t1")
    key = Key("t1", "wrong")

    await addons.is_said(fleet, key, "ManifestApplied", "False", "ManifestWorkApplyFailed")
    assert words in (await addons.condition(fleet, key, "ManifestApplied"))["message"]

    await fleet.replace(
        ADDON_TEMPLATES,
        {
            **addons.template("wrong", addons.config_map("a")),
            "metadata": (await fleet.get(ADDON_TEMPLATES, "wrong"))["metadata"],
        },
    )
    work = await addons.work_of(fleet, "addon-wrong-deploy-0", "t1")
    await addons.report(fleet, Key.of(work))
    await addons.is_said(fleet, key, "ManifestApplied", "True", "AddonManifestApplied")
    await fleet.delete(CLUSTER_ADDONS, Key("", "wrong"))
    await fleet.delete(ADDON_TEMPLATES, Key("", "wrong"))
    await addons.is_gone(fleet, ADDONS, key)
    await fleet.delete(CLUSTERS, Key("", "t1"))
    await addons.is_gone(fleet, CLUSTERS, Key("", "t1"))


async def test_hooks_run_before_an_add_on_is_removed(fleet: Client, running: HubManager):
    await joined(fleet, "h1")
    hook: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "bye", "namespace": "default", "annotations": {PRE_DELETE: ""}},
        "spec": {"template": {"spec": {"containers": [], "restartPolicy": "Never"}}},
    }
    await fleet.create(ADDON_TEMPLATES, addons.template("hooked", addons.config_map("a"), hook))
    await fleet.create(CLUSTER_ADDONS, addons.cluster_addon("hooked"))
    await fleet.create(ADDONS, addons.addon("hooked", "h1"), "h1")
    work = await addons.work_of(fleet, "addon-hooked-deploy-0", "h1")
    assert [each["kind"] for each in work["spec"]["workload"]["manifests"]] == ["ConfigMap"]
    key = Key("h1", "hooked")

    await fleet.delete(ADDONS, key)

    hooks = await addons.work_of(fleet, "addon-hooked-pre-delete", "h1")
    assert [each["kind"] for each in hooks["spec"]["workload"]["manifests"]] == ["Job"]
    await addons.is_said(fleet, key, "HookManifestCompleted", "False", "HookManifestIsNotCompleted")
    await fleet.get(WORKS, "addon-hooked-deploy-0", "h1")
    await addons.report(fleet, Key.of(hooks), values={"JobComplete": "True"})
    await addons.is_gone(fleet, ADDONS, key)
    await addons.is_gone(fleet, WORKS, Key.of(work))
    await addons.is_gone(fleet, WORKS, Key.of(hooks))
    await fleet.delete(CLUSTER_ADDONS, Key("", "hooked"))


async def test_a_cluster_is_labelled_by_the_state_of_its_add_ons(
    fleet: Client, running: HubManager
):
    await joined(fleet, "l1")
    now = addons.said("ManagedClusterConditionAvailable", "True", 0)
    found = await fleet.get(CLUSTERS, "l1")
    said = [*found["status"]["conditions"], now]
    await fleet.patch(
        CLUSTERS, Key("", "l1"), {"status": {"conditions": said}}, subresource="status"
    )
    await fleet.create(ADDON_TEMPLATES, addons.template("labelled", addons.deployment("a")))
    await fleet.create(CLUSTER_ADDONS, addons.cluster_addon("labelled"))

    async def has_label(value: str | None) -> None:
        async def holds() -> bool:
            cluster = await fleet.get(CLUSTERS, "l1")
            return cluster["metadata"]["labels"].get(f"{FEATURE_LABEL}labelled") == value

        await until(holds, f"the label is {value}")

    await fleet.create(ADDONS, addons.addon("labelled", "l1"), "l1")
    await has_label("unreachable")
    work = await addons.work_of(fleet, "addon-labelled-deploy-0", "l1")
    await addons.report(fleet, Key.of(work), ready=0)
    await has_label("unhealthy")
    await addons.report(fleet, Key.of(work))
    await has_label("available")
    await fleet.delete(ADDONS, Key("l1", "labelled"))
    await has_label(None)
    await fleet.delete(CLUSTER_ADDONS, Key("", "labelled"))


async def test_a_template_gives_its_agents_rights_and_takes_them_away(
    fleet: Client, running: HubManager
):
    """The hub binds only what it may bind; a condition says what is missing."""
    await joined(fleet, "g1")
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    permissions: list[Object] = [
        {"type": "CurrentCluster", "currentCluster": {"clusterRoleName": "view"}},
        {
            "type": "SingleNamespace",
            "singleNamespace": {"namespace": "default", "roleRef": role},
        },
    ]
    registration = [{"type": "KubeClient", "kubeClient": {"hubPermissions": permissions}}]
    made = addons.template("granted", addons.config_map("a"), registration=registration)
    await fleet.create(ADDON_TEMPLATES, made)
    await fleet.create(CLUSTER_ADDONS, addons.cluster_addon("granted"))
    await fleet.create(ADDONS, addons.addon("granted", "g1"), "g1")
    key = Key("g1", "granted")
    await addons.is_said(fleet, key, "RegistrationApplied", "False", "SetPermissionFailed")
    said = await addons.condition(fleet, key, "RegistrationApplied")
    assert "Permit the verb bind on ClusterRole view" in said["message"]

    await permit_binding(fleet, "view")
    await fleet.patch(ADDONS, key, {"metadata": {"annotations": {"look": "again"}}})

    await addons.is_said(fleet, key, "RegistrationApplied", "True", "SetPermissionApplied")
    name = "open-cluster-management:granted:clusterrole:agent"
    own = await fleet.get(ROLE_BINDINGS, name, "g1")
    other = await fleet.get(ROLE_BINDINGS, f"{name}:g1", "default")
    group = "system:open-cluster-management:cluster:g1:addon:granted"
    for each in (own, other):
        assert [subject["name"] for subject in each["subjects"]] == [group]
    found = await fleet.get(ADDONS, "granted", "g1")
    assert found["status"]["registrations"] == [
        {
            "signerName": "kubernetes.io/kube-apiserver-client",
            "subject": {
                "user": f"{group}:agent:granted-agent",
                "groups": [
                    group,
                    "system:open-cluster-management:addon:granted",
                    "system:authenticated",
                ],
            },
        }
    ]

    await fleet.delete(ADDONS, key)
    await addons.is_gone(fleet, ADDONS, key)
    await addons.is_gone(fleet, ROLE_BINDINGS, Key("g1", name))
    await addons.is_gone(fleet, ROLE_BINDINGS, Key("default", f"{name}:g1"))
    await fleet.delete(CLUSTER_ADDONS, Key("", "granted"))


async def permit_binding(fleet: Client, role: str) -> None:
    """Let the hub bind a ClusterRole."""
    name = f"bind-{role}"
    await fleet.apply(
        CLUSTER_ROLES,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [rule("rbac.authorization.k8s.io", ["clusterroles"], ["bind"], [role])],
        },
    )
    await fleet.apply(
        CLUSTER_ROLE_BINDINGS,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": name,
            },
            "subjects": [
                {
                    "kind": "ServiceAccount",
                    "name": CLUSTER_MANAGER,
                    "namespace": OPERATOR_NAMESPACE,
                }
            ],
        },
    )
