"""Applying to a real API server: what is written, what is not, and what is said about it."""

import asyncio
from collections import defaultdict
from typing import Any

import psutil
import pytest

from knfleet.api.core import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    SERVICES,
    VALIDATING_WEBHOOKS,
)
from knfleet.api.meta import ClusterName, Key, Object, Resource
from knfleet.apply import well_known
from knfleet.apply.act.gates import TOUCHED
from knfleet.apply.applyset import Inventory, read_parent
from knfleet.apply.change_set import FailureKind
from knfleet.apply.desired import OwnerReferences
from knfleet.apply.engine import Engine
from knfleet.apply.manifest_fields import part
from knfleet.apply.refs import Ref
from knfleet.dev import processes
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import Forbidden
from testbed.clusters import Lent
from testbed.waiting import until
from tests.server.apply.conftest import QUICK, Bench, Requests, other_set
from tests.support.objects import (
    SET,
    THINGS,
    cluster_role,
    config_map,
    crd,
    deployment,
    job,
    manifest,
    namespace,
    service,
)


def small_release() -> list[Object]:
    """A set with something of every wave."""
    binding = manifest(
        CLUSTER_ROLES,
        "reader",
        roleRef={"apiGroup": CLUSTER_ROLES.group, "kind": "ClusterRole", "name": "reader"},
        subjects=[{"kind": "ServiceAccount", "name": "default", "namespace": "home"}],
    )
    binding["kind"] = "ClusterRoleBinding"
    return [
        manifest(THINGS, "thing", spec={"size": 3}),
        deployment("web"),
        service("web"),
        config_map("settings", level="info"),
        binding,
        cluster_role("reader"),
        crd(),
        config_map("elsewhere", "away", a="1"),
        namespace("away"),
    ]


async def inventory(bench: Bench) -> Inventory:
    """What the parent says."""
    return read_parent(SET, await bench.get(CONFIG_MAPS, "parent")).inventory


async def test_a_set_is_applied_in_one_go_whatever_its_order(bench: Bench) -> None:
    """A custom resource and its CRD, a namespace and what is in it, all in one call."""
    objects = small_release()

    changes = await bench.engine().apply(objects)

    assert changes.failures == ()
    assert len(changes.created) == len(objects)
    thing = await bench.get(THINGS, "thing")
    assert thing["metadata"]["labels"][well_known.PART_OF] == SET.id
    assert (await inventory(bench)).covers(changes.created)


async def test_a_second_pass_writes_nothing_even_after_a_restart(bench: Bench) -> None:
    """The hash and the field sets on the objects tell a new process all it needs."""
    objects = small_release()
    engine = bench.engine()
    await engine.apply(objects)
    await engine.prune(objects)
    before = bench.requests.total

    again = await engine.apply(objects)
    pruned = await engine.prune(objects)

    assert bench.requests.total == before
    assert len(again.unchanged) == len(objects)
    assert not again.wrote
    assert not pruned.changes

    reborn = bench.engine()
    writes = await bench.wrote(lambda: reborn.apply(small_release()))
    assert writes == 0


async def test_a_restarted_process_sees_what_was_edited_meanwhile(
    bench: Bench, stranger: Client
) -> None:
    """Only that object is written, and the edit is undone."""
    objects = small_release()
    await bench.engine().apply(objects)
    await stranger.patch(CONFIG_MAPS, Key("home", "settings"), {"data": {"level": "debug"}})

    changes = await bench.engine().apply(objects)

    (change,) = [each for each in changes.changes if each.action == "configured"]
    assert change.ref.name == "settings"
    assert change.fields == ("data.level",)
    assert change.taken_from == ("stranger",)
    assert (await bench.get(CONFIG_MAPS, "settings"))["data"] == {"level": "info"}


