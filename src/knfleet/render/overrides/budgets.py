"""Overrides of single PodDisruptionBudgets."""

from knfleet.api.knative.overrides import BudgetOverride
from knfleet.render.drafts import Draft
from knfleet.render.errors import BadField


def override_budget(draft: Draft, overrides: list[BudgetOverride]) -> None:
    """Set one of the two limits, and drop the other; the first override for a budget counts."""
    if draft.kind != "PodDisruptionBudget" or draft.group != "policy":
        return
    for place, override in enumerate(overrides):
        if override.name != draft.released:
            continue
        limits = {
            "minAvailable": override.min_available,
            "maxUnavailable": override.max_unavailable,
        }
        given = {name: limit for name, limit in limits.items() if limit is not None}
        if len(given) == 2:
            problem = (
                "both minAvailable and maxUnavailable are set for PodDisruptionBudget"
                f" {override.name}"
            )
            raise BadField(f"spec.podDisruptionBudgets[{place}]", given, problem)
        if given:
            spec = draft.section("spec")
            for name in limits:
                spec.pop(name, None)
            spec.update(given)
        return
