"""Knative on spokes: installed, kept so, upgraded and removed from one hub."""

from pathlib import Path

import pytest

from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, SERVICE_ACCOUNTS, SERVICES
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.apply import well_known
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.errors import NotFound
from testbed.clusters import Lend
from testbed.waiting import until
from tests.support.fleets import ANCHOR, FLEET, Fleet, gather, is_gone


async def test_serving_is_installed_upgraded_repaired_and_removed_on_one_spoke(
    fleet: Fleet,
) -> None:
    """The other spoke and the hub are never touched."""
    await fleet.start()
    await fleet.deploy(version="1.22.0", namespaceConfiguration={"labels": {"team": "a"}})
    serving = await fleet.hub.ready(SERVINGS, "1.22.0")

    namespace = await fleet.one.client.get(NAMESPACES, "knative-serving")
    assert namespace["metadata"]["labels"]["team"] == "a"
    anchor = await fleet.one.anchor()
    assert anchor["metadata"]["labels"]["operator.knative.dev/cr-name"] == "knative"
    assert anchor["metadata"]["annotations"]["operator.knative.dev/protected"] == "true"
    assert well_known.SET_ID in anchor["metadata"]["labels"]
    controller = await fleet.one.client.get(DEPLOYMENTS, "controller", "knative-serving")
    owners = controller["metadata"]["ownerReferences"]
    assert [each["uid"] for each in owners] == [
        anchor["metadata"]["uid"],
        namespace["metadata"]["uid"],
    ]
    kube_system = await fleet.one.client.get(NAMESPACES, "kube-system")
    noted = serving["metadata"]["annotations"]["knfleet.dev/target-uid"]
    assert noted == kube_system["metadata"]["uid"]

    async with Client(fleet.one.lent.connection, ClientOptions(manager="meddler")) as meddler:
        key = Key("knative-serving", "config-network")
        await meddler.patch(CONFIG_MAPS, key, {"data": {"version": "theirs"}})
    await until(lambda: is_ours(fleet), "it is repaired")

    await fleet.hub.change(SERVINGS, version="1.23.0")
    await fleet.hub.ready(SERVINGS, "1.23.0")
    old = Key("knative-serving", "only-1-22")
    await until(lambda: is_gone(fleet.one.client, DEPLOYMENTS, old), "what is old is gone")
    shown = (await fleet.hub.kubectl("get", "knativeservings", "-A")).splitlines()
    assert shown[0].split()[:6] == ["NAMESPACE", "NAME", "VERSION", "READY", "REASON", "TARGET"]
    assert shown[1].split()[:5] == ["knative-serving", "knative", "1.23.0", "True", "spoke1"]
    assert await fleet.two.left() == []

    await fleet.hub.delete(SERVINGS)
    await fleet.hub.gone(SERVINGS)
    await fleet.one.bare()
    assert await fleet.two.left() == []
    assert [each for each in await fleet.hub.left() if FLEET not in each] == []


async def test_labels_and_annotations_of_the_namespace_are_withdrawn_on_a_spoke(
    fleet: Fleet,
) -> None:
    """What is removed from the custom resource goes, as on the hub; what others wrote stays."""
    await fleet.start()
    both = {"labels": {"team": "a", "tier": "b"}, "annotations": {"note": "c", "more": "d"}}
    await fleet.deploy(namespace=both)
    await fleet.hub.ready(SERVINGS, "1.23.0")
    async with Client(fleet.one.lent.connection, ClientOptions(manager="user")) as user:
        mine: Object = {"metadata": {"labels": {"mine": "1"}}}
        await user.patch(NAMESPACES, Key("", "knative-serving"), mine)

    gone = {"labels": {"team": None}, "annotations": {"note": None}}
    await fleet.hub.change(SERVINGS, namespace=gone)
    await until(lambda: lacks(fleet, "team", "note"), "one of each is gone")
    await fleet.hub.change(SERVINGS, namespace=None)
    await until(lambda: lacks(fleet, "tier", "more"), "all are gone")

    namespace = await fleet.one.client.get(NAMESPACES, "knative-serving")
    labels = namespace["metadata"]["labels"]
    assert labels["mine"] == "1"
    assert labels["app.kubernetes.io/managed-by"] == "knative-operator"


