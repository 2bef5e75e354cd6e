"""The status of a work: conditions of each manifest, and what they sum up to.

All conditions carry the generation of the work that they are about. A status that the hub could
not store is shortened: first texts, then what goes without saying.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from knfleet.agent.work.observed.condition_rules import RuleResult
from knfleet.agent.work.observed.feedback import Feedback
from knfleet.api.conditions import StandardCondition, find, put
from knfleet.api.knative.conditions import Status
from knfleet.api.texts import bounded
from knfleet.api.work.manifestwork import (
    APPLIED,
    AVAILABLE,
    COMPLETE,
    DELETING,
    PROGRESSING,
    ManifestResourceMeta,
    ManifestStatus,
    ManifestWorkStatus,
    ResourceStatus,
    StatusFeedback,
)

FEEDBACK_SYNCED = "StatusFeedbackSynced"
RULE_PREFIX = "ConditionRule"
"""How reasons of conditions begin that rules computed."""
AGGREGATED = "ConditionRulesAggregated"
IGNORE_FIELD_ERROR = "AppliedManifestSSAIgnoreFieldError"
APPLY_FAILED = "AppliedManifestFailed"
MESSAGE_BYTES = 1024
"""Of the message of one manifest's condition."""
STATUS_BYTES = 850_000
"""Beyond this a status is shortened: with the manifests it must fit into one object of etcd."""


class Outcome(Struct, frozen=True):
    """What became of one manifest."""

    meta: ManifestResourceMeta
    problem: str = ""
    """Why it is not applied."""
    reason: str = APPLY_FAILED
    exists: bool | None = None
    """Whether the object is there; None when that is not known."""
    unknown: str = ""
    """Why it is not known whether the object is there."""
    feedback: Feedback | None = None
    """Values, when rules ask for some and the object is there."""
    rules: tuple[RuleResult, ...] = ()
    completed: bool = False
    """Whether it is left alone, because it is complete."""


def condition(
    type_: str, status: Status, reason: str, message: str, generation: int
) -> StandardCondition:
    """A condition of some generation."""
    return StandardCondition(
        type=type_,
        status=status,
        reason=reason,
        message=bounded(message, MESSAGE_BYTES),
        observed_generation=generation,
    )


def applied_condition(outcome: Outcome, generation: int) -> StandardCondition:
    """Whether a manifest is applied."""
    if outcome.problem:
        message = f"Failed to apply manifest: {outcome.problem}"
        return condition(APPLIED, "False", outcome.reason, message, generation)
    text = "Apply manifest complete"
    return condition(APPLIED, "True", "AppliedManifestComplete", text, generation)


def available_condition(outcome: Outcome, generation: int) -> StandardCondition:
    """Whether the object of a manifest exists."""
    if not outcome.meta.resource or not outcome.meta.name:
        message = "Resource meta is incomplete"
        return condition(AVAILABLE, "Unknown", "IncompleteResourceMeta", message, generation)
    if outcome.exists is None:
        message = f"Failed to fetch resource: {outcome.unknown or 'not seen yet'}"
        return condition(AVAILABLE, "Unknown", "FetchingResourceFailed", message, generation)
    if outcome.exists:
        message = "Resource is available"
        return condition(AVAILABLE, "True", "ResourceAvailable", message, generation)
    message = "Resource is not available"
    return condition(AVAILABLE, "False", "ResourceNotAvailable", message, generation)


def feedback_condition(feedback: Feedback | None, generation: int) -> StandardCondition:
    """Whether all values were reported that rules ask for."""
    if feedback is None:
        return condition(FEEDBACK_SYNCED, "True", "NoStatusFeedbackSynced", "", generation)
    if feedback.problems:
        message = f"Sync status feedback failed with error {'; '.join(feedback.problems)}"
        return condition(FEEDBACK_SYNCED, "False", "StatusFeedbackSyncFailed", message, generation)
    return condition(FEEDBACK_SYNCED, "True", "StatusFeedbackSynced", "", generation)


