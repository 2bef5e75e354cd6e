"""Anchors on a real API server: made, mended, taken over, and left to whom they belong."""

import pytest

from knfleet.api.core import CONFIG_MAPS, NAMESPACES
from knfleet.api.meta import Key, Object
from knfleet.apply import well_known
from knfleet.apply.act.parents import Parents
from knfleet.apply.applyset import ApplySet, Inventory
from knfleet.apply.refs import GroupKind
from knfleet.clusters.anchor import (
    HUB_UID,
    AnchorError,
    Anchors,
    AnchorSpec,
    OtherHub,
    anchor_of,
    namespace_of,
)
from knfleet.kube.client.verbs import Client

ROOT = AnchorSpec(
    "KnativeServing",
    Key("knative-serving", "ks"),
    "hub-1",
    {"team": "a", "app.kubernetes.io/managed-by": "me"},
    {"note": "b"},
)


async def test_namespace_and_anchor_are_made_and_mended(hub: Client) -> None:
    """The same anchor, with all that it must say; what others wrote on it stays."""
    anchors = Anchors(hub)

    first = await anchors.ensure(ROOT)
    assert first.is_new
    assert first.namespace["metadata"]["labels"]["team"] == "a"
    owner = first.namespace["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    assert owner == "knative-operator"
    assert first.namespace["metadata"]["annotations"]["note"] == "b"
    assert first.anchor["metadata"]["name"] == "knativeserving-ks-root-owner"

    spoiled: Object = {"metadata": {"labels": None, "annotations": {HUB_UID: None, "mine": "1"}}}
    await hub.patch(CONFIG_MAPS, ROOT.key, spoiled)
    second = await anchors.ensure(ROOT)

    assert not second.is_new
    wanted = anchor_of(ROOT)["metadata"]
    found = second.anchor["metadata"]
    assert found["uid"] == first.anchor["metadata"]["uid"]
    assert found["labels"] == wanted["labels"]
    assert found["annotations"] == wanted["annotations"] | {"mine": "1"}


async def test_labels_of_a_namespace_belong_to_who_applies_them(hub: Client) -> None:
    """Then a later apply can withdraw them, also where an older version made the Namespace."""
    older = await hub.create(NAMESPACES, namespace_of(ROOT))

    found = (await Anchors(hub).ensure(ROOT)).namespace

    applied: Object = {"apiVersion": "v1", "kind": "Namespace"}
    marked = {"labels": ROOT.labels, "annotations": ROOT.annotations}
    await hub.apply(NAMESPACES, {**applied, "metadata": {"name": "knative-serving", **marked}})
    again = (await Anchors(hub).ensure(ROOT)).namespace
    last = await hub.apply(NAMESPACES, {**applied, "metadata": {"name": "knative-serving"}})

    assert older["metadata"]["uid"] == found["metadata"]["uid"]
    assert found["metadata"]["labels"] == older["metadata"]["labels"]
    assert again["metadata"]["labels"]["team"] == "a"
    assert "team" not in last["metadata"]["labels"]
    assert "note" not in last["metadata"].get("annotations", {})


async def test_an_anchor_of_the_knative_operator_is_taken_over(hub: Client) -> None:
    """It stays the same object; what is written on it for the set survives the next look."""
    name: Object = {"metadata": {"name": "knative-serving"}}
    await hub.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace"} | name)
    theirs = anchor_of(ROOT)
    del theirs["metadata"]["annotations"][HUB_UID]
    theirs["metadata"]["annotations"]["operator.knative.dev/description"] = "of theirs"
    before = await hub.create(CONFIG_MAPS, theirs)

    rooted = await Anchors(hub).ensure(ROOT)
    parents = Parents(hub, ApplySet(CONFIG_MAPS, ROOT.key))
    job = Inventory(kinds=frozenset({GroupKind("batch", "Job")}))
    await parents.change(lambda inventory: inventory.merged(job))
    again = await Anchors(hub).ensure(ROOT)

    assert rooted.anchor["metadata"]["uid"] == before["metadata"]["uid"]
    assert rooted.anchor["metadata"]["annotations"][HUB_UID] == "hub-1"
    assert again.anchor["metadata"]["annotations"][well_known.CONTAINS] == "Job.batch"


async def test_an_anchor_of_another_hub_is_not_touched(hub: Client) -> None:
    """Until somebody takes off the other hub's name."""
    theirs = AnchorSpec(ROOT.kind, ROOT.owner, "hub-2")
    before = await Anchors(hub).ensure(theirs)

    with pytest.raises(OtherHub, match="hub-2"):
        await Anchors(hub).ensure(ROOT)
    with pytest.raises(OtherHub, match="hub-2"):
        await Anchors(hub).find(ROOT)
    found = await hub.get(CONFIG_MAPS, ROOT.key.name, ROOT.key.namespace)
    assert found["metadata"]["resourceVersion"] == before.anchor["metadata"]["resourceVersion"]

    await hub.patch(CONFIG_MAPS, ROOT.key, {"metadata": {"annotations": {HUB_UID: None}}})
    ours = await Anchors(hub).ensure(ROOT)
    assert ours.anchor["metadata"]["uid"] == before.anchor["metadata"]["uid"]


async def test_a_name_that_no_config_map_can_have_is_refused(hub: Client) -> None:
    """In upstream's words, before anything is made."""
    root = AnchorSpec("KnativeServing", Key("knative-serving", "a" * 240), "hub-1")

    with pytest.raises(AnchorError, match="exceeds maximum length of 253 characters"):
        await Anchors(hub).ensure(root)

    found = await hub.list(NAMESPACES, fields="metadata.name=knative-serving")
    assert found.items == []


async def test_a_long_name_still_makes_a_label(hub: Client) -> None:
    """Labels are shorter than names may be."""
    root = AnchorSpec("KnativeServing", Key("knative-serving", "a" * 200), "hub-1")

    rooted = await Anchors(hub).ensure(root)

    assert len(rooted.anchor["metadata"]["labels"]["operator.knative.dev/cr-name"]) == 63
