"""Decisions for consumers that know the Cluster Inventory API and nothing else.

They are the same decisions, divided only by how many one object can have; each refers to the
ClusterProfile that the hub publishes in the namespace of the Placement.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from msgspec import Struct

from knfleet.api.cluster.placement import MOST_DECISIONS, Placement
from knfleet.api.inventory import DECISION_INDEX, DECISION_KEY, PLACEMENT_KEY, PUBLISHED_DECISIONS
from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items, part
from knfleet.hub.placement.decisions.decision_objects import owner_reference
from knfleet.hub.placement.decisions.write_order import Write, ordered_writes
from knfleet.hub.placement.scheduler.schedule_model import Decision

SCHEDULER = "knfleet"


class Publication(Struct, frozen=True):
    """What to do with the published objects of a Placement."""

    manifests: Mapping[str, Object]
    """The objects as they should be."""
    writes: tuple[Write, ...]
    rewritten: tuple[str, ...]
    """Objects that keep their clusters, and get something else."""


def placement_of(manifest: Object) -> list[str]:
    """The Placement that a published object is for, if it is one of ours."""
    meta = manifest["metadata"]
    if manifest.get("schedulerName") != SCHEDULER:
        return []
    name = part(meta, "labels").get(DECISION_KEY, "")
    return [f"{meta.get('namespace', '')}/{name}"] if name else []


def publication(
    placement: Placement, decisions: Sequence[Decision], existing: Iterable[Object]
) -> Publication:
    """What to do so that the published objects say what was decided."""
    found = {each["metadata"]["name"]: each for each in existing}
    unique = list({each.cluster: each for each in decisions}.values())
    chunks = [
        unique[start : start + MOST_DECISIONS]
        for start in range(0, max(len(unique), 1), MOST_DECISIONS)
    ]
    wanted = [manifest_of(placement, index, chunk) for index, chunk in enumerate(chunks)]
    manifests = {each["metadata"]["name"]: each for each in wanted}
    used = found.keys() | manifests.keys()
    every = (object_name(placement, index) for index in count(len(chunks)))
    writes = ordered_writes(
        {name: clusters_in(each) for name, each in found.items()},
        {name: clusters_in(each) for name, each in manifests.items()},
        MOST_DECISIONS,
        (name for name in every if name not in used),
    )
    written = {each.name for each in writes}
    return Publication(
        manifests=manifests,
        writes=tuple(writes),
        rewritten=tuple(
            name
            for name, each in manifests.items()
            if name in found and name not in written and not is_same(found[name], each)
        ),
    )


def object_name(placement: Placement, index: int) -> str:
    """The name of a published object."""
    return f"{placement.metadata.name}-decision-{index + 1}"


def manifest_of(placement: Placement, index: int, decisions: Sequence[Decision]) -> Object:
    """A published object."""
    name = placement.metadata.name
    return {
        "apiVersion": PUBLISHED_DECISIONS.api_version,
        "kind": PUBLISHED_DECISIONS.kind,
        "metadata": {
            "name": object_name(placement, index),
            "namespace": placement.key.namespace,
            "labels": {DECISION_KEY: name, DECISION_INDEX: str(index), PLACEMENT_KEY: name},
            "ownerReferences": [owner_reference(placement)],
        },
        "schedulerName": SCHEDULER,
        "decisions": [
            {"clusterProfileRef": {"name": each.cluster}, "reason": each.reason}
            for each in decisions
        ],
    }


def in_between(placement: Placement, write: Write, target: Publication) -> Object:
    """The object that a write leads to; in between, it may have more clusters than its own."""
    clusters = write.clusters or frozenset[str]()
    made = target.manifests.get(write.name)
    if made is not None and clusters_in(made) == clusters:
        return made
    decisions = [Decision(name, "", 0) for name in sorted(clusters)]
    index = int(write.name.rpartition("-")[2]) - 1
    return manifest_of(placement, index, decisions)


def clusters_in(manifest: Object) -> frozenset[str]:
    """The clusters of a published object."""
    return frozenset(each["clusterProfileRef"]["name"] for each in items(manifest, "decisions"))


def is_same(found: Object, wanted: Object) -> bool:
    """Whether an object is as it should be."""
    before, after = found["metadata"], wanted["metadata"]
    owners = [each.get("uid") for each in items(before, "ownerReferences")]
    return (
        part(before, "labels").items() >= after["labels"].items()
        and after["ownerReferences"][0]["uid"] in owners
        and found.get("schedulerName") == wanted["schedulerName"]
        and found.get("decisions") == wanted["decisions"]
    )
