"""Works become objects, stay so, and go: on a real API server."""

from collections.abc import Awaitable, Callable

import pytest

from knfleet.agent.work.desired.content import WORK_LABEL
from knfleet.api.core import CONFIG_MAPS, CRDS, DEPLOYMENTS, NAMESPACES, PODS, SECRETS
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.work.appliedmanifestwork import APPLIED_WORKS
from knfleet.api.work.manifestwork import WORKS
from testbed.waiting import until
from tests.support.works import CLUSTER, WorkBench, conditions, config_map, work

THINGS = Resource("works.example.com", "v1", "Thing", "things")


def namespace(name: str) -> Object:
    """A namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def thing_definition(plural: str = "things", kind: str = "Thing") -> Object:
    """A CRD."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {"name": f"{plural}.{THINGS.group}"},
        "spec": {
            "group": THINGS.group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [version],
        },
    }


def thing(name: str, kind: str = "Thing") -> Object:
    """An object of that kind."""
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": THINGS.api_version, "kind": kind, "metadata": meta, "spec": {"size": 1}}


async def test_drift_is_repaired_at_once(bench: WorkBench):
    """Changed content, an added key, a lost label, a lost owner, a deleted object."""
    async with bench.agent() as controller:
        await bench.create(work("drift", config_map("drift", a="1")))
        await bench.until_condition("drift", "Applied", "True")
        key = Key("default", "drift")
        changes: list[Object] = [
            {"data": {"a": "2"}},
            {"data": {"b": "2"}},
            {"metadata": {"labels": {WORK_LABEL: None}}},
            {"metadata": {"ownerReferences": None}},
        ]
        for change in changes:
            await bench.admin.patch(CONFIG_MAPS, key, change)

            async def is_repaired() -> bool:
                live = await bench.admin.get(CONFIG_MAPS, "drift", "default")
                meta = live["metadata"]
                return (
                    live["data"] == {"a": "1"}
                    and WORK_LABEL in (meta.get("labels") or {})
                    and len(meta.get("ownerReferences") or ()) == 1
                )

            await until(is_repaired, f"{change} is repaired")
            # More than three repairs of one object in a minute are slowed down.
            controller.applier.conflicts.histories.clear()
        await bench.admin.delete(CONFIG_MAPS, key)
        await bench.until_data("drift", {"a": "1"})
        await bench.delete("drift")


async def test_labels_and_annotations_of_others_stay(bench: WorkBench):
    async with bench.agent():
        manifest = config_map("meta", a="1")
        manifest["metadata"]["annotations"] = {"mine": "1"}
        await bench.create(work("meta", manifest))
        await bench.until_condition("meta", "Applied", "True")
        foreign = {"metadata": {"annotations": {"theirs": "1"}, "labels": {"theirs": "1"}}}
        await bench.admin.patch(CONFIG_MAPS, Key("default", "meta"), foreign)
        bench.requests.clear()
        changed = config_map("meta", b="1")

        await bench.change("meta", workload={"manifests": [changed]})
        await bench.until_data("meta", {"b": "1"})

        live = await bench.admin.get(CONFIG_MAPS, "meta", "default")
        assert live["metadata"]["annotations"] == {"mine": "1", "theirs": "1"}
        assert live["metadata"]["labels"]["theirs"] == "1"
        await bench.delete("meta")


async def test_a_deployment_is_not_written_again_for_what_the_server_fills_in(bench: WorkBench):
    """Not after a restart either; replicas of others stay when the manifest has none."""
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "x", "image": "example.com/x"}]},
    }
    deployment: Object = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "defaults", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template},
    }
    async with bench.agent():
        await bench.create(work("defaults", deployment))
        await bench.until_condition("defaults", "Applied", "True")
        made = await bench.admin.get(DEPLOYMENTS, "defaults", "default")
    scale = {"spec": {"replicas": 3}}
    await bench.admin.patch(DEPLOYMENTS, Key("default", "defaults"), scale)
    before = await bench.admin.get(DEPLOYMENTS, "defaults", "default")
    async with bench.agent():
        await bench.create(work("after", config_map("after", a="1")))
        await bench.until_condition("after", "Applied", "True")
        await until(
            lambda: bench.requests.of("spoke").get("replace", 0) > 0, "the Deployment is looked at"
        )
        live = await bench.admin.get(DEPLOYMENTS, "defaults", "default")

        assert live["spec"] == before["spec"]
        assert live["metadata"]["generation"] == made["metadata"]["generation"] + 1
        await bench.delete("defaults")
        await bench.delete("after")


