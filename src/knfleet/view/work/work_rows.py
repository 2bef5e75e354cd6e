"""A row for each ManifestWork, and one for each of its manifests: pure, from what the hub has.

Objects are read leniently, as everywhere in this package: the status may have been written by an
agent of another release. What was reported about an older spec counts as not reported yet.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from knfleet.api.knative.conditions import Condition, find
from knfleet.api.meta import Object, api_group
from knfleet.api.work.manifestwork import APPLIED, AVAILABLE, COMPLETE, DEGRADED, DELETING
from knfleet.api.work.manifestwork import PROGRESSING as WORK_PROGRESSING
from knfleet.apply.manifest_fields import items, part
from knfleet.kube import yaml
from knfleet.view.fleet_model import STANDS, Health, Stand
from knfleet.view.fleet_reader import conditions_of, created, name_of

FEEDBACK_SYNCED = "StatusFeedbackSynced"
SHOWN_FIRST = (APPLIED, AVAILABLE, FEEDBACK_SYNCED)


class FeedbackRow(Struct, frozen=True):
    """A value of an object's status that was asked for."""

    name: str
    value: str


class ManifestRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one manifest of a work."""

    ordinal: int
    kind: str
    group: str = ""
    namespace: str = ""
    name: str = ""
    stand: Stand
    applied: Health = ""
    available: Health = ""
    reason: str = ""
    message: str = ""
    """Of what is wrong with it, if something is."""
    conditions: tuple[Condition, ...] = ()
    feedback: tuple[FeedbackRow, ...] = ()

    @property
    def title(self) -> str:
        """Kind, namespace and name."""
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind or 'object without a kind'} {place}{self.name}".rstrip()


class WorkRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """One ManifestWork."""

    cluster: str
    name: str
    stand: Stand
    applied: Health = ""
    available: Health = ""
    reason: str = ""
    message: str = ""
    since: str = ""
    created: str = ""
    deleting: bool = False
    complete: bool = False
    conditions: tuple[Condition, ...] = ()
    manifests: tuple[ManifestRow, ...] = ()
    """In the order of the work."""

    @property
    def ref(self) -> str:
        """Cluster and name."""
        return f"{self.cluster}/{self.name}"

    @property
    def failing(self) -> tuple[ManifestRow, ...]:
        """The manifests that something is wrong with."""
        return tuple(each for each in self.manifests if each.stand in ("bad", "unknown"))


def work_row(work: Object) -> WorkRow:
    """How a work stands."""
    conditions = conditions_of(work)
    current = current_conditions(work, conditions)
    applied, available = current.get(APPLIED), current.get(AVAILABLE)
    is_deleting = bool(work["metadata"].get("deletionTimestamp"))
    said = find(conditions, DELETING) if is_deleting else decisive(current)
    return WorkRow(
        cluster=str(work["metadata"].get("namespace", "")),
        name=name_of(work),
        stand="busy" if is_deleting else stand_of(current),
        applied="" if applied is None else applied.status,
        available="" if available is None else available.status,
        reason="" if said is None else said.reason,
        message=waiting(work) if said is None else said.message,
        since=created(work) if said is None else said.last_transition_time,
        created=created(work),
        deleting=is_deleting,
        complete=is_true(current.get(COMPLETE)),
        conditions=conditions,
        manifests=manifest_rows(work),
    )


def current_conditions(work: Object, conditions: Iterable[Condition]) -> dict[str, Condition]:
    """The conditions that are about the spec as it is now, by type."""
    generation = work["metadata"].get("generation", 0)
    observed = {
        each.get("type"): each.get("observedGeneration", 0)
        for each in items(work, "status", "conditions")
        if yaml.is_mapping(each)
    }
    return {each.type: each for each in conditions if observed[each.type] in (0, generation)}


def is_true(condition: Condition | None) -> bool:
    """Whether a condition is there and True."""
    return condition is not None and condition.status == "True"


def is_false(condition: Condition | None) -> bool:
    """Whether a condition is there and False."""
    return condition is not None and condition.status == "False"


def decisive(current: Mapping[str, Condition]) -> Condition | None:
    """The condition that says most about a work: what is wrong, else that it is available."""
    applied, available = current.get(APPLIED), current.get(AVAILABLE)
    if applied is None or applied.status != "True":
        return applied
    if is_true(degraded := current.get(DEGRADED)):
        return degraded
    if available is not None and available.status != "True":
        return available
    progressing = current.get(WORK_PROGRESSING)
    return progressing if is_true(progressing) else available or applied


def stand_of(current: Mapping[str, Condition]) -> Stand:
    """How a work stands that is not being deleted, in one word."""
    applied, available = current.get(APPLIED), current.get(AVAILABLE)
    if applied is None:
        return "busy"
    if is_false(applied) or is_true(current.get(DEGRADED)) or is_false(available):
        return "bad"
    if available is not None and available.status == "Unknown":
        return "unknown"
    is_going = is_true(current.get(WORK_PROGRESSING)) or available is None
    return "busy" if is_going else "ok"


def waiting(work: Object) -> str:
    """What a work of which nothing is reported waits for."""
    if work["metadata"].get("deletionTimestamp"):
        return "it is being deleted"
    if items(work, "status", "conditions"):
        return "the agent has not reported on the newest change yet"
    return "the agent has not reported yet"


def manifest_rows(work: Object) -> tuple[ManifestRow, ...]:
    """A row for each manifest, whether or not the agent reported on it."""
    reported = {
        part(each, "resourceMeta").get("ordinal", 0): each
        for each in items(work, "status", "resourceStatus", "manifests")
    }
    wanted = items(work, "spec", "workload", "manifests")
    return tuple(
        manifest_row(ordinal, manifest, reported.get(ordinal))
        for ordinal, manifest in enumerate(wanted)
    )


def manifest_row(ordinal: int, manifest: Object, reported: Object | None) -> ManifestRow:
    """What became of one manifest."""
    meta = part(manifest, "metadata")
    group, _ = api_group(str(manifest.get("apiVersion", "")))
    row: dict[str, Any] = {
        "ordinal": ordinal,
        "kind": str(manifest.get("kind", "")),
        "group": group,
        "namespace": str(meta.get("namespace", "")),
        "name": str(meta.get("name", "")),
    }
    if reported is None or part(reported, "resourceMeta").get("name", row["name"]) != row["name"]:
        return ManifestRow(**row, stand="busy", message="not reported yet")
    conditions = conditions_of({"metadata": {}, "status": reported})
    applied, available = (find(conditions, type_) for type_ in (APPLIED, AVAILABLE))
    said = wrong(conditions)
    return ManifestRow(
        **row,
        stand=manifest_stand(conditions),
        applied="" if applied is None else applied.status,
        available="" if available is None else available.status,
        reason="" if said is None else said.reason,
        message="" if said is None else said.message,
        conditions=conditions,
        feedback=tuple(feedback_rows(reported)),
    )


def wrong(conditions: tuple[Condition, ...]) -> Condition | None:
    """The condition of a manifest that says what is wrong with it; None when nothing is."""
    degraded = find(conditions, DEGRADED)
    if is_true(degraded):
        return degraded
    found = (find(conditions, type_) for type_ in SHOWN_FIRST)
    return next((each for each in found if each is not None and each.status != "True"), None)


def manifest_stand(conditions: tuple[Condition, ...]) -> Stand:
    """How a manifest stands, in one word."""
    applied, available, synced = (find(conditions, type_) for type_ in SHOWN_FIRST)
    if is_false(applied) or is_false(available) or is_true(find(conditions, DEGRADED)):
        return "bad"
    if applied is None:
        return "busy"
    is_unknown = available is not None and available.status == "Unknown"
    return "unknown" if is_unknown or is_false(synced) else "ok"


def feedback_rows(reported: Object) -> Iterable[FeedbackRow]:
    """The values that were asked for."""
    for each in items(reported, "statusFeedback", "values"):
        value = part(each, "fieldValue")
        found = next((value[name] for name in VALUES if value.get(name) is not None), "")
        text = str(found).lower() if isinstance(found, bool) else str(found)
        yield FeedbackRow(str(each.get("name", "")), text)


VALUES = ("integer", "string", "boolean", "jsonRaw")
"""The fields of which a value has one."""


def work_order(row: WorkRow) -> tuple[int, str, str]:
    """Broken ones first, then by cluster and name."""
    return STANDS.index(row.stand), row.cluster, row.name
