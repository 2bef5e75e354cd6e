"""The commands about works, typed in against a real hub."""

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.core import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Key, Object
from knfleet.api.operator import OPERATOR_NAMESPACE
from knfleet.api.rbac_rules import cluster_role, rule
from knfleet.api.work.manifestwork import WORKS
from knfleet.hub.registration.rbac import ACCESS_SECRET
from knfleet.kube.auth.credentials import StaticCredential
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.yaml import dump_all
from testbed import hubs
from testbed.clusters import Lent
from testbed.waiting import until
from tests.support.commands import done, refused, type_in
from tests.support.hub_works import config_map, kept, large, work
from tests.support.registration import Agent


@pytest.fixture
async def hub(fleet: Client, fleet_connection: Connection, bootstrap: Connection) -> None:
    """Two clusters that have been accepted, if they have not yet."""
    known = {each["metadata"]["name"] for each in (await fleet.list(CLUSTERS)).items}
    if {"c1", "c2"} <= known:
        return
    async with hubs.running(fleet_connection):
        for name in ("c1", "c2"):
            await Agent(bootstrap, name).join(fleet)
        await Agent(bootstrap, "waits").introduce()


def written(folder: Path, *manifests: Object, name: str = "objects.yaml") -> str:
    """A file with objects."""
    path = folder / name
    path.write_text(dump_all(list(manifests)))
    return str(path)


async def names(fleet: Client, cluster: str) -> list[str]:
    """The works of a cluster."""
    return sorted(each["metadata"]["name"] for each in (await fleet.list(WORKS, cluster)).items)


@pytest.mark.usefixtures("hub")
async def test_a_work_is_created_shown_changed_and_deleted(
    fleet: Client, fleet_lent: Lent, tmp_path: Path
):
    """In several clusters at once, with the words of clusteradm."""
    hub = fleet_lent.kubeconfig
    file = written(tmp_path, config_map("a"), config_map("b"))
    create = ("create", "work", "web", "-f", file, "--clusters", "c1,c2")

    assert await done(hub, *create, "--dry-run") == (
        "create work web in cluster c1 (dry run)\ncreate work web in cluster c2 (dry run)\n"
    )
    assert await names(fleet, "c1") == []
    assert await done(hub, *create) == (
        "create work web in cluster c1\ncreate work web in cluster c2\n"
    )
    assert await done(hub, *create) == (
        "work web in cluster c1 already exists\nwork web in cluster c2 already exists\n"
    )
    shown = (await done(hub, "get", "works", "--cluster", "c1")).splitlines()
    assert " ".join(shown[0].split()) == "NAME CLUSTER NUMBER OF MANIFESTS APPLIED AVAILABLE AGE"
    assert shown[1].split()[:3] == ["web", "c1", "2"]
    listed = msgspec.json.decode(await done(hub, "get", "works", "-o", "json"))
    assert [(each["kind"], each["metadata"]["namespace"]) for each in listed["items"]] == [
        ("ManifestWork", "c1"),
        ("ManifestWork", "c2"),
    ]

    # Some other setting of the work is not for this command to change.
    option = {"spec": {"deleteOption": {"propagationPolicy": "Orphan"}}}
    await fleet.patch(WORKS, Key("c1", "web"), option)
    written(tmp_path, config_map("a", more="yes"))
    said = await refused(hub, *create)
    assert "work web in cluster c1 already exists with other content" in said
    assert "knfleet work plan web" in said
    plan = await type_in(hub, "work", "plan", "web", "-f", file, "--clusters", "c1,c2")
    assert plan.code == 2
    assert "release  ConfigMap default/b" in plan.out
    assert "DELETE  ConfigMap default/b" in plan.out
    assert "data.more: + yes" in plan.out
    assert "there is no ClusterProfile of it" in plan.out
    assert "update work web in cluster c1" in await done(hub, *create, "--overwrite")
    changed = await fleet.get(WORKS, "web", "c1")
    assert changed["spec"]["deleteOption"] == {"propagationPolicy": "Orphan"}
    assert len(changed["spec"]["workload"]["manifests"]) == 1
    plan = await type_in(hub, "work", "plan", "web", "-f", file, "--clusters", "c1")
    assert (plan.code, "Nothing to do." in plan.out) == (0, True)

    assert await done(hub, "delete", "work", "web", "--clusters", "c1,c2") == (
        "work web in cluster c1 is deleted\nwork web in cluster c2 is deleted\n"
    )
    assert "not found or is already deleted" in await done(
        hub, "delete", "work", "web", "--cluster", "c1"
    )
    assert "No works in c1" in await done(hub, "get", "works", "--cluster", "c1")