async def test_a_pod_is_left_alone_after_the_scheduler_has_seen_it(bench: WorkBench):
    """The smoke test of the getting-started guide."""
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "hello", "namespace": "default"},
        "spec": {"containers": [{"name": "hello", "image": "busybox", "command": ["sleep"]}]},
    }
    async with bench.agent():
        await bench.create(work("pod", pod))
        await bench.until_condition("pod", "Applied", "True")

        async def is_scheduled() -> bool:
            live = await bench.admin.get(PODS, "hello", "default")
            return bool(live["spec"].get("nodeName")) and live["status"]["phase"] == "Running"

        await until(is_scheduled, "the pod runs")
        await bench.create(work("later", config_map("later", a="1")))
        await bench.until_condition("later", "Applied", "True")
        found = await bench.until_condition("pod", "Applied", "True")
        assert conditions(found)["Available"]["status"] == "True"
        await bench.delete("pod")
        await bench.delete("later")


async def test_texts_of_a_secret_are_stored_as_data(bench: WorkBench):
    secret: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "texts", "namespace": "default"},
        "stringData": {"a": "b"},
    }
    async with bench.agent():
        await bench.create(work("texts", secret))
        await bench.until_condition("texts", "Applied", "True")
        live = await bench.admin.get(SECRETS, "texts", "default")
        assert live["data"] == {"a": "Yg=="}
        await bench.delete("texts")


async def test_a_kind_that_comes_later_is_applied_at_once_then(bench: WorkBench):
    async with bench.agent():
        await bench.create(work("early", thing("early", "Widget"), config_map("beside", a="1")))
        found = await bench.until_condition("early", "Applied", "False")
        assert "doesn't have a resource type 'Widget'" in conditions(found, 0)["Applied"]["message"]
        assert conditions(found, 0)["Available"]["reason"] == "IncompleteResourceMeta"
        assert conditions(found, 1)["Applied"]["status"] == "True"

        await bench.admin.create(CRDS, thing_definition("widgets", "Widget"))

        await bench.until_condition("early", "Applied", "True")
        await bench.delete("early")
        await bench.admin.delete(CRDS, Key("", f"widgets.{THINGS.group}"))


async def test_a_definition_and_its_object_come_in_one_work(bench: WorkBench):
    """With one report, and both go with it."""
    async with bench.agent():
        await bench.create(work("both", thing("one"), thing_definition()))
        await bench.until_condition("both", "Applied", "True")
        await until(lambda: bench.requests.of("hub").get("patch", 0) >= 2, "the report is answered")
        assert bench.requests.of("hub") == {"patch": 2}
        await bench.delete("both")
        assert await bench.found(CRDS, f"things.{THINGS.group}", "") is None


async def test_a_namespace_that_comes_later_lets_its_objects_in(bench: WorkBench):
    async with bench.agent():
        await bench.create(work("homeless", config_map("inside", "later", a="1")))
        found = await bench.until_condition("homeless", "Applied", "False")
        assert 'namespaces "later" not found' in conditions(found, 0)["Applied"]["message"]

        await bench.admin.create(NAMESPACES, namespace("later"))

        await bench.until_condition("homeless", "Applied", "True")
        await bench.delete("homeless")


async def test_a_terminating_namespace_is_reported_and_waited_for(bench: WorkBench):
    held = config_map("held", "ending")
    held["metadata"]["finalizers"] = ["example.com/held"]
    await bench.admin.create(NAMESPACES, namespace("ending"))
    await bench.admin.create(CONFIG_MAPS, held)
    await bench.admin.delete(NAMESPACES, Key("", "ending"))
    async with bench.agent():
        await bench.create(work("ending", config_map("inside", "ending", a="1")))
        found = await bench.until_condition("ending", "Applied", "False")
        assert "being terminated" in conditions(found, 0)["Applied"]["message"]
        await bench.delete("ending")
    await bench.admin.patch(CONFIG_MAPS, Key("ending", "held"), {"metadata": {"finalizers": None}})


