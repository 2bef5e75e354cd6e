"""Update strategies, executors and ownership of works on a real API server."""

from datetime import timedelta

import pytest

from knfleet.agent.work.work_settings import WorkSettings
from knfleet.api.core import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    SERVICE_ACCOUNTS,
)
from knfleet.api.meta import Key, Object
from knfleet.api.work.appliedmanifestwork import (
    APPLIED_WORK_FINALIZER,
    APPLIED_WORKS,
    applied_work_name,
    hub_hash,
)
from knfleet.api.work.manifestwork import WORKS
from knfleet.apply.manifest_fields import part
from testbed.waiting import until
from tests.support.works import CLUSTER, WorkBench, conditions, config, config_map, work

SERVER = "https://hub"


def applying(name: str, **options: object) -> Object:
    """The config of a ConfigMap that is applied with a field manager."""
    strategy = {"type": "ServerSideApply", "serverSideApply": options}
    return config("configmaps", name, updateStrategy=strategy)


def deployment(name: str, image: str, replicas: int) -> Object:
    """A Deployment."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "x", "image": image}]},
            },
        },
    }


async def test_fields_of_other_managers_stay_with_server_side_apply(bench: WorkBench):
    """What left the manifest goes, a conflict is reported, and force takes fields over."""
    async with bench.agent():
        await bench.create(
            work("ssa", config_map("ssa", a="1", b="1"), manifestConfigs=[applying("ssa")])
        )
        await bench.until_condition("ssa", "Applied", "True")
        await bench.admin.apply(CONFIG_MAPS, config_map("ssa", c="1"), manager="other")
        await bench.change("ssa", workload={"manifests": [config_map("ssa", a="2")]})
        await bench.until_data("ssa", {"a": "2", "c": "1"})
        await bench.until_condition("ssa", "Applied", "True")

        await bench.change("ssa", workload={"manifests": [config_map("ssa", c="2")]})
        found = await bench.until_condition("ssa", "Applied", "False")
        assert 'conflict with "other"' in conditions(found, 0)["Applied"]["message"]
        await bench.change("ssa", manifestConfigs=[applying("ssa", force=True)])
        await bench.until_condition("ssa", "Applied", "True")
        assert await bench.data("ssa") == {"c": "2"}
        live = await bench.admin.get(CONFIG_MAPS, "ssa", "default")
        managers = [each["manager"] for each in live["metadata"]["managedFields"]]
        assert "work-agent" in managers
        await bench.delete("ssa")


@pytest.mark.parametrize(
    "paths",
    [
        pytest.param({"jsonPaths": [".spec.replicas"]}, marks=pytest.mark.full),
        pytest.param({"jsonPointers": ["/spec/replicas"]}, marks=pytest.mark.full),
        {"jqPathExpressions": [".spec.replicas"]},
    ],
    ids=["jsonpath", "pointer", "jq"],
)
async def test_replicas_are_left_to_the_autoscaler_when_asked(bench: WorkBench, paths: Object):
    """Also before it has changed them: a change of the image does not reset them."""
    ignored = {"condition": "OnSpokePresent", **paths}
    strategy = {
        "type": "ServerSideApply",
        "serverSideApply": {"force": True, "ignoreFields": [ignored]},
    }
    options = [config("deployments", "scaled", "apps", updateStrategy=strategy)]
    async with bench.agent():
        await bench.create(work("scaled", deployment("scaled", "x:1", 3), manifestConfigs=options))
        await bench.until_condition("scaled", "Applied", "True")
        manifests = [deployment("scaled", "x:2", 3)]
        await bench.change("scaled", workload={"manifests": manifests})
        await bench.until_condition("scaled", "Applied", "True")
        live = await bench.admin.get(DEPLOYMENTS, "scaled", "default")
        assert live["spec"]["replicas"] == 3

        await bench.admin.patch(
            DEPLOYMENTS, Key("default", "scaled"), {"spec": {"replicas": 7}}, subresource="scale"
        )
        manifests = [deployment("scaled", "x:3", 2)]
        await bench.change("scaled", workload={"manifests": manifests})
        await bench.until_condition("scaled", "Applied", "True")

        live = await bench.admin.get(DEPLOYMENTS, "scaled", "default")
        assert live["spec"]["template"]["spec"]["containers"][0]["image"] == "x:3"
        assert live["spec"]["replicas"] == 7
        await bench.delete("scaled")


async def test_a_field_is_left_alone_until_the_work_changes(bench: WorkBench):
    """By the hash in the annotation that agents of Open Cluster Management write."""
    ignored = {"condition": "OnSpokeChange", "jsonPointers": ["/data/a"]}
    options = [applying("touched", force=True, ignoreFields=[ignored])]
    async with bench.agent():
        await bench.create(
            work("touched", config_map("touched", a="1", b="1"), manifestConfigs=options)
        )
        await bench.until_condition("touched", "Applied", "True")
        await bench.admin.patch(
            CONFIG_MAPS, Key("default", "touched"), {"data": {"a": "theirs", "b": "theirs"}}
        )
        await bench.until_data("touched", {"a": "theirs", "b": "1"})

        manifests = [config_map("touched", a="2", b="1")]
        await bench.change("touched", workload={"manifests": manifests})
        await bench.until_data("touched", {"a": "2", "b": "1"})
        await bench.delete("touched")


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        ({"jsonPointers": ["data/a"]}, "must begin with /"),
        ({"jsonPaths": [".data[0]"]}, "must end with the name of a field"),
        ({"jqPathExpressions": [".data["]}, "jq"),
        pytest.param({"jqPathExpressions": ["def f: f; f"]}, "jq", marks=pytest.mark.full),
    ],
    ids=["pointer", "jsonpath", "jq", "endless jq"],
)
async def test_paths_of_no_use_are_reported(bench: WorkBench, paths: Object, text: str):
    ignored = {"condition": "OnSpokePresent", **paths}
    async with bench.agent():
        options = [applying("useless", ignoreFields=[ignored])]
        await bench.create(work("useless", config_map("useless"), manifestConfigs=options))
        found = await bench.until_condition("useless", "Applied", "False")
        condition = conditions(found, 0)["Applied"]
        assert condition["reason"] == "AppliedManifestSSAIgnoreFieldError"
        assert text in condition["message"]
        await bench.delete("useless")


async def test_create_only_leaves_what_is_there_and_owns_it(bench: WorkBench):
    await bench.admin.create(CONFIG_MAPS, config_map("once", mine="1"))
    options = [config("configmaps", "once", updateStrategy={"type": "CreateOnly"})]
    async with bench.agent():
        await bench.create(work("once", config_map("once", a="1"), manifestConfigs=options))
        await bench.until_condition("once", "Applied", "True")
        live = await bench.admin.get(CONFIG_MAPS, "once", "default")
        assert live["data"] == {"mine": "1"}
        assert len(live["metadata"]["ownerReferences"]) == 1
        assert "labels" not in live["metadata"]

        await bench.admin.delete(CONFIG_MAPS, Key("default", "once"))
        await bench.until_data("once", {"a": "1"})
        await bench.delete("once")
        assert await bench.data("once") is None


async def test_read_only_follows_an_object_that_comes_and_goes(bench: WorkBench):
    rules = [{"type": "JSONPaths", "jsonPaths": [{"name": "a", "path": ".data.a"}]}]
    strategy = {"type": "ReadOnly"}
    options = [config("configmaps", "seen", updateStrategy=strategy, feedbackRules=rules)]
    async with bench.agent():
        await bench.create(work("seen", config_map("seen", a="no"), manifestConfigs=options))
        found = await bench.until_condition("seen", "Available", "False")
        assert conditions(found)["Applied"]["status"] == "True"
        await bench.admin.create(CONFIG_MAPS, config_map("seen", a="1"))
        await bench.until_condition("seen", "Available", "True")
        await bench.until_values("seen", {"a": "1"})
        await bench.admin.patch(CONFIG_MAPS, Key("default", "seen"), {"data": {"a": "2"}})
        await bench.until_values("seen", {"a": "2"})
        await bench.delete("seen")
        assert await bench.data("seen") == {"a": "2"}
        await bench.admin.delete(CONFIG_MAPS, Key("default", "seen"))


async def test_an_object_of_two_works_goes_with_the_last(bench: WorkBench):
    """Whichever strategy they use."""
    for strategy in ({"type": "Update"}, {"type": "ServerSideApply"}):
        options = [config("configmaps", "both", updateStrategy=strategy)]
        async with bench.agent():
            for name in ("first", "second"):
                await bench.create(work(name, config_map("both", a="1"), manifestConfigs=options))
                await bench.until_condition(name, "Applied", "True")
            live = await bench.admin.get(CONFIG_MAPS, "both", "default")
            assert len(live["metadata"]["ownerReferences"]) == 2
            await bench.delete("first")
            assert await bench.data("both") == {"a": "1"}
            await bench.delete("second")
            assert await bench.data("both") is None


def executor(name: str) -> Object:
    """An executor."""
    account = {"namespace": "default", "name": name}
    return {"subject": {"type": "ServiceAccount", "serviceAccount": account}}


async def allow(bench: WorkBench, name: str, rules: list[Object]) -> None:
    """Give an account some rights."""
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}}
    await bench.admin.apply(CLUSTER_ROLES, {**role, "rules": rules})
    binding: Object = {**role, "kind": "ClusterRoleBinding"}
    binding["roleRef"] = {"apiGroup": group, "kind": "ClusterRole", "name": name}
    binding["subjects"] = [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]
    await bench.admin.apply(CLUSTER_ROLE_BINDINGS, binding)


async def test_an_executor_goes_no_further_than_its_rights(bench: WorkBench):
    meta = {"name": "poor", "namespace": "default"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
    await bench.admin.create(SERVICE_ACCOUNTS, account)
    async with bench.agent() as controller:
        await bench.create(work("poor", config_map("poor"), executor=executor("poor")))
        found = await bench.until_condition("poor", "Applied", "False")
        message = conditions(found, 0)["Applied"]["message"]
        assert "not allowed to apply the resource configmaps default/poor" in message
        assert "create, update, patch, get, delete" in message
        assert await bench.data("poor") is None

        everything = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}
        roles = {
            "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["clusterroles"],
            "verbs": ["create", "update", "patch", "get", "delete"],
        }
        await allow(bench, "poor", [everything, roles])
        # What is not granted is tried again after a minute.
        for entry in controller.states["poor"].entries:
            entry.retry_at = 0.0
        controller.poke(["poor"])
        await bench.until_condition("poor", "Applied", "True")

        grants = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "greedy"},
            "rules": grants,
        }
        await bench.create(work("greedy", role, executor=executor("poor")))
        found = await bench.until_condition("greedy", "Applied", "False")
        assert "permission escalation" in conditions(found, 0)["Applied"]["message"]
        assert await bench.found(CLUSTER_ROLES, "greedy", "") is None
        await bench.delete("greedy")
        await bench.delete("poor")


async def test_what_an_agent_of_open_cluster_management_left_is_taken_on(bench: WorkBench):
    """The same AppliedManifestWork, and no write to its object but the label."""
    name = applied_work_name(hub_hash(SERVER), "taken")
    applied = await bench.admin.create(
        APPLIED_WORKS,
        {
            "apiVersion": APPLIED_WORKS.api_version,
            "kind": APPLIED_WORKS.kind,
            "metadata": {"name": name, "finalizers": [APPLIED_WORK_FINALIZER]},
            "spec": {"hubHash": hub_hash(SERVER), "agentID": "ocm", "manifestWorkName": "taken"},
        },
    )
    owner = {
        "apiVersion": APPLIED_WORKS.api_version,
        "kind": APPLIED_WORKS.kind,
        "name": name,
        "uid": applied["metadata"]["uid"],
    }
    objects = [config_map("taken", a="1"), config_map("dropped", a="1")]
    listed: list[Object] = []
    for each in objects:
        each["metadata"]["ownerReferences"] = [owner]
        made = await bench.admin.create(CONFIG_MAPS, each)
        meta = made["metadata"]
        listed.append(
            {
                "version": "v1",
                "resource": "configmaps",
                "namespace": "default",
                "name": meta["name"],
                "uid": meta["uid"],
            }
        )
    status = {"status": {"appliedResources": listed}}
    await bench.admin.patch(APPLIED_WORKS, Key("", name), status, subresource="status")
    await bench.create(work("taken", config_map("taken", a="1")))
    async with bench.agent(server=SERVER):
        await bench.until_condition("taken", "Applied", "True")
        await bench.until_data("dropped", None)
        live = await bench.admin.get(CONFIG_MAPS, "taken", "default")
        assert live["metadata"]["uid"] == listed[0]["uid"]
        assert live["metadata"]["ownerReferences"] == [owner]
        found = await bench.applied("taken")
        assert found is not None
        assert found["metadata"]["uid"] == applied["metadata"]["uid"]
        await bench.delete("taken")


async def test_objects_without_a_work_stay_for_the_grace_period(bench: WorkBench):
    """Then they go; before, a work that comes back keeps them."""
    async with bench.agent(server="https://old"):
        await bench.create(work("moved", config_map("moved", a="1")))
        await bench.until_condition("moved", "Applied", "True")
    async with bench.agent(server="https://new"):
        await until(lambda: is_marked(bench, "https://old"), "the eviction is noted")
        assert await bench.data("moved") == {"a": "1"}
    async with bench.agent(server="https://old"):
        await until(lambda: is_unmarked(bench, "https://old"), "the eviction is called off")
    never = WorkSettings(eviction_grace=timedelta(days=100 * 365))
    async with bench.agent(never, server="https://new"):
        await bench.until_condition("moved", "Applied", "True")
        assert await is_unmarked(bench, "https://old")
    patch = {"metadata": {"finalizers": None}}
    await bench.admin.patch(WORKS, Key(CLUSTER, "moved"), patch)
    await bench.admin.delete(WORKS, Key(CLUSTER, "moved"))
    async with bench.agent(WorkSettings(eviction_grace=timedelta(0)), server="https://new"):
        await bench.until_data("moved", None)
        await bench.until_gone("moved")


async def eviction_of(bench: WorkBench, server: str) -> str | None:
    """Since when the AppliedManifestWork of a hub is evicted; empty when it is not."""
    name = applied_work_name(hub_hash(server), "moved")
    found = await bench.found(APPLIED_WORKS, name, "")
    return None if found is None else part(found, "status").get("evictionStartTime", "")


async def is_marked(bench: WorkBench, server: str) -> bool:
    """Whether it is noted that something will be evicted."""
    return bool(await eviction_of(bench, server))


async def is_unmarked(bench: WorkBench, server: str) -> bool:
    """Whether nothing will be evicted."""
    return await eviction_of(bench, server) == ""