async def lacks(fleet: Fleet, label: str, annotation: str) -> bool:
    """Whether the namespace on a spoke no longer has a label and an annotation."""
    meta = (await fleet.one.client.get(NAMESPACES, "knative-serving"))["metadata"]
    return label not in meta["labels"] and annotation not in meta["annotations"]


async def is_ours(fleet: Fleet) -> bool:
    """Whether a ConfigMap of the release is as it should be."""
    found = await fleet.one.client.get(CONFIG_MAPS, "config-network", "knative-serving")
    return found["data"]["version"].startswith("1.")


@pytest.mark.full
async def test_a_deleted_anchor_comes_back_and_nothing_that_it_owned_goes(fleet: Fleet) -> None:
    """However it is deleted: pods keep running, and what is old is still known."""
    await fleet.start()
    await fleet.deploy()
    await fleet.hub.ready(SERVINGS, "1.23.0")
    pods, first = await fleet.one.pods(), await fleet.one.anchor()
    before = first["metadata"]["annotations"][well_known.CONTAINS]

    for cascade in ("background", "foreground", "orphan"):
        old = (await fleet.one.anchor())["metadata"]["uid"]
        # Without waiting: kubectl may miss that an object went whose successor came at once.
        arguments = ("delete", "configmap", "-n", "knative-serving", ANCHOR, "--wait=false")
        await fleet.one.kubectl(*arguments, f"--cascade={cascade}")
        await until(lambda uid=old: is_reowned(fleet, uid), f"all has a new owner ({cascade})")

    anchor = await fleet.one.anchor()
    assert set(anchor["metadata"]["annotations"][well_known.CONTAINS].split(",")) == set(
        before.split(",")
    )
    await fleet.hub.ready(SERVINGS, "1.23.0")
    assert await fleet.one.pods() == pods


async def is_reowned(fleet: Fleet, old: str) -> bool:
    """Whether there is another anchor, which owns all that the old one owned."""
    try:
        uid = (await fleet.one.anchor())["metadata"]["uid"]
    except NotFound:
        return False
    if uid == old:
        return False
    for resource in (DEPLOYMENTS, CONFIG_MAPS, SERVICES, SERVICE_ACCOUNTS):
        found = await fleet.one.client.list(resource, "knative-serving", labels=well_known.PART_OF)
        for each in found.items:
            if each["metadata"]["ownerReferences"][0]["uid"] != uid:
                return False
    return True


@pytest.mark.full
async def test_an_anchor_that_went_while_nobody_looked_is_found_again_by_its_objects(
    fleet: Fleet,
) -> None:
    """What an older release has left is pruned all the same."""
    await fleet.start()
    await fleet.deploy(version="1.22.0")
    await fleet.hub.ready(SERVINGS, "1.22.0")
    old = Key("knative-serving", "only-1.22")
    assert not await is_gone(fleet.one.client, CONFIG_MAPS, old)
    await fleet.operator.kill()

    await fleet.one.client.delete(CONFIG_MAPS, Key("knative-serving", ANCHOR))
    await fleet.hub.change(SERVINGS, version="1.23.0")
    await fleet.start()

    await fleet.hub.ready(SERVINGS, "1.23.0")
    await until(lambda: is_gone(fleet.one.client, CONFIG_MAPS, old), "what is old is gone")
    assert not await is_gone(fleet.one.client, CONFIG_MAPS, Key("knative-serving", ANCHOR))


@pytest.mark.full
async def test_an_annotation_has_everything_compared_with_the_spoke(fleet: Fleet) -> None:
    """Not even watches are believed; other annotations cost the spoke nothing."""
    await fleet.start()
    await fleet.deploy()
    await fleet.hub.ready(SERVINGS, "1.23.0")
    await until(lambda: is_quiet(fleet), "the operator is quiet")
    before, passes = await asked(fleet), await fleet.operator.passes()

    patch: Object = {"metadata": {"annotations": {"example.com/other": "1"}}}
    await fleet.hub.client.patch(SERVINGS, Key("knative-serving", "knative"), patch)
    await until(lambda: made_pass(fleet, passes), "a pass is made")
    assert await asked(fleet) == before

    await fleet.annotate(trigger="now")
    await until(lambda: has_asked(fleet, before + 8), "all kinds are listed")