BAD: list[tuple[Object, str]] = [
    ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}, "has no metadata.name"),
    (
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "a-"}},
        "generateName cannot be used",
    ),
    (
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
        "no metadata.namespace",
    ),
    ({"apiVersion": "nope/v1", "kind": "Nope", "metadata": {"name": "a"}}, "doesn't have"),
    (config_map("Not_A_Name"), "Invalid value"),
    (config_map("good"), "the same object as manifest"),
    (
        {
            "apiVersion": APPLIED_WORKS.api_version,
            "kind": APPLIED_WORKS.kind,
            "metadata": {"name": "a"},
        },
        "cannot contain an AppliedManifestWork",
    ),
]


async def test_bad_manifests_hold_up_no_others(bench: WorkBench):
    """Each says what is wrong; the good one is applied, tracked and removed."""
    async with bench.agent():
        await bench.create(work("bad", config_map("good"), *(each for each, _ in BAD)))
        found = await bench.until_condition("bad", "Applied", "False")

        assert conditions(found)["Applied"]["message"].endswith(
            f"{len(BAD)} of {len(BAD) + 1} manifests failed"
        )
        assert conditions(found, 0)["Applied"]["status"] == "True"
        for ordinal, (_, text) in enumerate(BAD, start=1):
            assert text in conditions(found, ordinal)["Applied"]["message"], ordinal
        applied = await bench.applied("bad")
        assert applied is not None
        assert [each["name"] for each in applied["status"]["appliedResources"]] == ["good"]
        await bench.delete("bad")
        assert await bench.data("good") is None


async def test_a_work_is_gone_soon_after_it_came(bench: WorkBench):
    async with bench.agent():
        for number in range(10):
            name = f"brief{number}"
            await bench.create(work(name, config_map(name, a="1")))
            await bench.admin.delete(WORKS, Key(CLUSTER, name))
        for number in range(10):
            await bench.until_gone(f"brief{number}")
        left = (await bench.admin.list(CONFIG_MAPS, "default")).items
        assert not [each for each in left if each["metadata"]["name"].startswith("brief")]


async def test_a_deletion_that_is_held_up_says_by_what(bench: WorkBench):
    held = config_map("stuck", a="1")
    held["metadata"]["finalizers"] = ["example.com/stuck"]
    async with bench.agent():
        await bench.create(work("stuck", held, config_map("free", a="1")))
        await bench.until_condition("stuck", "Applied", "True")
        await bench.admin.delete(WORKS, Key(CLUSTER, "stuck"))

        found = await bench.until_condition("stuck", "Deleting", "True")

        condition = conditions(found)["Deleting"]
        assert condition["reason"] == "WorkDeleting"
        assert (
            "configmaps default/stuck (held by the finalizers example.com/stuck)"
            in (condition["message"])
        )
        assert await bench.data("free") is None
        release = {"metadata": {"finalizers": None}}
        await bench.admin.patch(CONFIG_MAPS, Key("default", "stuck"), release)
        await bench.until_gone("stuck")


async def test_a_work_that_is_edited_while_it_is_deleted_goes_by_its_new_option(bench: WorkBench):
    held = config_map("edited-held", a="1")
    held["metadata"]["finalizers"] = ["example.com/edited"]
    meta: Object = {"metadata": {"finalizers": ["example.com/keep"]}}
    async with bench.agent():
        manifest = work("edited", config_map("edited", a="1"))
        manifest["metadata"].update(meta["metadata"])
        await bench.create(manifest)
        await bench.until_condition("edited", "Applied", "True")
    await bench.change("edited", deleteOption={"propagationPolicy": "Orphan"})
    await bench.admin.delete(WORKS, Key(CLUSTER, "edited"))
    async with bench.agent():
        await until(lambda: gone(bench, "edited"), "the AppliedManifestWork is gone")
        live = await bench.admin.get(CONFIG_MAPS, "edited", "default")
        assert "ownerReferences" not in live["metadata"]
        assert WORK_LABEL not in (live["metadata"].get("labels") or {})
    await bench.admin.patch(WORKS, Key(CLUSTER, "edited"), {"metadata": {"finalizers": None}})


async def gone(bench: WorkBench, name: str) -> bool:
    """Whether a work's AppliedManifestWork is gone."""
    return await bench.applied(name) is None


async def test_the_older_of_two_works_keeps_an_object_that_both_want_differently(bench: WorkBench):
    async with bench.agent():
        await bench.create(work("older", config_map("contested", a="older")))
        await bench.until_condition("older", "Applied", "True")
        # Creation times are of whole seconds; the name decides between equal ones.
        await bench.create(work("younger", config_map("contested", a="younger")))
        found = await bench.until_condition("younger", "Applied", "False")

        assert "in the older ManifestWork older" in conditions(found, 0)["Applied"]["message"]
        assert await bench.data("contested") == {"a": "older"}
        await bench.delete("older")
        await bench.until_condition("younger", "Applied", "True")
        await bench.until_data("contested", {"a": "younger"})
        await bench.delete("younger")


