"""Which ManifestWorks the API server takes, whether or not a hub runs."""

import pytest

from knfleet.api.core import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, SERVICE_ACCOUNTS
from knfleet.api.meta import Key, Object
from knfleet.api.operator import CLUSTER_MANAGERS, NIL_EXECUTOR_GATE
from knfleet.api.rbac_rules import cluster_role, rule
from knfleet.api.work.manifestwork import WORK_FINALIZER, WORKS
from knfleet.hub.admission.works import DEFAULT_EXECUTOR
from knfleet.install.deployments import HubInstall, cluster_manager
from knfleet.install.hub_manifests import hub_objects
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import ApiError, Forbidden, Invalid
from knfleet.workflows.object_lists import apply_all
from testbed import hubs
from testbed.clusters import Lend
from testbed.waiting import until
from tests.support.hub_works import config_map, executed_by, kept, work
from tests.support.registration import Agent

NAMED = executed_by("apps", "deployer")
ACCOUNT = "system:serviceaccount:apps:deployer"
NO_NAME: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}
GENERATED: Object = {**NO_NAME, "metadata": {"name": "a", "generateName": "b"}}

REFUSED: dict[str, tuple[Object, str]] = {
    "no manifests": ({"workload": {"manifests": []}}, "Workload manifests should not be empty"),
    "no workload": ({}, "Workload manifests should not be empty"),
    "no name": (
        {"workload": {"manifests": [config_map(), NO_NAME]}},
        r"name must be set in manifest: spec\.workload\.manifests\[1\] \(ConfigMap\)",
    ),
    "no metadata": (
        {"workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap"}]}},
        r"name must be set in manifest: spec\.workload\.manifests\[0\] \(ConfigMap\)",
    ),
    "generated name": (
        {"workload": {"manifests": [GENERATED]}},
        r"generateName must not be set in manifest: spec\.workload\.manifests\[0\]",
    ),
    "no kind": (
        {"workload": {"manifests": [{"apiVersion": "v1", "metadata": {"name": "a"}}]}},
        r"spec\.workload\.manifests\[0\]\.kind: Required value",
    ),
    "no version": (
        {"workload": {"manifests": [{"kind": "ConfigMap", "metadata": {"name": "a"}}]}},
        r"spec\.workload\.manifests\[0\]\.apiVersion: Required value",
    ),
    "negative time to live": (
        {
            "workload": {"manifests": [config_map()]},
            "deleteOption": {"ttlSecondsAfterFinished": -1},
        },
        "ttlSecondsAfterFinished must not be negative",
    ),
    "no account": (
        {
            "workload": {"manifests": [config_map()]},
            "executor": {"subject": {"type": "ServiceAccount"}},
        },
        "executor service account can not be nil",
    ),
    "foreign field manager": (
        {
            "workload": {"manifests": [config_map()]},
            "manifestConfigs": [
                {
                    "resourceIdentifier": {"resource": "configmaps", "name": "cm"},
                    "updateStrategy": {
                        "type": "ServerSideApply",
                        "serverSideApply": {"fieldManager": "kubectl"},
                    },
                }
            ],
        },
        "fieldManager",
    ),
}


@pytest.fixture(autouse=True)
async def enforced(fleet: Client) -> None:
    """Return when the API server has taken up the rules, which it does one by one."""

    async def is_enforced() -> bool:
        return all([await refused(fleet, spec) for spec, _ in REFUSED.values()])

    await until(is_enforced, "all rules are enforced")


async def refused(fleet: Client, spec: Object) -> bool:
    """Whether a work with a spec is refused."""
    try:
        await fleet.create(WORKS, {**work("bad"), "spec": spec}, "default", dry_run=True)
    except Invalid:
        return True
    return False


@pytest.mark.parametrize(("spec", "message"), REFUSED.values(), ids=REFUSED)
async def test_a_bad_work_is_refused_with_the_manifest_that_is_wrong(
    fleet: Client, spec: Object, message: str
):
    with pytest.raises(Invalid, match=message):
        await fleet.create(WORKS, {**work("bad"), "spec": spec}, "default")


