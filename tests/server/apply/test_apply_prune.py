"""Pruning and uninstalling on a real API server: complete, careful, and after any interruption."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from knfleet.api.core import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICES,
)
from knfleet.api.meta import ClusterName, Key, Object, Resource
from knfleet.apply import well_known
from knfleet.apply.act.writer import Deadlines
from knfleet.apply.applyset import Inventory, read_parent
from knfleet.apply.change_set import FailureKind
from knfleet.apply.desired import OwnerReferences
from knfleet.apply.engine import Engine
from knfleet.apply.observe.metadata import observe
from knfleet.apply.refs import GroupKind, Ref
from knfleet.kube.client.verbs import Client, ClientOptions
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

AGGREGATED = {"clusterRoleSelectors": [{"matchLabels": {"for": "all"}}]}


async def parent_inventory(client: Client) -> Inventory:
    """What the parent says."""
    return read_parent(SET, await client.get(CONFIG_MAPS, "parent", "home")).inventory


async def members(client: Client) -> dict[Ref, str]:
    """All objects in the cluster that carry the label of the set, with the hash of each."""
    found: dict[Ref, str] = {}
    for served in await client.discovery.resources():
        if {"list", "delete"} <= served.verbs:
            listing = await client.list(served.resource, labels=SET.selector, metadata_only=True)
            for each in listing.items:
                found[Ref.of(each)] = observe(each).applied_hash
    return found


async def test_what_is_no_longer_wanted_goes_when_asked_and_not_before(bench: Bench) -> None:
    """An upgrade keeps the old objects until the new ones work; then the parent is narrowed."""
    engine = bench.engine()
    await engine.apply([config_map("a"), service("old"), config_map("b")])
    new = [config_map("a"), config_map("c")]

    await engine.apply(new)
    assert await bench.exists(SERVICES, "old")
    assert GroupKind("", "Service") in (await parent_inventory(bench.client)).kinds

    changes = await engine.prune(new)

    assert [ref.name for ref in changes.deleted] == ["b", "old"]
    assert (await parent_inventory(bench.client)).kinds == {GroupKind("", "ConfigMap")}
    assert {ref.name for ref in await members(bench.client)} == {"a", "c"}


async def test_a_new_process_prunes_without_the_old_release(bench: Bench) -> None:
    """The labels and the parent tell what there was."""
    old = [config_map("c", "away"), namespace("away"), cluster_role("old"), deployment("old")]
    await bench.engine().apply(old)

    new = [config_map("new")]
    engine = bench.engine()
    await engine.apply(new)
    changes = await engine.prune(new)

    assert changes.settled, changes.pending
    assert {ref.name for ref in changes.deleted} == {"c", "away", "old"}
    assert {ref.name for ref in await members(bench.client)} == {"new"}


async def test_what_others_marked_or_that_lost_our_mark_is_left_alone(
    bench: Bench, stranger: Client
) -> None:
    """Neither label nor place makes an object ours that was given away."""
    engine = bench.engine()
    await engine.apply([config_map("given"), config_map("lost"), config_map("mine")])
    given = {"metadata": {"labels": {well_known.PART_OF: other_set("theirs").id}}}
    await stranger.patch(CONFIG_MAPS, Key("home", "given"), given)
    unmarked: Object = {"metadata": {"labels": {well_known.PART_OF: None}}}
    await stranger.patch(CONFIG_MAPS, Key("home", "lost"), unmarked)
    await stranger.create(SECRETS, manifest(SECRETS, "unrelated"))

    changes = await bench.engine().uninstall()

    assert [ref.name for ref in changes.deleted] == ["mine"]
    assert await bench.exists(CONFIG_MAPS, "given")
    assert await bench.exists(CONFIG_MAPS, "lost")
    assert await bench.exists(SECRETS, "unrelated")


async def copied(bench: Bench, stranger: Client, resource: Resource, name: str) -> None:
    """Have a stranger copy an object under the name `copy`, marks and owners included."""
    found = await bench.get(resource, name)
    meta = {
        field: found["metadata"][field]
        for field in ("namespace", "labels", "annotations", "ownerReferences")
        if field in found["metadata"]
    }
    rest = {field: value for field, value in found.items() if field not in ("status", "spec")}
    if resource == DEPLOYMENTS:
        rest["spec"] = found["spec"]
    await stranger.create(resource, {**rest, "metadata": {**meta, "name": "copy"}})


@pytest.mark.parametrize("leave", ["prune", "uninstall"])
async def test_a_copy_that_somebody_made_is_left_to_them(
    bench: Bench, stranger: Client, leave: str
) -> None:
    """Its label says that it is ours, and nobody of us wrote it: it loses label and owner."""
    owner = await bench.client.create(CONFIG_MAPS, config_map("owner"))
    engine = Engine(bench.client, SET, owners=OwnerReferences(owner), deadlines=QUICK)
    kinds = {CONFIG_MAPS: "c", DEPLOYMENTS: "d", CLUSTER_ROLES: "r", NAMESPACES: "n"}
    kept = [config_map("kept")]
    old = [config_map("c"), deployment("d"), cluster_role("r"), namespace("n")]
    assert (await engine.apply([*kept, *old])).settled
    for resource, name in kinds.items():
        await copied(bench, stranger, resource, name)

    if leave == "prune":
        await engine.apply(kept)
        changes = await engine.prune(kept)
    else:
        changes = await engine.uninstall()

    assert changes.settled, (changes.failures, changes.pending)
    assert {"c", "d", "r", "n"} <= {ref.name for ref in changes.deleted}
    assert [each.ref.kind for each in changes.changes if each.copied] == [
        "ConfigMap",
        "Namespace",
        "Deployment",
        "ClusterRole",
    ]
    for resource in kinds:
        meta = (await bench.get(resource, "copy"))["metadata"]
        assert well_known.PART_OF not in meta.get("labels", {})
        assert "ownerReferences" not in meta
        assert "deletionTimestamp" not in meta


async def test_an_uninstall_leaves_crds_and_the_namespaces_of_others(
    bench: Bench, stranger: Client
) -> None:
    """They lose our label, so that the next set can have them; all the rest is gone."""
    await stranger.create(NAMESPACES, namespace("theirs"))
    objects = [
        crd(),
        manifest(THINGS, "thing"),
        namespace("theirs"),
        namespace("ours"),
        config_map("c", "ours"),
        config_map("c", "theirs"),
        deployment("web"),
        job("migrate"),
    ]
    engine = bench.engine()
    await engine.apply(objects)

    changes = await bench.engine().uninstall()

    assert changes.settled, (changes.failures, changes.pending)
    assert await members(bench.client) == {}
    assert await bench.exists(CRDS, "things.example.com", "")
    assert await bench.exists(NAMESPACES, "theirs", "")
    assert not await bench.exists(NAMESPACES, "ours", "")
    assert (await bench.client.list(PODS, "home")).items == []
    assert (await parent_inventory(bench.client)).kinds == frozenset()

    assert (await bench.engine(other_set("next")).apply([crd(), namespace("theirs")])).settled


async def test_custom_resources_go_while_their_controllers_are_there(
    bench: Bench, stranger: Client
) -> None:
    """One that is held is named with its finalizer, and the Deployment stays until it is gone."""
    thing = manifest(THINGS, "thing")
    await bench.engine().apply([crd(), thing, deployment("controller")])
    finalizers: Object = {"metadata": {"finalizers": ["example.com/clean"]}}
    await stranger.patch(THINGS, Key("home", "thing"), finalizers)

    changes = await bench.engine(deadlines=Deadlines(gone_seconds=1)).uninstall()

    held = {each.ref.kind: each.message for each in changes.pending}
    assert "example.com/clean" in held["Thing"]
    assert "waits for others" in held["Deployment"]
    assert await bench.exists(DEPLOYMENTS, "controller")

    finalizers["metadata"]["finalizers"] = None
    await stranger.patch(THINGS, Key("home", "thing"), finalizers)
    assert (await bench.engine().uninstall()).settled
    assert not await bench.exists(DEPLOYMENTS, "controller")


async def test_without_a_parent_everything_is_still_found(bench: Bench) -> None:
    """Somebody deleted it; the labels are enough."""
    await bench.engine().apply([config_map("c"), cluster_role("r"), crd(), manifest(THINGS, "t")])
    await bench.client.delete(CONFIG_MAPS, Key("home", "parent"))

    changes = await bench.engine().uninstall()

    assert {ref.name for ref in changes.deleted} == {"c", "r", "t"}
    assert await members(bench.client) == {}
    assert not await bench.exists(CONFIG_MAPS, "parent")


async def test_aggregated_roles_that_come_back_are_deleted_again(
    bench: Bench, hub_connection: object
) -> None:
    """Written as the aggregation controller writes them: by apply, without labels."""
    part = cluster_role("part")
    part["metadata"]["labels"] = {"for": "all"}
    objects = [cluster_role("all", aggregationRule=AGGREGATED, rules=[]), part, config_map("c")]
    await bench.engine().apply(objects)

    async def is_filled() -> bool:
        return bool((await bench.get(CLUSTER_ROLES, "all")).get("rules"))

    await until(is_filled, "the role is filled")
    ghost = {**cluster_role("all"), "metadata": {"name": "all"}}

    async def haunt() -> None:
        options = ClientOptions(manager="clusterrole-aggregation-controller")
        async with Client(bench.connection, options) as controller:

            async def is_gone() -> bool:
                return not await bench.exists(CLUSTER_ROLES, "all", "")

            await until(is_gone, "the role is gone")
            await controller.apply(CLUSTER_ROLES, ghost)

    haunting = asyncio.create_task(haunt())
    changes = await bench.engine().uninstall()
    await haunting

    assert changes.settled, changes.pending
    assert not await bench.exists(CLUSTER_ROLES, "all", "")
    assert (await parent_inventory(bench.client)).second_look == frozenset()


async def test_a_ghost_is_found_by_the_next_process_too(bench: Bench) -> None:
    """The parent remembers which roles to look for again."""
    objects = [cluster_role("all", aggregationRule=AGGREGATED), config_map("c")]
    engine = bench.engine()
    await engine.apply(objects)
    await engine.parents.change(
        lambda inventory: Inventory(
            inventory.kinds, inventory.namespaces, frozenset({"all", "foreign"})
        )
    )
    await bench.client.delete(CLUSTER_ROLES, Key("", "all"))
    options = ClientOptions(manager="clusterrole-aggregation-controller")
    async with Client(bench.connection, options) as controller:
        await controller.apply(CLUSTER_ROLES, {**cluster_role("all")})
    await bench.client.create(CLUSTER_ROLES, cluster_role("foreign"))

    changes = await bench.engine().uninstall()

    assert {ref.name for ref in changes.deleted} == {"all", "c"}
    assert await bench.exists(CLUSTER_ROLES, "foreign", "")


async def test_a_namespace_whose_making_was_cut_short_is_still_ours(bench: Bench) -> None:
    """It is marked in the very request that creates it."""
    engine = bench.engine()
    (desired,) = (await engine.desired([namespace("ours", team="a")])).objects.values()
    await engine.parents.change(lambda inventory: inventory.widened([desired.ref]))
    await engine.writer.found_namespace(desired.manifest)

    await bench.engine().apply([namespace("ours", team="a")])
    labels = (await bench.get(NAMESPACES, "ours"))["metadata"]["labels"]
    changes = await bench.engine().uninstall()

    assert labels["team"] == "a"
    assert [ref.name for ref in changes.deleted] == ["ours"]


async def test_what_must_not_be_deleted_does_not_keep_the_rest(bench: Bench) -> None:
    """It is told with the reason, and the parent still lists its kind."""
    policy = await bench.client.discovery.resource(
        "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"
    )
    binding = await bench.client.discovery.resource(
        "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"
    )
    await bench.engine().apply([config_map("kept"), config_map("c"), service("s")])
    rule: Object = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["DELETE"],
        "resources": ["configmaps"],
        "resourceNames": ["kept"],
    }
    spec: Object = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false", "message": "it must stay"}],
    }
    await bench.client.create(policy, manifest(policy, "keep", spec=spec))
    bound: Object = {"policyName": "keep", "validationActions": ["Deny"]}
    await bench.client.create(binding, manifest(binding, "keep", spec=bound))

    async def is_kept() -> bool:
        try:
            await bench.client.delete(CONFIG_MAPS, Key("home", "kept"), dry_run=True)
        except Exception as error:
            return "it must stay" in str(error)
        return False

    await until(is_kept, "the policy is in force")

    changes = await bench.engine().uninstall()

    (failure,) = changes.failures
    assert (failure.ref.name, failure.verb, failure.why) == ("kept", "delete", FailureKind.DENIED)
    assert "it must stay" in failure.message
    assert {ref.name for ref in changes.deleted} == {"c", "s"}
    assert GroupKind("", "ConfigMap") in (await parent_inventory(bench.client)).kinds


class Killer(Requests):
    """Ends a task when its client has made so many requests."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after
        self.task: asyncio.Task[None] | None = None

    def request(self, cluster: ClusterName, verb: str, code: int, seconds: float) -> None:
        """One request more."""
        super().request(cluster, verb, code, seconds)
        if self.total == self.after and self.task is not None:
            self.task.cancel()


