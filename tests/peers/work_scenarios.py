"""What a ManifestWork promises, whoever runs hub and agent: one function for each promise.

All run at once on one pair, each with objects of its own name.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from knfleet.api.core import CONFIG_MAPS, CRDS, NAMESPACES
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.work.appliedmanifestwork import APPLIED_WORKS
from knfleet.api.work.manifestwork import WORKS
from knfleet.install.hub_manifests import named
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from testbed.waiting import until
from tests.support.pairs import CLUSTER, Pair

Scenario = Callable[[Pair], Awaitable[None]]
DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments")
GADGETS = Resource("example.knfleet.dev", "v1", "Gadget", "gadgets")


def config_map(name: str, **data: str) -> Object:
    """A ConfigMap of the namespace `default`."""
    return {**named("v1", "ConfigMap", name, "default"), "data": data}


def work(name: str, *manifests: Object, **spec: Any) -> Object:
    """A work for the cluster."""
    return {
        **named(WORKS.api_version, WORKS.kind, name, CLUSTER),
        "spec": {"workload": {"manifests": list(manifests)}, **spec},
    }


def config(plural: str, name: str, group: str = "", **options: Any) -> Object:
    """The options for one manifest of a work, in the namespace `default`."""
    identifier = {"group": group, "resource": plural, "name": name, "namespace": "default"}
    return {"resourceIdentifier": identifier, **options}


async def found(client: Client, resource: Resource, name: str, namespace: str) -> Object | None:
    """An object, if it is there."""
    try:
        return await client.get(resource, name, namespace)
    except NotFound:
        return None


async def data_of(pair: Pair, name: str) -> Object | None:
    """The data of a ConfigMap on the spoke, if it is there."""
    manifest = await found(pair.spoke, CONFIG_MAPS, name, "default")
    return None if manifest is None else manifest.get("data") or {}


async def until_data(pair: Pair, name: str, data: Object | None) -> None:
    """Wait until a ConfigMap on the spoke has some data, or is gone."""

    async def holds() -> bool:
        return await data_of(pair, name) == data

    await until(holds, f"ConfigMap {name} on the spoke has {data}")


async def until_condition(pair: Pair, name: str, type_: str, status: str) -> Object:
    """Wait until a work has a condition for its newest generation; the condition."""
    condition: Object = {}
    last: Object = {}

    async def holds() -> bool:
        nonlocal condition, last
        last = await pair.hub.get(WORKS, name, CLUSTER)
        every: list[Object] = last.get("status", {}).get("conditions") or []
        current = [
            each
            for each in every
            if each["type"] == type_
            and each["status"] == status
            and each.get("observedGeneration") == last["metadata"]["generation"]
        ]
        condition = current[0] if current else {}
        return bool(current)

    try:
        await until(holds, f"condition {type_} of work {name} is {status}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {last.get('status')}") from None
    return condition


async def until_gone(pair: Pair, name: str) -> None:
    """Wait until a work and its AppliedManifestWork are gone."""

    async def is_gone() -> bool:
        if await found(pair.hub, WORKS, name, CLUSTER) is not None:
            return False
        applied = await pair.spoke.list(APPLIED_WORKS)
        return not any(each["spec"]["manifestWorkName"] == name for each in applied.items)

    await until(is_gone, f"work {name} is gone")


def manifest_conditions(manifest_work: Object, ordinal: int) -> dict[str, Object]:
    """The conditions of one manifest, by type."""
    manifests = manifest_work["status"]["resourceStatus"]["manifests"]
    (one,) = (each for each in manifests if each["resourceMeta"].get("ordinal", 0) == ordinal)
    return {each["type"]: each for each in one["conditions"]}


def feedback(manifest_work: Object, ordinal: int) -> dict[str, Any]:
    """The feedback values of one manifest, by name."""
    manifests = manifest_work["status"]["resourceStatus"]["manifests"]
    (one,) = (each for each in manifests if each["resourceMeta"].get("ordinal", 0) == ordinal)
    values: list[Object] = one.get("statusFeedback", {}).get("values") or []
    fields = {"Integer": "integer", "String": "string", "Boolean": "boolean", "JsonRaw": "jsonRaw"}
    return {each["name"]: each["fieldValue"][fields[each["fieldValue"]["type"]]] for each in values}


async def a_work_is_applied_changed_and_removed(pair: Pair) -> None:
    """Objects follow the work; what leaves the work leaves the cluster."""
    await pair.hub.create(WORKS, work("plain", config_map("p1", a="1"), config_map("p2", a="1")))
    await until_condition(pair, "plain", "Applied", "True")
    await until_condition(pair, "plain", "Available", "True")
    assert await data_of(pair, "p1") == {"a": "1"}
    (applied,) = [
        each
        for each in (await pair.spoke.list(APPLIED_WORKS)).items
        if each["spec"]["manifestWorkName"] == "plain"
    ]
    live = await pair.spoke.get(CONFIG_MAPS, "p1", "default")
    owners = [each["uid"] for each in live["metadata"]["ownerReferences"]]
    assert owners == [applied["metadata"]["uid"]]

    manifests = [config_map("p1", a="2")]
    patch = {"spec": {"workload": {"manifests": manifests}}}
    await pair.hub.patch(WORKS, Key(CLUSTER, "plain"), patch)
    await until_data(pair, "p1", {"a": "2"})
    await until_data(pair, "p2", None)
    await until_condition(pair, "plain", "Applied", "True")
    await pair.hub.delete(WORKS, Key(CLUSTER, "plain"))
    await until_data(pair, "p1", None)
    await until_gone(pair, "plain")


async def one_bad_manifest_does_not_hold_up_others(pair: Pair) -> None:
    """The good one is applied and goes with the work; the bad one says why."""
    bad = named("v1", "ConfigMap", "bad", "no-such-namespace")
    await pair.hub.create(WORKS, work("mixed", bad, config_map("good", a="1")))
    await until_data(pair, "good", {"a": "1"})
    condition = await until_condition(pair, "mixed", "Applied", "False")
    assert condition["reason"] == "AppliedManifestWorkFailed"
    status = await pair.hub.get(WORKS, "mixed", CLUSTER)
    failed = manifest_conditions(status, 0)["Applied"]
    assert (failed["status"], failed["reason"]) == ("False", "AppliedManifestFailed")
    assert "no-such-namespace" in failed["message"]
    assert manifest_conditions(status, 1)["Applied"]["status"] == "True"
    await pair.hub.delete(WORKS, Key(CLUSTER, "mixed"))
    await until_data(pair, "good", None)
    await until_gone(pair, "mixed")


async def create_only_leaves_what_is_there(pair: Pair) -> None:
    """An object that exists keeps its content."""
    await pair.spoke.create(CONFIG_MAPS, config_map("once", mine="1"))
    options = [config("configmaps", "once", updateStrategy={"type": "CreateOnly"})]
    await pair.hub.create(
        WORKS, work("create-only", config_map("once", theirs="1"), manifestConfigs=options)
    )
    await until_condition(pair, "create-only", "Applied", "True")
    assert await data_of(pair, "once") == {"mine": "1"}


async def server_side_apply_reports_conflicts(pair: Pair) -> None:
    """Without force another manager keeps its fields, which the work reports."""
    mine = config_map("shared", a="mine")
    await pair.spoke.apply(CONFIG_MAPS, mine, manager="somebody")
    options = [config("configmaps", "shared", updateStrategy={"type": "ServerSideApply"})]
    await pair.hub.create(
        WORKS, work("conflict", config_map("shared", a="theirs"), manifestConfigs=options)
    )
    await until_condition(pair, "conflict", "Applied", "False")
    assert await data_of(pair, "shared") == {"a": "mine"}
    strategy = {"type": "ServerSideApply", "serverSideApply": {"force": True}}
    patch = {"spec": {"manifestConfigs": [config("configmaps", "shared", updateStrategy=strategy)]}}
    await pair.hub.patch(WORKS, Key(CLUSTER, "conflict"), patch)
    await until_data(pair, "shared", {"a": "theirs"})
    await until_condition(pair, "conflict", "Applied", "True")


async def read_only_only_reads(pair: Pair) -> None:
    """The object is reported and stays when the work goes."""
    await pair.spoke.create(CONFIG_MAPS, config_map("watched", level="7"))
    rules = [{"type": "JSONPaths", "jsonPaths": [{"name": "level", "path": ".data.level"}]}]
    options = [
        config("configmaps", "watched", updateStrategy={"type": "ReadOnly"}, feedbackRules=rules)
    ]
    await pair.hub.create(WORKS, work("read-only", config_map("watched"), manifestConfigs=options))
    await until_feedback(pair, "read-only", 0, {"level": "7"})
    assert await data_of(pair, "watched") == {"level": "7"}
    await pair.hub.delete(WORKS, Key(CLUSTER, "read-only"))
    await until_gone(pair, "read-only")
    assert await data_of(pair, "watched") == {"level": "7"}


async def until_feedback(pair: Pair, name: str, ordinal: int, values: dict[str, Any]) -> None:
    """Wait until a manifest has reported some values."""
    last: Any = None

    async def holds() -> bool:
        nonlocal last
        last = await pair.hub.get(WORKS, name, CLUSTER)
        try:
            last = feedback(last, ordinal)
        except (KeyError, ValueError):
            return False
        return last == values

    try:
        await until(holds, f"feedback of work {name}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {last}") from None


async def feedback_follows_the_object(pair: Pair) -> None:
    """Well-known values and paths, also after the object changed."""
    deployment = {
        **named("apps/v1", "Deployment", "web", "default"),
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "example.com/web"}]},
            },
        },
    }
    rules = [
        {"type": "WellKnownStatus"},
        {
            "type": "JSONPaths",
            "jsonPaths": [
                {"name": "strategy", "path": ".spec.strategy.type"},
                {"name": "absent", "path": ".status.absent"},
            ],
        },
    ]
    options = [config("deployments", "web", "apps", feedbackRules=rules)]
    await pair.hub.create(WORKS, work("feedback", deployment, manifestConfigs=options))
    ready = {"ReadyReplicas": 2, "Replicas": 2, "AvailableReplicas": 2, "strategy": "RollingUpdate"}
    await until_feedback(pair, "feedback", 0, ready)


async def orphaned_objects_stay(pair: Pair) -> None:
    """By rule, or all of them."""
    rule = {"group": "", "resource": "configmaps", "namespace": "default", "name": "stays"}
    some = {
        "propagationPolicy": "SelectivelyOrphan",
        "selectivelyOrphans": {"orphaningRules": [rule]},
    }
    await pair.hub.create(
        WORKS,
        work("some", config_map("stays", a="1"), config_map("goes", a="1"), deleteOption=some),
    )
    every = {"propagationPolicy": "Orphan"}
    await pair.hub.create(WORKS, work("every", config_map("left", a="1"), deleteOption=every))
    for name in ("some", "every"):
        await until_condition(pair, name, "Applied", "True")
        await pair.hub.delete(WORKS, Key(CLUSTER, name))
        await until_gone(pair, name)
    await until_data(pair, "goes", None)
    assert await data_of(pair, "stays") == {"a": "1"}
    assert await data_of(pair, "left") == {"a": "1"}


async def an_object_of_two_works_goes_with_the_last(pair: Pair) -> None:
    """Each work is an owner of it."""
    for name in ("first", "second"):
        await pair.hub.create(WORKS, work(name, config_map("both", a="1")))
        await until_condition(pair, name, "Applied", "True")
    await pair.hub.delete(WORKS, Key(CLUSTER, "first"))
    await until_gone(pair, "first")
    assert await data_of(pair, "both") == {"a": "1"}
    await pair.hub.delete(WORKS, Key(CLUSTER, "second"))
    await until_gone(pair, "second")
    await until_data(pair, "both", None)


async def a_kind_that_comes_later_is_applied_then(pair: Pair) -> None:
    """The definition and an object of its kind may be in one work."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    crd = {
        **named(CRDS.api_version, CRDS.kind, f"{GADGETS.plural}.{GADGETS.group}"),
        "spec": {
            "group": GADGETS.group,
            "scope": "Namespaced",
            "names": {"kind": GADGETS.kind, "plural": GADGETS.plural},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
    gadget = {**named(GADGETS.api_version, GADGETS.kind, "one", "default"), "spec": {"size": 1}}
    await pair.hub.create(WORKS, work("kinds", gadget, crd))
    await until_condition(pair, "kinds", "Applied", "True")
    assert await found(pair.spoke, GADGETS, "one", "default") is not None


async def a_deletion_waits_for_finalizers(pair: Pair) -> None:
    """The work stays until its object is really gone."""
    held = config_map("held", a="1")
    held["metadata"]["finalizers"] = ["example.knfleet.dev/held"]
    await pair.hub.create(WORKS, work("held", held))
    await until_condition(pair, "held", "Applied", "True")
    await pair.hub.delete(WORKS, Key(CLUSTER, "held"))

    async def is_deleting() -> bool:
        live = await found(pair.spoke, CONFIG_MAPS, "held", "default")
        return live is not None and "deletionTimestamp" in live["metadata"]

    await until(is_deleting, "the object is being deleted")
    assert await found(pair.hub, WORKS, "held", CLUSTER) is not None
    patch = {"metadata": {"finalizers": None}}
    await pair.spoke.patch(CONFIG_MAPS, Key("default", "held"), patch)
    await until_gone(pair, "held")


async def a_job_that_completed_completes_its_work(pair: Pair) -> None:
    """By the well-known condition."""
    job = {
        **named("batch/v1", "Job", "once-only", "default"),
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "job", "image": "example.com/job"}],
                }
            }
        },
    }
    rules = [{"type": "WellKnownConditions", "condition": "Complete"}]
    options = [config("jobs", "once-only", "batch", conditionRules=rules)]
    await pair.hub.create(WORKS, work("job", job, manifestConfigs=options))
    condition = await until_condition(pair, "job", "Complete", "True")
    assert condition["reason"] == "ConditionRulesAggregated"