async def test_a_key_that_is_dropped_disappears_and_keys_of_others_stay(
    bench: Bench, stranger: Client
) -> None:
    """A ConfigMap is shared field by field."""
    engine = bench.engine()
    await engine.apply([config_map("c", a="1", b="2")])
    await stranger.patch(CONFIG_MAPS, Key("home", "c"), {"data": {"theirs": "3"}})

    changes = await engine.apply([config_map("c", a="1")])

    assert [ref.name for ref in changes.configured] == ["c"]
    assert (await bench.get(CONFIG_MAPS, "c"))["data"] == {"a": "1", "theirs": "3"}


async def test_fields_of_others_survive(bench: Bench, stranger: Client) -> None:
    """A caBundle, rules that the webhook fills in, an injected annotation, aggregated rules."""
    hook: Object = {
        "name": "w.example.com",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
        "clientConfig": {"service": {"namespace": "home", "name": "web"}},
    }
    selectors = [{"matchLabels": {"for": "all"}}]
    objects = [
        manifest(VALIDATING_WEBHOOKS, "w", webhooks=[hook]),
        cluster_role("all", aggregationRule={"clusterRoleSelectors": selectors}, rules=[]),
        deployment("web"),
    ]
    engine = bench.engine()
    await engine.apply(objects)
    filled = {
        "name": "w.example.com",
        "clientConfig": {"caBundle": "YWJj"},
        "rules": [
            {
                "apiGroups": ["example.com"],
                "apiVersions": ["*"],
                "resources": ["things"],
                "operations": ["*"],
            }
        ],
    }
    await stranger.patch(VALIDATING_WEBHOOKS, Key("", "w"), {"webhooks": [filled]}, strategic=True)
    part = cluster_role("part")
    part["metadata"]["labels"] = {"for": "all"}
    await stranger.create(CLUSTER_ROLES, part)
    injected = {"spec": {"template": {"metadata": {"annotations": {"injected": "yes"}}}}}
    await stranger.patch(DEPLOYMENTS, Key("home", "web"), injected)

    async def is_aggregated() -> bool:
        return bool((await bench.get(CLUSTER_ROLES, "all")).get("rules"))

    await until(is_aggregated, "the rules are aggregated")
    changes = await bench.engine().apply(objects)
    assert not changes.wrote
    louder = [objects[0], objects[1], deployment("web", image="example.com/app:2")]
    await bench.engine().apply(louder)

    (webhook,) = (await bench.get(VALIDATING_WEBHOOKS, "w"))["webhooks"]
    assert webhook["clientConfig"]["caBundle"] == "YWJj"
    assert webhook["rules"]
    assert (await bench.get(CLUSTER_ROLES, "all"))["rules"]
    template = (await bench.get(DEPLOYMENTS, "web"))["spec"]["template"]
    assert template["metadata"]["annotations"] == {"injected": "yes"}
    assert template["spec"]["containers"][0]["image"] == "example.com/app:2"


async def test_replicas_that_an_autoscaler_set_stay(bench: Bench, hub_connection: object) -> None:
    """They are written through the scale subresource by the controller manager."""
    engine = bench.engine()
    objects = [deployment("web", replicas=1)]
    await engine.apply(objects)
    options = ClientOptions(manager="kube-controller-manager")
    async with Client(bench.connection, options) as autoscaler:
        scale = {"spec": {"replicas": 3}}
        await autoscaler.patch(DEPLOYMENTS, Key("home", "web"), scale, subresource="scale")

    assert not (await bench.engine().apply(objects)).wrote
    await bench.engine().apply([deployment("web", image="example.com/app:2")])

    spec = (await bench.get(DEPLOYMENTS, "web"))["spec"]
    assert spec["replicas"] == 3
    assert spec["template"]["spec"]["containers"][0]["image"] == "example.com/app:2"


async def test_a_job_is_made_anew_when_its_template_changes(bench: Bench) -> None:
    """It is the one kind for which that is right."""
    engine = bench.engine()
    await engine.apply([job("migrate")])
    before = await bench.get(JOBS, "migrate")

    changes = await engine.apply([job("migrate", image="example.com/job:2")])

    after = await bench.get(JOBS, "migrate")
    assert [ref.name for ref in changes.recreated] == ["migrate"]
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert not (await engine.apply([job("migrate", image="example.com/job:2")])).wrote


