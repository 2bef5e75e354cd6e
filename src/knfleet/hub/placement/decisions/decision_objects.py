"""PlacementDecisions: how decisions are put into objects, and which writes that takes.

An object belongs to one decision group for all of its life, because its labels and its decisions
cannot be written at the same time. So a group that gets another number gets other objects.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count

from msgspec import Struct

from knfleet.api import durations
from knfleet.api.cluster.placement import (
    DECISIONS,
    GROUP_INDEX_LABEL,
    GROUP_NAME_LABEL,
    MOST_DECISIONS,
    PLACEMENT_LABEL,
    PLACEMENTS,
    GroupStatus,
    Placement,
)
from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items, part
from knfleet.hub.placement.decisions.write_order import Write, ordered_writes
from knfleet.hub.placement.scheduler.checks import can_be_labeled
from knfleet.hub.placement.scheduler.schedule_model import (
    Decision,
    Schedule,
    ScheduledGroup,
    moment,
)

NO_GROUPS = (ScheduledGroup(0, "", ()),)
NUMBERED = re.compile(r"(.+)-decision-([1-9]\d{0,8})")


class DecisionObject(Struct, frozen=True):
    """A PlacementDecision as it is, or as it should be."""

    name: str
    labels: Mapping[str, str]
    decisions: tuple[Decision, ...]
    owner: str = ""
    """Identifier of the Placement that controls it."""
    version: str = ""
    """Empty: it does not exist yet."""

    @property
    def clusters(self) -> frozenset[str]:
        """The selected clusters."""
        return frozenset(each.cluster for each in self.decisions)

    @property
    def number(self) -> int:
        """The number in its name; 0 when the name has none."""
        match = NUMBERED.fullmatch(self.name)
        return int(match[2]) if match else 0


class Changes(Struct, frozen=True):
    """What to do with the decision objects of a Placement."""

    relabeled: tuple[DecisionObject, ...]
    """Objects whose labels or owner are to be set right, before anything else."""
    targets: Mapping[str, DecisionObject]
    writes: tuple[Write, ...]
    """Which objects get which clusters, or are deleted, in this order."""
    rewritten: tuple[str, ...]
    """Objects that keep their clusters, and get other reasons, scores or another order."""
    groups: tuple[GroupStatus, ...]
    scores_written: bool = False
    scores_due: datetime | None = None
    """When other scores can be written, which cannot be now."""


def placements_of(manifest: Object) -> list[str]:
    """The Placement that an object is for: by its label, else by its name."""
    labels = part(manifest["metadata"], "labels")
    if PLACEMENT_LABEL in labels:
        return [f"{manifest['metadata'].get('namespace', '')}/{labels[PLACEMENT_LABEL]}"]
    match = NUMBERED.fullmatch(manifest["metadata"]["name"])
    return [f"{manifest['metadata'].get('namespace', '')}/{match[1]}"] if match else []


def read(manifest: Object) -> DecisionObject:
    """A PlacementDecision as it is."""
    meta = manifest["metadata"]
    owners = items(meta, "ownerReferences")
    return DecisionObject(
        name=meta["name"],
        labels=part(meta, "labels"),
        decisions=tuple(
            Decision(each["clusterName"], each.get("reason") or "", each.get("score") or 0)
            for each in items(manifest, "status", "decisions")
        ),
        owner=next((each["uid"] for each in owners if each.get("controller")), ""),
        version=meta.get("resourceVersion", ""),
    )


def changes(
    placement: Placement, schedule: Schedule, existing: Iterable[DecisionObject], now: datetime
) -> Changes:
    """What to do so that the objects say what was scheduled."""
    found = {each.name: each for each in sorted(existing, key=lambda each: each.number)}
    if schedule.kept is not None and (found or not can_be_labeled(placement)):
        wanted = reduced(found, schedule.kept)
    else:
        wanted = arranged(placement, schedule.groups or NO_GROUPS, found)
    writes = ordered_writes(
        {name: each.clusters for name, each in found.items()},
        {name: each.clusters for name, each in wanted.items()},
        MOST_DECISIONS,
        names(placement, found.keys() | wanted.keys()),
    )
    written = {each.name for each in writes}
    differing = [
        name
        for name, each in wanted.items()
        if name in found and name not in written and each.decisions != found[name].decisions
    ]
    repeated = [name for name in differing if is_repeated(found[name])]
    due = scores_due(placement)
    waits = due is not None and due > now and differing != repeated
    rewritten = repeated if waits else differing
    return Changes(
        relabeled=tuple(
            each
            for name, each in wanted.items()
            if name in found and not is_labeled(found[name], each.labels, placement)
        ),
        targets=wanted,
        writes=tuple(writes),
        rewritten=tuple(rewritten),
        groups=group_statuses(wanted.values()),
        scores_written=bool(writes or rewritten),
        scores_due=due if waits else None,
    )


def is_repeated(found: DecisionObject) -> bool:
    """Whether an object has a cluster more than once."""
    return len(found.clusters) < len(found.decisions)


def arranged(
    placement: Placement, groups: Iterable[ScheduledGroup], found: Mapping[str, DecisionObject]
) -> dict[str, DecisionObject]:
    """The objects that should be there: those of a group stay with it."""
    free = names(placement, found.keys())
    wanted: dict[str, DecisionObject] = {}
    prefix = f"{placement.metadata.name}-decision-"
    for group in groups:
        labels = group_labels(placement, group.index, group.name)
        own = iter(
            [
                name
                for name, each in found.items()
                if name not in wanted
                and name == f"{prefix}{each.number}"
                and same_group(each.labels, labels)
            ]
        )
        for start in range(0, max(len(group.decisions), 1), MOST_DECISIONS):
            name = next(own, "") or next(free)
            decisions = group.decisions[start : start + MOST_DECISIONS]
            wanted[name] = DecisionObject(name, labels, decisions, placement.metadata.uid)
    return wanted


def reduced(found: Mapping[str, DecisionObject], kept: frozenset[str]) -> dict[str, DecisionObject]:
    """The objects as they are, without clusters that may not stay."""
    return {
        name: DecisionObject(
            name,
            each.labels,
            tuple(decision for decision in each.decisions if decision.cluster in kept),
            each.owner,
        )
        for name, each in found.items()
    }


def names(placement: Placement, used: Iterable[str]) -> Iterator[str]:
    """Names for new objects."""
    taken = set(used)
    every = (f"{placement.metadata.name}-decision-{number}" for number in count(1))
    return (name for name in every if name not in taken)


def group_labels(placement: Placement, index: int, name: str) -> dict[str, str]:
    """The labels of an object."""
    return {
        PLACEMENT_LABEL: placement.metadata.name,
        GROUP_INDEX_LABEL: str(index),
        GROUP_NAME_LABEL: name,
    }


def same_group(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether an object is of a group; an object without labels can become one of any."""
    present = {key: labels[key] for key in wanted if key in labels}
    return not present or present == {key: wanted[key] for key in present}