async def a_rule_in_cel_makes_a_condition(pair: Pair) -> None:
    """It follows the object."""
    rules = [
        {
            "type": "CEL",
            "condition": "Progressing",
            "celExpressions": ["object.data.phase != 'done'"],
            "messageExpression": "'phase is ' + object.data.phase",
        }
    ]
    options = [config("configmaps", "phase", conditionRules=rules)]
    await pair.hub.create(
        WORKS, work("cel", config_map("phase", phase="begun"), manifestConfigs=options)
    )
    await until_condition(pair, "cel", "Progressing", "True")
    manifests = [config_map("phase", phase="done")]
    patch = {"spec": {"workload": {"manifests": manifests}}}
    await pair.hub.patch(WORKS, Key(CLUSTER, "cel"), patch)
    await until_condition(pair, "cel", "Progressing", "False")


async def an_executor_needs_its_own_rights(pair: Pair) -> None:
    """Without them nothing is applied in its name."""
    account = {"type": "ServiceAccount", "serviceAccount": {"name": "poor", "namespace": "default"}}
    await pair.hub.create(
        WORKS, work("executor", config_map("forbidden", a="1"), executor={"subject": account})
    )
    await until_condition(pair, "executor", "Applied", "False")
    assert await data_of(pair, "forbidden") is None