async def test_other_fields_that_cannot_be_changed_are_reported(bench: Bench) -> None:
    """Nothing is deleted, nothing is tried twice, and the rest is applied."""
    engine = bench.engine()
    fixed = service("web")
    fixed["spec"]["clusterIP"] = "198.18.77.1"
    await engine.apply([deployment("web"), fixed])
    uid = (await bench.get(DEPLOYMENTS, "web"))["metadata"]["uid"]
    moved = deployment("web")
    moved["spec"]["selector"]["matchLabels"] = {"app": "other"}
    moved["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    fixed["spec"]["clusterIP"] = "198.18.77.2"

    changes = await engine.apply([moved, fixed, config_map("fine")])

    reasons = {failure.ref.kind: failure for failure in changes.failures}
    assert {failure.why for failure in changes.failures} == {FailureKind.IMMUTABLE}
    assert reasons["Deployment"].message.startswith("spec.selector cannot be changed")
    assert "spec.clusterIP" in reasons["Service"].message
    assert [ref.name for ref in changes.created] == ["fine"]
    assert (await bench.get(DEPLOYMENTS, "web"))["metadata"]["uid"] == uid


async def test_kinds_that_the_cluster_does_not_serve_fail_alone(bench: Bench) -> None:
    """In the words that other tools use."""
    gateway: Object = {
        "apiVersion": "networking.istio.io/v1beta1",
        "kind": "Gateway",
        "metadata": {"name": "g", "namespace": "home"},
    }

    changes = await bench.engine().apply([gateway, config_map("fine")])

    (failure,) = changes.failures
    assert failure.why == FailureKind.UNKNOWN_KIND
    assert failure.message.startswith('no matches for kind "Gateway"')
    assert [ref.name for ref in changes.created] == ["fine"]


async def test_a_crd_that_was_not_served_in_time_is_written_before_it_is_waited_for_again(
    bench: Bench,
) -> None:
    """A killed API server forgets to serve what it accepted, until somebody writes it."""
    engine, objects = bench.engine(), [crd()]
    assert (await engine.apply(objects)).settled
    name = crd()["metadata"]["name"]
    assert TOUCHED not in part(await bench.get(CRDS, name, ""), "metadata", "annotations")

    engine.gates.unserved = frozenset({Ref.of(objects[0])})
    assert (await engine.apply(objects)).settled

    assert TOUCHED in part(await bench.get(CRDS, name, ""), "metadata", "annotations")
    assert engine.gates.unserved == frozenset()
    assert (await engine.apply(objects)).settled


async def test_a_crd_that_clashes_is_told_with_the_server_s_reason(bench: Bench) -> None:
    """Its custom resources wait, and nothing hangs."""
    await bench.client.create(CRDS, crd("Thing"))
    clashing = crd("Gadget")
    clashing["spec"]["names"]["kind"] = "Thing"
    clashing["spec"]["names"]["listKind"] = "ThingList"
    gadget = manifest(THINGS, "g")

    changes = await bench.engine().apply([clashing, gadget, config_map("fine")])

    (failure,) = [each for each in changes.failures if each.ref.kind.startswith("Custom")]
    assert failure.why == FailureKind.NOT_ESTABLISHED
    assert "Thing" in failure.message
    assert [ref.name for ref in changes.created if ref.kind == "ConfigMap"] == ["fine"]


async def test_a_namespace_that_goes_away_is_reported_and_recovers(
    bench: Bench, stranger: Client
) -> None:
    """Its objects say why they cannot be made; when it is gone, all is made anew."""
    held = config_map("held", "away")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    objects = [namespace("away"), config_map("c", "away", a="1"), config_map("fine")]
    engine = bench.engine()
    await stranger.create(NAMESPACES, namespace("away"))
    await stranger.create(CONFIG_MAPS, held)
    await stranger.delete(NAMESPACES, Key("", "away"))

    changes = await engine.apply(objects)

    assert [(each.ref.kind, each.message) for each in changes.pending] == [
        ("Namespace", "it is being deleted")
    ]
    assert [each.why for each in changes.failures] == [FailureKind.TERMINATING]
    assert [ref.name for ref in changes.created] == ["fine"]

    await stranger.patch(CONFIG_MAPS, Key("away", "held"), {"metadata": {"finalizers": None}})

    async def is_gone() -> bool:
        return not await bench.exists(NAMESPACES, "away", "")

    await until(is_gone, "the namespace is gone")
    assert (await engine.apply(objects)).settled


async def test_an_exceeded_quota_is_named(bench: Bench, stranger: Client) -> None:
    """It is a 403, and no matter of rights."""
    quota: Object = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": "home"},
        "spec": {"hard": {"services": "0"}},
    }
    resource = await stranger.discovery.resource("v1", "ResourceQuota")
    await stranger.create(resource, quota)
    # As the controller does, which gets to new kinds of quotas once in half a minute.
    counted: Object = {"status": {"hard": {"services": "0"}, "used": {"services": "0"}}}
    await stranger.patch(resource, Key("home", "none"), counted, subresource="status")

    async def is_enforced() -> bool:
        try:
            await stranger.create(SERVICES, service("other"), dry_run=True)
        except Forbidden:
            return True
        return False

    await until(is_enforced, "the quota is in force")

    changes = await bench.engine().apply([service("web"), config_map("fine")])

    (failure,) = changes.failures
    assert failure.why == FailureKind.QUOTA
    assert "exceeded quota: none" in failure.message
    assert changes.denials == []
    assert not await bench.exists(SERVICES, "web")


