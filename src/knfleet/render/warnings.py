"""What the custom resource says of things that are not there.

Such a setting does nothing, most often because of a spelling mistake or a newer release.
"""

from collections.abc import Iterable, Iterator

from knfleet.api.knative.overrides import WorkloadOverride
from knfleet.api.knative.resources import KnativeSpec
from knfleet.render.drafts import Draft
from knfleet.render.overrides.pod_templates import containers
from knfleet.render.overrides.workloads import is_meant


def warnings(drafts: list[Draft], spec: KnativeSpec) -> list[str]:
    """One sentence for each setting without effect, in the order of the fields."""
    return [
        *unknown_config(drafts, spec),
        *(line for name in ("deployments", "workloads") for line in unmet(drafts, spec, name)),
        *unknown_names(drafts, "Service", "services", [o.name for o in spec.services]),
        *unknown_names(
            drafts,
            "PodDisruptionBudget",
            "podDisruptionBudgets",
            [o.name for o in spec.pod_disruption_budgets],
        ),
    ]


def unknown_config(drafts: list[Draft], spec: KnativeSpec) -> Iterator[str]:
    """Configuration for ConfigMaps that the release does not have."""
    names = released(drafts, "ConfigMap")
    short = {name.removeprefix("config-") for name in names}
    for name in sorted(spec.config):
        if name not in names and name not in short:
            yield f"spec.config.{name}: the release has no ConfigMap {name} or config-{name}"


def unmet(drafts: list[Draft], spec: KnativeSpec, field: str) -> Iterator[str]:
    """Overrides for workloads, or containers of theirs, that the release does not have."""
    overrides = spec.workloads if field == "workloads" else spec.deployments
    for place, override in enumerate(overrides):
        where = f"spec.{field}[{place}]"
        meant = [draft for draft in drafts if is_meant(draft, override.name)]
        if not meant:
            yield f"{where}: the release has no workload {override.name}"
            continue
        names = {str(c.get("name")) for draft in meant for c in containers(draft)}
        for name in sorted(named_containers(override) - names):
            yield f"{where}: {override.name} has no container {name}"


def named_containers(override: WorkloadOverride) -> set[str]:
    """The containers that an override speaks of."""
    parts = (override.resources, override.env, override.readiness_probes, override.liveness_probes)
    return {part.container for group in parts for part in group}


def unknown_names(
    drafts: list[Draft], kind: str, field: str, names: Iterable[str]
) -> Iterator[str]:
    """Overrides for objects that the release does not have."""
    known = released(drafts, kind)
    for place, name in enumerate(names):
        if name not in known:
            yield f"spec.{field}[{place}]: the release has no {kind} {name}"


def released(drafts: list[Draft], kind: str) -> set[str]:
    """Names that objects of a kind have in the release."""
    return {draft.released for draft in drafts if draft.kind == kind}