def is_labeled(found: DecisionObject, labels: Mapping[str, str], placement: Placement) -> bool:
    """Whether an object has its labels, and belongs to its Placement."""
    return found.owner == placement.metadata.uid and labels.items() <= found.labels.items()


def scores_due(placement: Placement) -> datetime | None:
    """When scores in decisions may change, if nothing else does; None: at any time."""
    last = moment(placement.status.last_score_update_time)
    limit = durations.seconds(placement.spec.score_rate_limit or "0") or 0.0
    return None if last is None else last + timedelta(seconds=limit)


def group_statuses(objects: Iterable[DecisionObject]) -> tuple[GroupStatus, ...]:
    """The groups as the status of a Placement has them."""
    found: dict[tuple[int, str], list[DecisionObject]] = {}
    for each in objects:
        index = each.labels.get(GROUP_INDEX_LABEL, "")
        group = (int(index) if index.isdecimal() else 0, each.labels.get(GROUP_NAME_LABEL, ""))
        found.setdefault(group, []).append(each)
    return tuple(
        GroupStatus(
            decision_group_index=index,
            decision_group_name=name,
            decisions=[each.name for each in own],
            cluster_count=sum(len(each.decisions) for each in own),
        )
        for (index, name), own in sorted(found.items())
    )


def metadata(placement: Placement, target: DecisionObject) -> Object:
    """The metadata of an object."""
    return {
        "name": target.name,
        "namespace": placement.key.namespace,
        "labels": dict(target.labels),
        "ownerReferences": [owner_reference(placement)],
    }


def owner_reference(placement: Placement) -> Object:
    """The reference by which objects are deleted with their Placement."""
    return {
        "apiVersion": PLACEMENTS.api_version,
        "kind": PLACEMENTS.kind,
        "name": placement.metadata.name,
        "uid": placement.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def manifest_of(placement: Placement, target: DecisionObject) -> Object:
    """An object to create; its decisions are written afterwards."""
    return {
        "apiVersion": DECISIONS.api_version,
        "kind": DECISIONS.kind,
        "metadata": metadata(placement, target),
    }


def status_of(decisions: Sequence[Decision]) -> Object:
    """The status that holds decisions."""
    return {
        "decisions": [
            {"clusterName": each.cluster, "reason": each.reason, "score": each.score}
            for each in decisions
        ]
    }


def held(
    write: Write, targets: Mapping[str, DecisionObject], known: Mapping[str, Decision]
) -> list[Decision]:
    """The decisions that a write gives an object; in between, it may have more than its own."""
    clusters = write.clusters or frozenset[str]()
    own = targets[write.name].decisions if write.name in targets else ()
    regular = [each for each in own if each.cluster in clusters]
    more = sorted(clusters.difference(each.cluster for each in regular))
    return [*regular, *(known[name] for name in more)]