async def test_an_object_of_another_set_is_left_alone(bench: Bench) -> None:
    """Until that set is gone; then it may be taken over."""
    theirs = bench.engine(other_set("theirs"))
    await theirs.apply([config_map("c", a="theirs")])

    changes = await bench.engine().apply([config_map("c", a="ours"), config_map("fine")])

    (failure,) = changes.failures
    assert failure.why == FailureKind.OTHER_SET
    assert other_set("theirs").id in failure.message
    assert (await bench.get(CONFIG_MAPS, "c"))["data"] == {"a": "theirs"}

    await bench.client.delete(CONFIG_MAPS, Key("home", "theirs"))
    assert (await bench.engine().apply([config_map("c", a="ours")])).settled
    assert (await bench.get(CONFIG_MAPS, "c"))["data"] == {"a": "ours"}


async def test_a_parent_of_another_tool_is_left_alone(bench: Bench, stranger: Client) -> None:
    """As the convention demands."""
    parent = config_map("parent")
    parent["metadata"]["annotations"] = {well_known.TOOLING: "kubectl/v1.35.8"}
    await stranger.create(CONFIG_MAPS, parent)

    changes = await bench.engine().apply([config_map("c")])

    assert [each.why for each in changes.failures] == [FailureKind.OTHER_SET]
    assert not await bench.exists(CONFIG_MAPS, "c")


async def test_a_plan_tells_what_would_happen_and_writes_nothing(bench: Bench) -> None:
    """The same decisions as an apply."""
    engine = bench.engine()
    await engine.apply([config_map("a", v="1"), config_map("b", v="1")])
    objects = [config_map("a", v="1"), config_map("b", v="2"), config_map("c", v="1")]
    before = bench.requests.writes

    plan = await bench.engine().plan(objects)

    assert bench.requests.writes == before
    verdicts = {step.desired.ref.name: str(step.verdict) for step in (*plan.steps, *plan.kept)}
    assert verdicts == {"a": "keep", "b": "configure", "c": "create"}


