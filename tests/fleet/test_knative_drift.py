"""Others change what the operator manages: it is repaired at once, and who does it is named."""

import random
from pathlib import Path

import pytest

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.apply.manifest_fields import part
from knfleet.apply.refs import CRD, JOB, NAMESPACE, GroupKind, Ref
from knfleet.dev.cluster_contents import contents
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.errors import KubeError
from knfleet.operator.kinds import PAUSED, TRIGGER
from testbed.operators import Hub, Operator
from testbed.waiting import until
from tests.support.expected import difference, members, serving_refs

KOURIER = {"kourier": {"enabled": True}}
LABEL = "app.kubernetes.io/name"
REPAIRS = 'knfleet_repairs_total{kind="KnativeServing",result="repaired"}'
NEVER = {CRD, NAMESPACE, JOB}
"""Deleting these takes more with it, or is how people have a Job run again."""


@pytest.mark.full
async def test_fifty_random_edits_and_deletions_are_repaired(
    knative_hub: Hub, operator: Operator, bundle_root: Path, tmp_path: Path
) -> None:
    """Whatever the kind; and Events tell what was changed by whom."""
    hub = knative_hub
    await operator.start()
    await hub.create(SERVINGS, version="1.23.0", ingress=KOURIER)
    await hub.ready(SERVINGS, "1.23.0")
    wanted = await serving_refs(bundle_root, tmp_path, version="1.23.0", ingress=KOURIER)
    resources = {GroupKind.of(each.resource): each.resource for each in await contents(hub.client)}
    chance = random.Random(3)
    victims = sorted(ref for ref in wanted if ref.group_kind not in NEVER)

    async with Client(hub.lent.connection, ClientOptions(manager="meddler")) as meddler:
        for _ in range(50):
            ref = chance.choice(victims)
            try:
                if chance.random() < 0.5:
                    await meddler.delete(resources[ref.group_kind], ref.key)
                else:
                    patch: Object = {"metadata": {"labels": {LABEL: "changed"}}}
                    await meddler.patch(resources[ref.group_kind], ref.key, patch)
            except KubeError:
                continue  # it is being repaired just now

    problem = ""

    async def is_repaired() -> bool:
        nonlocal problem
        found = await members(hub.client)
        changed = [str(ref) for ref in victims if is_changed(found.get(ref))]
        problem = difference(found, wanted) + f" changed: {changed}"
        return not difference(found, wanted) and not changed

    try:
        await until(is_repaired, "everything is as it should be")
    except AssertionError:
        raise AssertionError(problem) from None
    await hub.ready(SERVINGS, "1.23.0")
    await hub.tells("Repaired", "was deleted")
    await hub.tells("Repaired", f"metadata.labels.{LABEL} by meddler")


def is_changed(item: Object | None) -> bool:
    """Whether an object carries the meddler's mark."""
    return item is not None and part(item, "metadata", "labels").get(LABEL) == "changed"


@pytest.mark.full
async def test_a_drift_conflict_is_reported_and_slowed(knative_hub: Hub, small: Operator) -> None:
    """Somebody who does not let go is named, with the field; the repairs become rare."""
    hub = knative_hub
    await hub.create(SERVINGS, version="1.23.0", ingress={})
    await hub.ready(SERVINGS, "1.23.0")
    key = Key("knative-serving", "config-network")

    async def is_ours() -> bool:
        found = await hub.client.get(CONFIG_MAPS, key.name, key.namespace)
        return found["data"]["version"] == "1.23.0"

    async with Client(hub.lent.connection, ClientOptions(manager="stubborn")) as stubborn:
        for number in range(4):
            await stubborn.patch(CONFIG_MAPS, key, {"data": {"version": f"theirs {number}"}})
            await until(is_ours, "it is repaired")
        await stubborn.patch(CONFIG_MAPS, key, {"data": {"version": "theirs at last"}})

    assert (await small.metrics())[REPAIRS] >= 3
    await hub.tells(
        "DriftConflict", "'stubborn'", "data.version", "ConfigMap knative-serving/config-net"
    )
    await until(is_ours, "it is repaired all the same, later")


@pytest.mark.full
async def test_a_paused_installation_is_left_alone(knative_hub: Hub, small: Operator) -> None:
    """Neither repaired nor upgraded, and it says so; without the annotation all is made good."""
    hub = knative_hub
    await hub.create(SERVINGS, version="1.22.0", ingress={})
    await hub.ready(SERVINGS, "1.22.0")
    key = Key("knative-serving", "config-network")
    cr = Key("knative-serving", "knative")

    async def annotate(**values: str | None) -> None:
        named = {"pause": PAUSED, "trigger": TRIGGER}
        annotations = {named[name]: value for name, value in values.items()}
        await hub.client.patch(SERVINGS, cr, {"metadata": {"annotations": annotations}})

    await annotate(pause="true")
    await hub.says(SERVINGS, "Paused", PAUSED, status="True")
    await hub.client.patch(CONFIG_MAPS, key, {"data": {"version": "theirs"}})
    await hub.change(SERVINGS, version="1.23.0")
    before = await small.passes()
    await annotate(trigger="now")

    async def has_looked() -> bool:
        return await small.passes() > before

    await until(has_looked, "the operator looks at it")
    found = await hub.client.get(CONFIG_MAPS, key.name, key.namespace)
    assert found["data"]["version"] == "theirs"
    paused = await hub.get(SERVINGS)
    assert paused["status"]["version"] == "1.22.0"
    assert paused["status"]["observedGeneration"] < paused["metadata"]["generation"]

    await annotate(pause=None)

    ready = await hub.ready(SERVINGS, "1.23.0")
    assert "Paused" not in [each["type"] for each in ready["status"]["conditions"]]
    found = await hub.client.get(CONFIG_MAPS, key.name, key.namespace)
    assert found["data"]["version"] == "1.23.0"


@pytest.mark.full
async def test_the_refs_of_the_small_release_are_all_there(
    knative_hub: Hub, small: Operator, small_root: Path, tmp_path: Path
) -> None:
    """The helper that other tests count with tells lost objects from those that are there."""
    await knative_hub.create(SERVINGS, version="1.23.0", ingress={})
    await knative_hub.ready(SERVINGS, "1.23.0")

    wanted = await serving_refs(small_root, tmp_path, version="1.23.0", ingress={})
    found = await members(knative_hub.client)

    assert difference(found, wanted) == ""
    assert difference(found, wanted | {Ref("", "Pod", "a", "b")}) == "lost: Pod a/b"