@pytest.mark.usefixtures("hub")
@pytest.mark.full
async def test_what_is_larger_than_a_work_is_split_and_stays_so(
    fleet: Client, fleet_lent: Lent, tmp_path: Path
):
    hub = fleet_lent.kubeconfig
    namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
    manifests = large(25, 50_000)
    file = written(tmp_path, *manifests, namespace)
    create = ("create", "work", "big", "-f", file, "--clusters", "c1")

    assert (await done(hub, *create)).splitlines() == [
        f"create work {name} in cluster c1" for name in ("big", "big-2", "big-3")
    ]
    first = await fleet.get(WORKS, "big", "c1")
    assert first["spec"]["workload"]["manifests"][0] == namespace
    assert "already exists" in await done(hub, *create)
    status = await done(hub, "work", "status", "big", "--cluster", "c1")
    assert [line for line in status.splitlines() if " on c1:" in line] == [
        f"{name} on c1: in progress" for name in ("big", "big-2", "big-3")
    ]

    written(tmp_path, *manifests[:12], namespace)
    assert (await done(hub, *create, "--overwrite")).splitlines()[-1] == (
        "delete work big-3 in cluster c1"
    )
    assert await names(fleet, "c1") == ["big", "big-2"]
    assert (await done(hub, "delete", "work", "big", "--cluster", "c1")).splitlines() == [
        "work big-2 in cluster c1 is deleted",
        "work big in cluster c1 is deleted",
    ]

    await fleet.create(WORKS, work("big-2"), "c1")
    written(tmp_path, *manifests)
    said = await refused(hub, *create)
    assert "work big-2 in cluster c1 exists, and is no part of big" in said
    written(tmp_path, config_map("huge", data="x" * 600_000))
    assert "an object cannot be split" in await refused(hub, *create)
    assert await names(fleet, "c1") == ["big-2"]
    await fleet.delete(WORKS, Key("c1", "big-2"))


@pytest.mark.usefixtures("hub")
async def test_errors_of_one_cluster_do_not_stop_others_and_say_what_to_do(
    fleet: Client, fleet_lent: Lent, tmp_path: Path
):
    hub = fleet_lent.kubeconfig
    file = written(tmp_path, config_map("a"))
    create = ("create", "work", "some", "-f", file, "--clusters")

    printed = await type_in(hub, *create, "nowhere,waits,c2")
    assert printed.code == 1
    assert printed.out == "create work some in cluster c2\n"
    assert "ManagedCluster nowhere does not exist; `knfleet get clusters`" in printed.err
    assert "accept it with: knfleet accept --clusters waits" in printed.err

    owned = work("owned")
    owned["metadata"]["labels"] = {
        "work.open-cluster-management.io/manifestworkreplicaset": "ns.set"
    }
    await fleet.create(WORKS, owned, "c2")
    for verb in (
        ("create", "work", "owned", "-f", file, "--overwrite"),
        ("delete", "work", "owned"),
    ):
        said = await refused(hub, *verb, "--clusters", "c2")
        assert "belongs to ManifestWorkReplicaSet ns.set; change that" in said

    await fleet.create(WORKS, kept(work("going")), "c2")
    await fleet.delete(WORKS, Key("c2", "going"))
    said = await refused(hub, "create", "work", "going", "-f", file, "--clusters", "c2")
    assert "is being deleted; wait until it is gone" in said
    said = await refused(hub, "delete", "work", "going", "--cluster", "c2", "--timeout", "1")
    assert "still there after 1 s: the agent has not reported why" in said
    forced = await type_in(hub, "delete", "work", "going", "--cluster", "c2", "--force")
    assert (forced.code, forced.out) == (0, "work going in cluster c2 is deleted\n")
    assert "what going applied to c2 stays there" in forced.err

    assert "did you mean some?" in await refused(hub, "work", "status", "sone")
    assert "ManagedCluster c9 does not exist" in await refused(
        hub, "get", "works", "--cluster", "c9"
    )
    bad = written(
        tmp_path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}, name="b.yaml"
    )
    said = await refused(hub, "create", "work", "bad", "-f", bad, "--clusters", "c2")
    assert "b.yaml: ConfigMap: metadata.name is missing" in said