@pytest.mark.parametrize("owner_namespace", ["home", "away"])
async def test_an_owner_takes_its_own_namespace_along(bench: Bench, owner_namespace: str) -> None:
    """And objects elsewhere are not given to the garbage collector."""
    await bench.client.create(NAMESPACES, namespace("away"))
    owner = await bench.client.create(CONFIG_MAPS, config_map("owner", owner_namespace))
    engine = Engine(bench.client, SET, owners=OwnerReferences(owner))
    await engine.apply([config_map("c", "home"), config_map("c", "away")])

    owned = {
        at: "ownerReferences" in (await bench.get(CONFIG_MAPS, "c", at))["metadata"]
        for at in ("home", "away")
    }
    assert owned == {"home": owner_namespace == "home", "away": owner_namespace == "away"}


async def test_done_jobs_do_not_run_again(bench: Bench) -> None:
    """Not in this process, and not in the next."""
    objects = [job("migrate", ttlSecondsAfterFinished=0)]
    objects[0]["spec"]["ttlSecondsAfterFinished"] = 600
    engine = bench.engine()
    await engine.apply(objects)

    async def is_done() -> bool:
        status = (await bench.get(JOBS, "migrate")).get("status", {})
        return any(each["type"] == "Complete" for each in status.get("conditions", []))

    await until(is_done, "the Job is complete")
    await engine.prune(objects)
    await bench.client.delete(JOBS, Key("home", "migrate"), propagation="Background")

    async def is_gone() -> bool:
        return not await bench.exists(JOBS, "migrate")

    await until(is_gone, "the Job is gone")

    assert not (await bench.engine().apply(objects)).wrote
    assert await is_gone()
    assert (await bench.engine().apply([job("migrate", image="new")])).created == [
        Ref("batch", "Job", "home", "migrate")
    ]


class Freezer(Requests):
    """Freezes an API server when so many objects have been applied."""

    def __init__(self, server: psutil.Process, after: int) -> None:
        super().__init__()
        self.server = server
        self.after = after

    def request(self, cluster: ClusterName, verb: str, code: int, seconds: float) -> None:
        """One request more."""
        super().request(cluster, verb, code, seconds)
        if verb == "apply" and self.verbs[verb] == self.after:
            self.server.suspend()


async def test_an_api_server_that_goes_away_is_told_and_outlived(bench: Bench, lent: Lent) -> None:
    """What was not tried waits, nothing hangs, and the next call completes it."""
    recorded = processes.recorded(lent.folder)[f"{lent.name}.kube-apiserver"]
    server = psutil.Process(recorded.pid)
    objects = small_release()
    # The parent and the first wave are through then.
    freezer = Freezer(server, after=3)
    try:
        async with Client(
            bench.connection, ClientOptions(observe=freezer, deadline_seconds=1, attempts=1)
        ) as client:
            changes = await Engine(client, SET, deadlines=QUICK).apply(objects)
    finally:
        server.resume()

    assert {failure.why for failure in changes.failures} == {FailureKind.UNANSWERED}
    assert "the cluster stopped answering" in {each.message for each in changes.pending}
    assert len(changes.changes) + len(changes.failures) + len(changes.pending) == len(objects)
    assert (await bench.engine().apply(objects)).settled


class InOrder(Client):
    """A client that shows in which order objects are written, by holding some of them up."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.begun: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def apply(self, resource: Resource, manifest: Object, **rest: Any) -> Object:
        """Write material when Services are being written, and Services when workloads are."""
        self.begun[resource.kind].set()
        match manifest["kind"], manifest["metadata"]["name"]:
            case "ConfigMap", "settings":
                await self.begun["Service"].wait()
            case "Service", _:
                await self.begun["Deployment"].wait()
            case _:
                pass
        return await super().apply(resource, manifest, **rest)


async def test_services_begin_early_and_hold_nobody_up(bench: Bench) -> None:
    """An API server finds their addresses one after the other, which may take long."""
    async with InOrder(bench.connection) as client, asyncio.timeout(60):
        changes = await Engine(client, SET, deadlines=QUICK).apply(small_release())

    assert changes.failures == ()
    assert await bench.exists(SERVICES, "web")