async def made_pass(fleet: Fleet, before: float) -> bool:
    """Whether a pass was made."""
    return await fleet.operator.passes() > before


async def asked(fleet: Fleet) -> float:
    """How many lists and gets the first spoke was sent, probes aside."""
    metrics = await fleet.operator.metrics()
    name = "knfleet_client_requests_total"
    return sum(
        value
        for line, value in metrics.items()
        if line.startswith(name) and "spoke1" in line and 'verb="list"' in line
    )


async def has_asked(fleet: Fleet, count: float) -> bool:
    """Whether the first spoke was asked so often."""
    return await asked(fleet) >= count


async def is_quiet(fleet: Fleet) -> bool:
    """Whether no pass is under way."""
    before = await fleet.operator.passes(), await asked(fleet)
    for _ in range(10):
        if (await fleet.operator.passes(), await asked(fleet)) != before:
            return False
    return True


@pytest.mark.full
async def test_a_second_one_for_a_spoke_is_refused_and_another_hub_as_well(
    fleet: Fleet,
) -> None:
    """One component per target; and what one hub installs no other touches."""
    await fleet.start()
    await fleet.deploy()
    await fleet.hub.ready(SERVINGS, "1.23.0")
    await fleet.deploy("second")
    await fleet.hub.says(SERVINGS, "Ready", "knative-serving/knative", "only one", name="second")
    await fleet.hub.delete(SERVINGS, "second")
    await fleet.hub.gone(SERVINGS, "second")

    await take_anchor(fleet, "another-hub")

    await fleet.hub.says(SERVINGS, "InstallSucceeded", "another hub", "another-hub", "hub-uid")
    await fleet.hub.delete(SERVINGS)
    await fleet.hub.gone(SERVINGS)
    await fleet.hub.tells("NotRemoved", "another-hub")
    assert await fleet.one.exists(DEPLOYMENTS, "controller")


async def take_anchor(fleet: Fleet, hub: str | None) -> None:
    """Make the anchor another hub's, or nobody's."""
    patch: Object = {"metadata": {"annotations": {"knfleet.dev/hub-uid": hub}}}
    await fleet.one.client.patch(CONFIG_MAPS, Key("knative-serving", ANCHOR), patch)


async def test_metrics_tell_every_condition_and_every_spoke(fleet: Fleet) -> None:
    """By name, so that an alert can say which."""
    await fleet.start()
    await fleet.deploy()
    await fleet.hub.ready(SERVINGS, "1.23.0")

    metrics = await fleet.operator.metrics()

    cr = 'kind="KnativeServing",name="knative",namespace="knative-serving"'
    said = 'reason="",status="True",target="fleet/spoke1",type="Ready"'
    assert metrics[f"knfleet_condition{{{cr},{said}}}"] == 1
    assert any(each.startswith("knfleet_condition_age_seconds{") for each in metrics)
    states = [each for each in metrics if each.startswith("knfleet_spoke_state{")]
    assert len(states) == 1
    assert 'phase="up"' in states[0]
    assert 'knfleet_spoke_last_contact_seconds{cluster="fleet/spoke1"}' in metrics


@pytest.mark.full
async def test_the_real_release_is_installed_on_a_spoke(
    lend: Lend, bundle_root: Path, tmp_path: Path
) -> None:
    """Both components, on two spokes, as people install them; and removed."""
    async with gather(await lend(3, definitions=True), tmp_path, bundle_root) as fleet:
        await fleet.start()
        await fleet.deploy(ingress={"kourier": {"enabled": True}}, version="1.23")
        profile = {"name": "spoke2", "namespace": FLEET}
        await fleet.hub.create(EVENTINGS, version="1.23", clusterProfileRef=profile)

        await fleet.hub.ready(SERVINGS, "1.23.0")
        await fleet.hub.ready(EVENTINGS, "1.23.0")

        await fleet.hub.delete(SERVINGS)
        await fleet.hub.delete(EVENTINGS)
        await fleet.hub.gone(SERVINGS)
        await fleet.hub.gone(EVENTINGS)
        await fleet.one.bare()