@pytest.mark.usefixtures("hub")
async def test_the_status_of_a_work_opens_what_fails(fleet: Client, fleet_lent: Lent):
    now = timestamp(datetime.now(UTC))

    def said(type_: str, status: str, reason: str, message: str = "") -> Object:
        return {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
        }

    def manifest(ordinal: int, name: str, *conditions: Object, **more: Object) -> Object:
        meta = {"ordinal": ordinal, "name": name, "namespace": "default", "kind": "ConfigMap"}
        return {"resourceMeta": meta, "conditions": list(conditions), **more}

    await fleet.create(WORKS, work("told", config_map("good"), config_map("bad")), "c2")
    value = {"name": "Ready", "fieldValue": {"type": "Integer", "integer": 3}}
    reported = {
        "conditions": [said("Applied", "False", "AppliedManifestWorkFailed", "1 of 2 failed")],
        "resourceStatus": {
            "manifests": [
                manifest(
                    0,
                    "good",
                    said("Applied", "True", "AppliedManifestComplete"),
                    statusFeedback={"values": [value]},
                ),
                manifest(
                    1,
                    "bad",
                    said("Applied", "False", "AppliedManifestFailed", "namespace is missing"),
                ),
            ]
        },
    }
    await fleet.patch(WORKS, Key("c2", "told"), {"status": reported}, subresource="status")
    hub = fleet_lent.kubeconfig

    assert (await done(hub, "work", "status", "told", "--cluster", "c2")).splitlines()[:6] == [
        "told on c2: failing",
        "  Applied False AppliedManifestWorkFailed: 1 of 2 failed",
        "  2 manifests:",
        "  ✓ ConfigMap default/good  (Ready=3)",
        "  ✕ ConfigMap default/bad",
        "      Applied False AppliedManifestFailed: namespace is missing",
    ]
    (row,) = msgspec.json.decode(await done(hub, "work", "status", "told", "-o", "json"))
    assert [each["stand"] for each in row["manifests"]] == ["ok", "bad"]
    tree = await done(hub, "get", "works", "told", "-o", "tree")
    assert "    Number of Manifests: 2" in tree
    assert "      ✕ ConfigMap default/bad" in tree


@asynccontextmanager
async def reachable(
    fleet: Client, connection: Connection, bootstrap: Connection, name: str
) -> AsyncGenerator[None]:
    """A cluster whose profile leads to this very API server, with few rights there."""
    rules = [rule("", ["configmaps"], ["get", "create", "patch"])]
    await fleet.apply(CLUSTER_ROLES, cluster_role("writes-configmaps", rules))
    account = {"kind": "ServiceAccount", "name": "default", "namespace": "kube-public"}
    await fleet.apply(
        CLUSTER_ROLE_BINDINGS,
        {
            "apiVersion": CLUSTER_ROLES.api_version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "writes-configmaps"},
            "roleRef": {
                "apiGroup": CLUSTER_ROLES.group,
                "kind": "ClusterRole",
                "name": "writes-configmaps",
            },
            "subjects": [account],
        },
    )
    meta = {"name": "default", "namespace": "kube-public"}
    made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
    await fleet.apply(SERVICE_ACCOUNTS, made)
    seen = await hubs.as_account(connection, "default", "kube-public")
    assert isinstance(seen.credentials, StaticCredential)
    contents = {
        "token": (seen.credentials.credential.token or "").encode(),
        "server": connection.endpoint.server.encode(),
        "ca.crt": connection.endpoint.ca or b"",
        "expiration": timestamp(datetime.now(UTC) + timedelta(hours=1)).encode(),
    }
    data = {key: base64.b64encode(value).decode() for key, value in contents.items()}
    agent = Agent(bootstrap, name)
    async with hubs.running(connection), Client(await agent.join(fleet)) as own:
        await agent.report(own, version={"kubernetes": "v1.35.0"})
        await own.patch(SECRETS, Key(name, ACCESS_SECRET), {"data": data})

        async def is_offered() -> bool:
            found = await fleet.list(PROFILES, OPERATOR_NAMESPACE, fields=f"metadata.name={name}")
            return any(each.get("status", {}).get("accessProviders") for each in found.items)

        await until(is_offered, "the profile offers access")
        yield


async def test_a_cluster_that_is_reached_says_itself_what_would_change(
    fleet: Client,
    fleet_connection: Connection,
    fleet_lent: Lent,
    bootstrap: Connection,
    tmp_path: Path,
):
    """Also what was changed there by others, and what it would refuse; nothing is written."""
    hub = fleet_lent.kubeconfig
    wanted = [
        config_map("planned-new"),
        config_map("planned-drift", a="hub"),
        config_map("planned-homeless", "nowhere"),
        {**config_map("planned-secret"), "kind": "Secret"},
        {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}},
    ]
    await fleet.create(CONFIG_MAPS, config_map("planned-drift", a="cluster"), "default")
    file = written(tmp_path, *wanted)
    async with reachable(fleet, fleet_connection, bootstrap, "reached"):
        await fleet.create(WORKS, work("planned", config_map("planned-drift", a="hub")), "reached")
        plan = ("work", "plan", "planned", "-f", file, "--clusters", "reached")
        printed = await type_in(hub, *plan)

        assert printed.code == 1, printed.err
        assert "create  ConfigMap default/planned-new" in printed.out
        assert "data.a: cluster → hub" in printed.out
        assert 'ConfigMap nowhere/planned-homeless: namespaces "nowhere" not found' in printed.out
        assert "may not try Secret" in printed.out
        assert "create  Secret default/planned-secret" in printed.out
        assert "ERROR  Thing t" in printed.out
        namespace: Object = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "nowhere"},
        }
        written(tmp_path, *wanted[:3], namespace)
        printed = await type_in(hub, *plan)
        assert printed.code == 2, printed.out
        assert "create  ConfigMap nowhere/planned-homeless" in printed.out
    found = await fleet.get(CONFIG_MAPS, "planned-drift", "default")
    assert found["data"] == {"a": "cluster"}