async def a_namespace_and_what_is_in_it(pair: Pair) -> None:
    """The order of the manifests does not matter."""
    inside = {**named("v1", "ConfigMap", "inside", "made"), "data": {"a": "1"}}
    await pair.hub.create(WORKS, work("order", inside, named("v1", "Namespace", "made")))
    await until_condition(pair, "order", "Applied", "True")
    assert await found(pair.spoke, NAMESPACES, "made", "") is not None
    await pair.hub.delete(WORKS, Key(CLUSTER, "order"))
    await until_gone(pair, "order")


SCENARIOS: tuple[Scenario, ...] = (
    a_work_is_applied_changed_and_removed,
    one_bad_manifest_does_not_hold_up_others,
    create_only_leaves_what_is_there,
    server_side_apply_reports_conflicts,
    read_only_only_reads,
    feedback_follows_the_object,
    orphaned_objects_stay,
    an_object_of_two_works_goes_with_the_last,
    a_kind_that_comes_later_is_applied_then,
    a_deletion_waits_for_finalizers,
    a_job_that_completed_completes_its_work,
    a_rule_in_cel_makes_a_condition,
    an_executor_needs_its_own_rights,
    a_namespace_and_what_is_in_it,
)


async def play(pair: Pair) -> dict[str, str]:
    """Run all scenarios at once; what went wrong, by name."""
    names = [each.__name__ for each in SCENARIOS]
    results = await asyncio.gather(*(each(pair) for each in SCENARIOS), return_exceptions=True)
    return {
        name: f"{type(result).__name__}: {result}"
        for name, result in zip(names, results, strict=True)
        if isinstance(result, BaseException)
    }