def manifest_status(
    outcome: Outcome, old: ManifestStatus | None, generation: int, now: datetime
) -> ManifestStatus:
    """The status of one manifest; conditions keep the time of their last transition."""
    wanted = [applied_condition(outcome, generation), available_condition(outcome, generation)]
    before = old.conditions if old is not None else []
    values = old.status_feedback if old is not None else None
    if outcome.exists:
        wanted.append(feedback_condition(outcome.feedback, generation))
        found = list(outcome.feedback.values) if outcome.feedback is not None else []
        values = StatusFeedback(values=found) if found else None
        wanted += [
            condition(each.type, each.status, each.reason, each.message, generation)
            for each in outcome.rules
        ]
    else:
        # Nothing can be read of an object that is gone: what was known of it stays.
        wanted += [
            replace(each, observed_generation=generation)
            for each in before
            if each.type == FEEDBACK_SYNCED
            or (outcome.completed and each.reason.startswith(RULE_PREFIX))
        ]
    conditions: list[StandardCondition] = []
    for each in wanted:
        known = find(before, each.type)
        conditions = put([*conditions, known] if known is not None else conditions, each, now)
    return ManifestStatus(resource_meta=outcome.meta, status_feedback=values, conditions=conditions)


def previous(meta: ManifestResourceMeta, old: Sequence[ManifestStatus]) -> ManifestStatus | None:
    """What was last reported about a manifest, wherever it stood then."""
    if meta.ordinal < len(old) and old[meta.ordinal].resource_meta == meta:
        return old[meta.ordinal]
    wanted = replace(meta, ordinal=0)
    alike = [each for each in old if replace(each.resource_meta, ordinal=0) == wanted]
    return alike[0] if len(alike) == 1 and meta.name else None


def is_complete(status: ManifestStatus | None) -> bool:
    """Whether a manifest was reported to be complete by a rule."""
    known = find(status.conditions, COMPLETE) if status is not None else None
    return known is not None and known.status == "True" and known.reason.startswith(RULE_PREFIX)


def work_status(
    outcomes: Sequence[Outcome], old: ManifestWorkStatus, generation: int, now: datetime
) -> ManifestWorkStatus:
    """The whole status of a work; equal to the old one when nothing is new."""
    before = old.resource_status.manifests
    manifests = [
        manifest_status(each, previous(each.meta, before), generation, now) for each in outcomes
    ]
    wanted = [
        applied_summary(manifests, generation),
        available_summary(manifests, generation),
        *rule_summaries(manifests, generation),
    ]
    types = {each.type for each in wanted}
    conditions = [
        each
        for each in old.conditions
        if each.type in types or (each.reason != AGGREGATED and each.type != DELETING)
    ]
    for each in wanted:
        conditions = put(conditions, each, now)
    return shortened(
        ManifestWorkStatus(
            conditions=conditions, resource_status=ResourceStatus(manifests=manifests)
        )
    )


def applied_summary(manifests: Sequence[ManifestStatus], generation: int) -> StandardCondition:
    """Whether all manifests are applied."""
    failed = count(manifests, APPLIED, ("False",))
    if failed:
        message = f"Failed to apply manifest work: {failed} of {len(manifests)} manifests failed"
        return condition(APPLIED, "False", "AppliedManifestWorkFailed", message, generation)
    text = "Apply manifest work complete"
    return condition(APPLIED, "True", "AppliedManifestWorkComplete", text, generation)


def available_summary(manifests: Sequence[ManifestStatus], generation: int) -> StandardCondition:
    """Whether all objects exist."""
    missing, total = count(manifests, AVAILABLE, ("False",)), len(manifests)
    if missing:
        message = f"{missing} of {total} resources are not available"
        return condition(AVAILABLE, "False", "ResourcesNotAvailable", message, generation)
    unknown = count(manifests, AVAILABLE, ("Unknown",))
    if unknown:
        message = f"{unknown} of {total} resources have unknown status"
        return condition(AVAILABLE, "Unknown", "ResourcesStatusUnknown", message, generation)
    text = "All resources are available"
    return condition(AVAILABLE, "True", "ResourcesAvailable", text, generation)


