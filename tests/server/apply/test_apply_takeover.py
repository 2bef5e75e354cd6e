"""Taking over from the Go operator, and leaving it everything it needs to take over again."""

import msgspec

from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS, REPLICA_SETS, SERVICES
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply import well_known
from knfleet.apply.observe.metadata import observe
from knfleet.apply.plan.takeover import is_inherited
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from testbed.waiting import until
from tests.server.apply.conftest import Bench
from tests.support.objects import config_map, deployment, service

LAST_APPLIED = well_known.LEGACY_ANNOTATIONS[1]


async def install(go_operator: Client, resource: Resource, manifest: Object) -> Object:
    """Write an object as the Go operator does: created with two annotations, changed by PUT."""
    meta: Object = {**manifest["metadata"], "annotations": {"manifestival": "new"}}
    meta["labels"] = {"app.kubernetes.io/name": "knative-serving"}
    dressed = {**manifest, "metadata": meta}
    meta["annotations"][LAST_APPLIED] = msgspec.json.encode(dressed).decode()
    try:
        live = await go_operator.get(resource, meta["name"], meta["namespace"])
    except NotFound:
        return await go_operator.create(resource, dressed)
    annotations = live["metadata"].get("annotations", {})
    live["metadata"]["annotations"] = {**annotations, **meta["annotations"]}
    rest = {name: part for name, part in dressed.items() if name not in {"metadata", "spec"}}
    spec = {**live.get("spec", {}), **dressed.get("spec", {})}
    return await go_operator.replace(resource, {**live, **rest, **({"spec": spec} if spec else {})})


async def rolled_out(bench: Bench) -> None:
    """Wait until the Deployment is available."""

    async def is_available() -> bool:
        status = (await bench.get(DEPLOYMENTS, "web")).get("status", {})
        return status.get("availableReplicas", 0) == 1

    await until(is_available, "the Deployment is available")


async def test_taking_over_restarts_nothing(bench: Bench, go_operator: Client) -> None:
    """The spec and the ReplicaSet stay what they were."""
    release = [deployment("web"), service("web"), config_map("settings", a="1")]
    for resource, manifest in zip((DEPLOYMENTS, SERVICES, CONFIG_MAPS), release, strict=True):
        await install(go_operator, resource, manifest)
    await rolled_out(bench)
    before = await bench.get(DEPLOYMENTS, "web")
    address = (await bench.get(SERVICES, "web"))["spec"]["clusterIP"]

    changes = await bench.engine().apply(release)

    assert changes.settled
    assert all(each.adopted for each in changes.changes)
    after = await bench.get(DEPLOYMENTS, "web")
    assert after["spec"] == before["spec"]
    sets = (await bench.client.list(REPLICA_SETS, "home")).items
    assert len(sets) == 1
    assert (await bench.get(SERVICES, "web"))["spec"]["clusterIP"] == address


async def test_nothing_of_the_go_operator_is_left_on_an_object(
    bench: Bench, go_operator: Client
) -> None:
    """Neither annotations nor a share in the fields; the next pass writes nothing."""
    await install(go_operator, CONFIG_MAPS, config_map("settings", a="1"))
    engine = bench.engine()

    await engine.apply([config_map("settings", a="1")])

    adopted = await bench.get(CONFIG_MAPS, "settings")
    assert list(adopted["metadata"]["annotations"]) == [well_known.APPLIED_HASH]
    assert not is_inherited(observe(adopted))
    assert [each["manager"] for each in adopted["metadata"]["managedFields"]] == [
        well_known.MANAGER
    ]
    writes = await bench.wrote(lambda: bench.engine().apply([config_map("settings", a="1")]))
    assert writes == 0


async def test_keys_that_are_dropped_after_a_takeover_disappear(
    bench: Bench, go_operator: Client, stranger: Client
) -> None:
    """Also when they are dropped with the takeover itself; keys of others stay."""
    await install(go_operator, CONFIG_MAPS, config_map("settings", a="1", b="2", c="3"))
    await stranger.patch(CONFIG_MAPS, Key("home", "settings"), {"data": {"theirs": "x"}})
    engine = bench.engine()

    await engine.apply([config_map("settings", a="1", b="2")])
    assert (await bench.get(CONFIG_MAPS, "settings"))["data"] == {
        "a": "1",
        "b": "2",
        "theirs": "x",
    }

    await engine.apply([config_map("settings", a="1")])
    assert (await bench.get(CONFIG_MAPS, "settings"))["data"] == {"a": "1", "theirs": "x"}


async def test_the_go_operator_can_come_back_and_we_again(
    bench: Bench, go_operator: Client
) -> None:
    """There and back, and there again."""
    await bench.engine().apply([config_map("settings", a="1", b="2"), deployment("web")])
    await rolled_out(bench)

    await install(go_operator, CONFIG_MAPS, config_map("settings", a="5", c="3"))
    written = await install(go_operator, DEPLOYMENTS, deployment("web", image="example.com/a:9"))
    theirs = (await bench.get(CONFIG_MAPS, "settings"))["data"]
    assert theirs == {"a": "5", "c": "3"}
    assert written["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/a:9"

    changes = await bench.engine().apply([config_map("settings", a="1"), deployment("web")])

    assert all(each.adopted for each in changes.changes)
    assert (await bench.get(CONFIG_MAPS, "settings"))["data"] == {"a": "1"}
    again = await bench.get(DEPLOYMENTS, "web")
    assert again["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/app:1"
    assert not is_inherited(observe(again))


async def test_a_takeover_that_was_cut_short_is_finished(bench: Bench, go_operator: Client) -> None:
    """The fields are ours already, and the labels are not there yet."""
    await install(go_operator, CONFIG_MAPS, config_map("settings", a="1", b="2"))
    engine = bench.engine()
    await engine.writer.adopt(CONFIG_MAPS, Key("home", "settings"))

    changes = await bench.engine().apply([config_map("settings", a="1")])

    assert [ref.name for ref in changes.configured] == ["settings"]
    assert (await bench.get(CONFIG_MAPS, "settings"))["data"] == {"a": "1"}