async def test_two_thousand_manifests_are_looked_at(fleet: Client):
    """CEL has a budget; the last manifest is judged as the first."""
    manifests = [config_map(f"cm-{number}") for number in range(2000)]

    await fleet.create(WORKS, work("many", *manifests), "default", dry_run=True)
    with pytest.raises(Invalid, match=r"manifests\[2000\]"):
        await fleet.create(WORKS, work("many", *manifests, NO_NAME), "default", dry_run=True)


async def author(fleet: Client, connection: Connection, name: str, *names: str) -> Connection:
    """One who may write works, and act as some accounts."""
    rules = [rule(WORKS.group, [WORKS.plural], ["create", "get", "update", "patch"])]
    if names:
        rules.append(rule(WORKS.group, [WORKS.plural], ["execute-as"], list(names)))
    reference = {"apiGroup": CLUSTER_ROLES.group, "kind": "ClusterRole", "name": name}
    await fleet.apply(CLUSTER_ROLES, cluster_role(name, rules))
    meta = {"name": name, "namespace": "default"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
    await fleet.apply(SERVICE_ACCOUNTS, account)
    await fleet.apply(
        CLUSTER_ROLE_BINDINGS,
        {
            "apiVersion": CLUSTER_ROLES.api_version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": reference,
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        },
    )
    return await hubs.as_account(connection, name, "default")


async def test_only_those_who_may_execute_as_an_account_write_works_of_it(
    fleet: Client, fleet_connection: Connection
):
    """Also when they only change its manifests, which would run with the account's rights."""
    await fleet.create(WORKS, work("executed", executor=NAMED), "default")
    plain = await author(fleet, fleet_connection, "writes-works")
    trusted = await author(fleet, fleet_connection, "executes-works", ACCOUNT)
    changed = {"spec": {"workload": {"manifests": [config_map(more="yes")]}}}
    async with Client(plain) as own:
        for name in ("default", "kube-system"):
            with pytest.raises(Forbidden, match=f"cannot manipulate .* apps/deployer .* {ACCOUNT}"):
                await own.create(WORKS, work("mine", executor=NAMED), name, dry_run=True)
        with pytest.raises(Forbidden, match="cannot manipulate"):
            await own.patch(WORKS, Key("default", "executed"), changed)
        await own.patch(WORKS, Key("default", "executed"), {"metadata": {"labels": {"a": "b"}}})
        await own.create(WORKS, work("mine"), "default", dry_run=True)
    async with Client(trusted) as own:
        await own.create(WORKS, work("mine", executor=NAMED), "default", dry_run=True)
        await own.patch(WORKS, Key("default", "executed"), changed)
        other = work("mine", executor=executed_by("apps", "admin"))
        with pytest.raises(Forbidden, match="cannot manipulate"):
            await own.create(WORKS, other, "default", dry_run=True)


async def test_a_work_without_executor_needs_a_right_when_the_feature_is_on(
    fleet: Client, fleet_connection: Connection
):
    plain = await author(fleet, fleet_connection, "writes-works")
    trusted = await author(fleet, fleet_connection, "executes-all", DEFAULT_EXECUTOR)
    manager = cluster_manager(HubInstall(image=""))
    gate = {"feature": NIL_EXECUTOR_GATE, "mode": "Enable"}
    manager["spec"]["workConfiguration"] = {"featureGates": [gate]}
    await fleet.apply(CLUSTER_MANAGERS, manager)
    async with Client(plain) as own, Client(trusted) as other:
        await until(lambda: refuses(own, work("mine"), "NilExecutorValidating"), "refused")
        await other.create(WORKS, work("mine"), "default", dry_run=True)

        manager["spec"]["workConfiguration"] = {"featureGates": [{**gate, "mode": "Disable"}]}
        await fleet.apply(CLUSTER_MANAGERS, manager)

        async def is_taken() -> bool:
            return not await refuses(own, work("mine"), "NilExecutorValidating")

        await until(is_taken, "taken")


async def refuses(client: Client, manifest: Object, words: str) -> bool:
    """Whether a work is refused with these words."""
    try:
        await client.create(WORKS, manifest, "default", dry_run=True)
    except ApiError as error:
        return words in error.message
    return False


BY_AGENTS: dict[str, Object] = {
    "spec": {"spec": {"workload": {"manifests": [config_map(evil="yes")]}}},
    "executor": {"spec": {"executor": NAMED}},
    "labels": {"metadata": {"labels": {"a": "b"}}},
    "annotations": {
        "metadata": {"annotations": {"open-cluster-management.io/cleanup-priority": "9"}}
    },
    "owner": {
        "metadata": {
            "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "y"}]
        }
    },
    "foreign finalizer": {"metadata": {"finalizers": ["example.com/never", WORK_FINALIZER]}},
    "without the finalizer of another": {"metadata": {"finalizers": [WORK_FINALIZER]}},
}


async def test_an_agent_changes_nothing_of_a_work_but_its_finalizer_and_status(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """And nothing at all of another cluster's works."""
    agent, other = Agent(bootstrap, "applies"), Agent(bootstrap, "neighbour")
    async with hubs.running(fleet_connection):
        connection = await agent.join(fleet)
        await other.join(fleet)
    made = work("w")
    made["metadata"]["finalizers"] = ["example.com/mine"]
    for namespace in ("applies", "neighbour"):
        await fleet.create(WORKS, made, namespace)
    key = Key("applies", "w")
    async with Client(connection) as own:
        for patch in BY_AGENTS.values():
            with pytest.raises(Forbidden, match=r"knfleet-(agent-works|work-executor)"):
                await own.patch(WORKS, key, patch)
        both = {"metadata": {"finalizers": ["example.com/mine", WORK_FINALIZER]}}
        await own.patch(WORKS, key, both)
        said = {
            "type": "Applied",
            "status": "True",
            "reason": "AppliedManifestWorkComplete",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await own.patch(WORKS, key, {"status": {"conditions": [said]}}, subresource="status")
        await own.patch(WORKS, key, {"metadata": {"finalizers": ["example.com/mine"]}})
        with pytest.raises(Forbidden):
            await own.create(WORKS, work("new"), "applies")
        with pytest.raises(Forbidden):
            await own.delete(WORKS, key)
        theirs = Key("neighbour", "w")
        for call in (
            own.get(WORKS, "w", "neighbour"),
            own.list(WORKS, "neighbour"),
            own.list(WORKS),
            own.patch(WORKS, theirs, both),
            own.patch(WORKS, theirs, {"status": {"conditions": []}}, subresource="status"),
        ):
            with pytest.raises(Forbidden):
                await call


async def test_a_work_that_is_being_deleted_can_be_edited_and_goes(
    fleet: Client, fleet_connection: Connection
):
    """Nothing that is wrong with it keeps its finalizer on it."""
    await fleet.create(WORKS, kept(work("going")), "default")
    key = Key("default", "going")
    await fleet.delete(WORKS, key)

    await fleet.patch(WORKS, key, {"spec": {"workload": {"manifests": [config_map(a="b")]}}})
    with pytest.raises(Invalid, match="should not be empty"):
        await fleet.patch(WORKS, key, {"spec": {"workload": {"manifests": []}}})
    await fleet.patch(WORKS, key, {"metadata": {"finalizers": None}})

    assert not (await fleet.list(WORKS, "default", fields="metadata.name=going")).items


async def test_a_work_from_before_the_rules_loses_its_finalizer(lend: Lend):
    """The rules are about what is written, not about what is there."""
    (lent,) = await lend(1)
    async with Client(lent.connection) as client:
        crds = [each for each in hub_objects() if each["kind"] == "CustomResourceDefinition"]
        await apply_all(client, crds)
        old = kept(work("old"))
        old["spec"]["workload"]["manifests"] = []
        await client.create(WORKS, old, "default")
        await hubs.install(lent.connection)
        await until(lambda: refuses(client, old, "should not be empty"), "the rules are kept")

        await client.patch(WORKS, Key("default", "old"), {"metadata": {"finalizers": None}})
        await client.delete(WORKS, Key("default", "old"))

        assert not (await client.list(WORKS, "default")).items
