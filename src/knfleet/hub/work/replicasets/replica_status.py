"""The status of a replica set: counts of works, and conditions. Pure."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import asdict, fields, replace

from knfleet.api.conditions import StandardCondition
from knfleet.api.knative.conditions import Status
from knfleet.api.meta import Object
from knfleet.api.work.manifestwork import APPLIED, AVAILABLE
from knfleet.api.work.replicaset import (
    MANIFESTWORK_APPLIED,
    PLACEMENT_ROLLED_OUT,
    PLACEMENT_VERIFIED,
    ManifestWorkReplicaSet,
    ReplicaSetPlacement,
    ReplicaSetSummary,
)
from knfleet.hub.rollout.rollout_plan import some
from knfleet.hub.work.replicasets.replica_plan import PlacementPlan, ReplicaSetPlan


def summary_of(planned: PlacementPlan, hashes: Mapping[str, str]) -> ReplicaSetSummary:
    """Counts of the works of one Placement."""
    works, plan = planned.works, planned.plan
    return ReplicaSetSummary(
        total=len(works),
        desired_total=plan.total,
        updated=sum(work.hash == hashes.get(name, "") for name, work in works.items()),
        applied=sum(work.is_true(APPLIED) for work in works.values()),
        available=sum(work.is_true(AVAILABLE) for work in works.values()),
        progressing=len(plan.progressing) + len(plan.act),
        degraded=len(plan.failed) + len(plan.timed_out),
    )


def added(summaries: Iterable[ReplicaSetSummary]) -> ReplicaSetSummary:
    """The sum of counts."""
    found = [asdict(each) for each in summaries]
    names = [each.name for each in fields(ReplicaSetSummary)]
    return ReplicaSetSummary(**{name: sum(each[name] for each in found) for name in names})


def available_groups(planned: PlacementPlan) -> str:
    """How many groups are available, and how many clusters of how many are applied."""
    works = planned.works
    ready = sum(
        all(name in works and works[name].is_true(AVAILABLE) for name in group.clusters)
        for group in planned.placement.groups
        if group.clusters
    )
    applied = sum(work.is_true(APPLIED) for work in works.values())
    return f"{ready} ({applied} / {planned.plan.total} clusters applied)"


def placement_summaries(
    plan: ReplicaSetPlan, hashes: Mapping[str, str]
) -> list[ReplicaSetPlacement]:
    """The works of each Placement."""
    return [
        ReplicaSetPlacement(
            name=each.placement.name,
            available_decision_groups=available_groups(each),
            summary=summary_of(each, hashes),
        )
        for each in plan.placements
    ]


def written(summary: ReplicaSetSummary) -> Object:
    """Counts as the API has them, zeros included."""
    return {each.encode_name: getattr(summary, each.name) for each in fields(ReplicaSetSummary)}


def status_fields(summaries: Sequence[ReplicaSetPlacement], gone: int) -> Object:
    """The counts of a status; `gone` works belong to no Placement."""
    every = added(each.summary for each in summaries)
    return {
        "summary": written(replace(every, total=every.total + gone)),
        "placementSummary": [
            {
                "name": each.name,
                "availableDecisionGroups": each.available_decision_groups,
                "summary": written(each.summary),
            }
            for each in summaries
        ],
    }


def conditions(
    replica_set: ManifestWorkReplicaSet, plan: ReplicaSetPlan, problems: Mapping[str, str]
) -> list[StandardCondition]:
    """What a replica set says; `problems` has clusters whose work cannot be written, and why."""
    made = [verified(plan), rolled_out(plan), applied(plan, problems)]
    generation = replica_set.metadata.generation
    return [replace(each, observed_generation=generation) for each in made]


def condition(type_: str, status: Status, reason: str, message: str) -> StandardCondition:
    """A condition of a replica set."""
    return StandardCondition(type=type_, status=status, reason=reason, message=message)


def verified(plan: ReplicaSetPlan) -> StandardCondition:
    """Whether the Placements can be followed."""
    for each in plan.placements:
        placement = each.placement
        if not placement.exists or not placement.has_decisions:
            what = "has no decisions yet" if placement.exists else "does not exist"
            return condition(
                PLACEMENT_VERIFIED,
                "False",
                "PlacementDecisionNotFound",
                f"Placement {placement.name} {what}; works stay as they are.",
            )
        if placement.problem:
            return condition(
                PLACEMENT_VERIFIED,
                "False",
                "NotAsExpected",
                f"Placement {placement.name}: rolloutStrategy.{placement.problem}; nothing new is"
                " begun until this is corrected.",
            )
    empty = [each.placement.name for each in plan.placements if not each.placement.clusters]
    if empty:
        kept = f" {len(plan.kept)} works are deleted if that stays so." if plan.kept else ""
        return condition(
            PLACEMENT_VERIFIED,
            "False",
            "PlacementDecisionEmpty",
            f"Placement {', '.join(empty)} selects no clusters.{kept}",
        )
    return condition(PLACEMENT_VERIFIED, "True", "AsExpected", "")


def rolled_out(plan: ReplicaSetPlan) -> StandardCondition:
    """How far the rollout is, and what it waits for."""
    texts = [progress_text(each) for each in plan.placements]
    complete = all(each.plan.complete for each in plan.placements)
    return condition(
        PLACEMENT_ROLLED_OUT,
        "True" if complete else "False",
        "Complete" if complete else "Progressing",
        " ".join(texts),
    )


def progress_text(planned: PlacementPlan) -> str:
    """How far the rollout to one Placement is."""
    plan = planned.plan
    parts = [f"{len(plan.done)} of {plan.total} clusters done"]
    if busy := (*plan.progressing, *plan.act):
        parts.append(f"{len(busy)} in progress ({some(busy)})")
    if bad := (*plan.failed, *plan.timed_out):
        parts.append(f"{len(bad)} failed or timed out ({some(bad)})")
    if plan.waiting:
        reason = next(iter(plan.waiting.values()))
        parts.append(f"{len(plan.waiting)} waiting: {reason}")
    if plan.missing_groups:
        parts.append(f"mandatory decision group {', '.join(plan.missing_groups)} does not exist")
    return f"Placement {planned.placement.name}: {', '.join(parts)}."


def applied(plan: ReplicaSetPlan, problems: Mapping[str, str]) -> StandardCondition:
    """Whether the works are there and applied."""
    if problems:
        name, problem = next(iter(sorted(problems.items())))
        return condition(
            MANIFESTWORK_APPLIED,
            "False",
            "NotAsExpected",
            f"{len(problems)} clusters do not get their work ({some(sorted(problems))}); {name}:"
            f" {problem}",
        )
    failed = sorted(name for each in plan.placements for name in each.plan.failed)
    if failed:
        message = f"Works of {len(failed)} clusters failed ({some(failed)})."
        return condition(MANIFESTWORK_APPLIED, "False", "NotAsExpected", message)
    counted = [
        (sum(work.is_true(APPLIED) for work in each.works.values()), each.plan.total)
        for each in plan.placements
    ]
    ready, total = (sum(column) for column in zip(*counted, strict=True)) if counted else (0, 0)
    if ready < total:
        message = f"{ready} of {total} works are applied."
        return condition(MANIFESTWORK_APPLIED, "False", "Processing", message)
    return condition(MANIFESTWORK_APPLIED, "True", "AsExpected", "")


def as_manifest(values: Sequence[StandardCondition]) -> list[Object]:
    """Conditions as the API has them."""
    return msgspec.to_builtins(values)