def count(manifests: Iterable[ManifestStatus], type_: str, statuses: Sequence[Status]) -> int:
    """How many manifests have a condition with one of some statuses."""
    found = (find(each.conditions, type_) for each in manifests)
    return sum(1 for each in found if each is not None and each.status in statuses)


def rule_summaries(manifests: Sequence[ManifestStatus], generation: int) -> list[StandardCondition]:
    """The conditions of rules, each over all manifests that have it."""
    by_type: dict[str, list[StandardCondition]] = {}
    for manifest in manifests:
        for each in manifest.conditions:
            if each.reason.startswith(RULE_PREFIX) and each.reason != AGGREGATED:
                by_type.setdefault(each.type, []).append(each)
    return [rule_summary(type_, found, generation) for type_, found in by_type.items()]


def rule_summary(
    type_: str, found: Sequence[StandardCondition], generation: int
) -> StandardCondition:
    """One condition over all manifests: Progressing if any is, any other type if all are."""
    statuses = [each.status for each in found]
    if type_ == PROGRESSING:
        status = "True" if "True" in statuses else "Unknown" if "Unknown" in statuses else "False"
    else:
        status = "False" if "False" in statuses else "Unknown" if "Unknown" in statuses else "True"
    if len(found) == 1:
        message = found[0].message
    else:
        share = sum(1 for each in statuses if each == "True")
        message = f"{share} of {len(found)} manifests are {type_}"
    return condition(type_, status, AGGREGATED, message, generation)


def same_conditions(one: ManifestWorkStatus, other: ManifestWorkStatus) -> bool:
    """Whether two statuses of a work differ in values of objects at most."""
    return [(each.type, each.status, each.observed_generation) for each in one.conditions] == [
        (each.type, each.status, each.observed_generation) for each in other.conditions
    ]


def flawed_status(
    problem: str, old: ManifestWorkStatus, generation: int, now: datetime
) -> ManifestWorkStatus:
    """The status of a work that cannot be read."""
    text = f"Failed to apply manifest work: {problem}"
    new = condition(APPLIED, "False", "AppliedManifestWorkFailed", text, generation)
    return replace(old, conditions=put(old.conditions, new, now))


def deleting_condition(held: Sequence[str], generation: int) -> StandardCondition:
    """Says what holds up the deletion of a work."""
    shown = "; ".join(held[:5]) + (f"; and {len(held) - 5} more" if len(held) > 5 else "")
    message = f"Waiting for {len(held)} objects to be deleted: {shown}"
    return condition(DELETING, "True", "WorkDeleting", message, generation)


def shortened(status: ManifestWorkStatus) -> ManifestWorkStatus:
    """A status that is small enough to be stored."""
    if not too_large(status):
        return status
    shorter: tuple[tuple[int, tuple[str, ...]], ...] = (
        (64, ()),
        (0, ()),
        (0, (FEEDBACK_SYNCED,)),
        (0, (FEEDBACK_SYNCED, AVAILABLE)),
    )
    for limit, drop in shorter:
        manifests = [brief(each, limit, drop) for each in status.resource_status.manifests]
        status = replace(status, resource_status=ResourceStatus(manifests=manifests))
        if not too_large(status):
            return status
    failed = [
        each
        for each in status.resource_status.manifests
        if any(known.status != "True" for known in each.conditions)
    ]
    while failed and too_large(replace(status, resource_status=ResourceStatus(manifests=failed))):
        failed = failed[: len(failed) // 2]
    return replace(status, resource_status=ResourceStatus(manifests=failed))


def brief(status: ManifestStatus, limit: int, drop: Sequence[str]) -> ManifestStatus:
    """The status of a manifest with short messages, and without some conditions that are True."""
    conditions = [
        replace(
            each, message=bounded(each.message, max(limit, 16) if each.status != "True" else 16)
        )
        if limit or each.status != "True"
        else replace(each, message="")
        for each in status.conditions
        if not (each.type in drop and each.status == "True")
    ]
    return replace(status, conditions=conditions)


def too_large(status: ManifestWorkStatus) -> bool:
    """Whether a status takes too much of what etcd allows for an object."""
    if len(status.resource_status.manifests) < 100:
        return False
    return len(msgspec.json.encode(status)) > STATUS_BYTES