async def test_an_applied_work_that_was_deleted_on_the_cluster_is_made_anew(bench: WorkBench):
    async with bench.agent():
        await bench.create(work("anew", config_map("anew", a="1")))
        await bench.until_condition("anew", "Applied", "True")
        applied = await bench.applied("anew")
        assert applied is not None
        await bench.admin.delete(APPLIED_WORKS, Key.of(applied))

        async def is_new() -> bool:
            found = await bench.applied("anew")
            live = await bench.found(CONFIG_MAPS, "anew")
            if found is None or live is None:
                return False
            uid = found["metadata"]["uid"]
            owners = [each["uid"] for each in live["metadata"].get("ownerReferences") or ()]
            return uid != applied["metadata"]["uid"] and owners == [uid]

        await until(is_new, "the AppliedManifestWork is there again, and owns the object")
        await bench.delete("anew")


async def test_removed_manifests_go_and_orphaned_ones_stay(bench: WorkBench):
    rule = {"group": "", "resource": "configmaps", "namespace": "default", "name": "let-go"}
    option = {
        "propagationPolicy": "SelectivelyOrphan",
        "selectivelyOrphans": {"orphaningRules": [rule]},
    }
    async with bench.agent():
        every = [config_map(name, a="1") for name in ("stays", "goes", "let-go")]
        await bench.create(work("less", *every, deleteOption=option))
        await bench.until_condition("less", "Applied", "True")

        await bench.change("less", workload={"manifests": every[:1]})
        await bench.until_data("goes", None)
        await bench.until_condition("less", "Applied", "True")

        assert await bench.data("stays") == await bench.data("let-go") == {"a": "1"}
        await bench.delete("less")
        assert await bench.data("let-go") == {"a": "1"}


@pytest.mark.parametrize("count", [120, pytest.param(2000, marks=pytest.mark.full)])
async def test_a_work_may_have_very_many_manifests(bench: WorkBench, count: int):
    """The status fits into the hub's store, and says how every manifest is."""
    name = f"many{count}"
    manifests = [config_map(f"{name}-{number}", a="1") for number in range(count)]
    async with bench.agent():
        await bench.create(work(name, *manifests))
        found = await bench.until_condition(name, "Available", "True")

        assert len(found["status"]["resourceStatus"]["manifests"]) == count
        await bench.delete(name)
        left = (await bench.admin.list(CONFIG_MAPS, "default", metadata_only=True)).items
        assert not [each for each in left if each["metadata"]["name"].startswith(name)]


async def cut_off(bench: WorkBench, after: int, done: Callable[[], Awaitable[bool]]) -> None:
    """Run the agent until it has made some requests, or has nothing more to do."""
    bench.requests.stop_after(after)
    async with bench.agent():

        async def is_over() -> bool:
            return bench.requests.reached.is_set() or await done()

        await until(is_over, "the agent is cut off")


FULL = pytest.mark.full


@pytest.mark.parametrize(
    "after",
    [pytest.param(1, marks=FULL), 2, pytest.param(3, marks=FULL), 4, pytest.param(5, marks=FULL)],
)
async def test_an_agent_that_is_cut_off_after_any_request_loses_nothing(
    bench: WorkBench, after: int
):
    """In the middle of apply, change and delete: nothing is lost, nothing is left."""
    name = f"cut{after}"

    async def has(**data: str) -> bool:
        return await bench.data(name) == data

    await bench.create(work(name, config_map(name, a="1"), config_map(f"{name}-b", a="1")))
    await cut_off(bench, after, lambda: has(a="1"))
    await bench.change(name, workload={"manifests": [config_map(name, a="2")]})
    await cut_off(bench, after, lambda: has(a="2"))
    async with bench.agent():
        await bench.until_condition(name, "Applied", "True")
        await bench.until_data(name, {"a": "2"})
        await bench.until_data(f"{name}-b", None)
    await bench.admin.delete(WORKS, Key(CLUSTER, name))
    await cut_off(bench, after, lambda: gone(bench, name))
    async with bench.agent():
        await bench.until_gone(name)
        assert await bench.data(name) is None