OLD = [config_map("same", v="1"), config_map("changed", v="1"), config_map("old"), service("old")]
NEW = [
    config_map("same", v="1"),
    config_map("changed", v="2"),
    config_map("new", "away"),
    cluster_role("new"),
]


Work = Callable[[Engine], Coroutine[Any, Any, None]]


async def upgrade(engine: Engine) -> None:
    """From the old release to the new."""
    assert (await engine.apply(NEW)).settled
    assert (await engine.prune(NEW)).settled


async def remove(engine: Engine) -> None:
    """From the old release to nothing."""
    assert (await engine.uninstall()).settled


async def killed(bench: Bench, work: Work, after: int) -> bool:
    """Begin some work in a process that dies after so many requests; whether it was done before."""
    killer = Killer(after)
    async with Client(bench.connection, ClientOptions(observe=killer)) as client:
        killer.task = asyncio.create_task(work(Engine(client, SET, deadlines=QUICK)))
        try:
            await killer.task
        except asyncio.CancelledError:
            return False
    return True


@pytest.mark.parametrize("work", [upgrade, remove])
async def test_killed_after_any_request_the_next_process_ends_in_the_same_state(
    bench: Bench, work: Work
) -> None:
    """Nothing is lost, nothing is left, wherever it happens."""
    await bench.client.create(NAMESPACES, namespace("away"))
    await bench.engine().apply(OLD)
    await work(bench.engine())
    expected = await members(bench.client)
    inventory = await parent_inventory(bench.client)

    for after in range(1, 100):
        await bench.engine().uninstall()
        await bench.engine().apply(OLD)
        finished = await killed(bench, work, after)
        await work(bench.engine())

        assert await members(bench.client) == expected, f"killed after {after} requests"
        assert await parent_inventory(bench.client) == inventory
        if finished:
            assert after > 8
            return
    raise AssertionError("it never came to its end")
