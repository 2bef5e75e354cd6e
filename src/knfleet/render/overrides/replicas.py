"""How many pods each workload runs."""

from collections.abc import Iterable

from knfleet.api.knative.overrides import WorkloadOverride
from knfleet.render.drafts import Draft, as_map

AUTOSCALED = frozenset(
    {
        "3scale-kourier-gateway",
        "activator",
        "eventing-webhook",
        "kafka-broker-dispatcher",
        "kafka-channel-dispatcher",
        "kafka-source-dispatcher",
        "mt-broker-filter",
        "mt-broker-ingress",
        "webhook",
    }
)
"""Workloads whose number of pods an autoscaler, or Knative itself, decides."""

SELF_SCALED = "pingsource-mt-adapter"
"""Eventing's controller starts it when there is a PingSource, and stops it when there is none."""

AUTOSCALERS = {"mt-broker-ingress": "broker-ingress-hpa", "mt-broker-filter": "broker-filter-hpa"}
"""Autoscalers that are not called like what they scale."""


def autoscaled(drafts: Iterable[Draft]) -> frozenset[str]:
    """Workloads whose number of pods is not ours to set, by name."""
    targets: set[str] = set()
    for draft in drafts:
        if is_autoscaler(draft):
            reference = as_map(draft.section("spec").get("scaleTargetRef"))
            targets.add(str(reference.get("name", "")))
    return AUTOSCALED | targets


def is_autoscaler(draft: Draft) -> bool:
    """Whether the object is a HorizontalPodAutoscaler."""
    return draft.kind == "HorizontalPodAutoscaler" and draft.group == "autoscaling"


def make_available(
    draft: Draft,
    replicas: int,
    *,
    overrides: list[WorkloadOverride],
    scaled: frozenset[str],
) -> None:
    """Give a Deployment, or an autoscaler, the number of pods asked for by `high-availability`.

    A workload with a number of its own is left alone, and so is its autoscaler.
    """
    own = {override.name for override in overrides if override.replicas is not None}
    if draft.released in own | {autoscaler_of(name) for name in own}:
        return
    if is_autoscaler(draft):
        raise_minimum(draft, replicas)
    elif counts_pods(draft, "Deployment") and draft.released not in scaled | {SELF_SCALED}:
        draft.section("spec")["replicas"] = replicas


def counts_pods(draft: Draft, *kinds: str) -> bool:
    """Whether the object is of one of the kinds, which all have a number of pods."""
    return draft.group == "apps" and draft.kind in kinds


def autoscaler_of(workload: str) -> str:
    return AUTOSCALERS.get(workload, workload)


def raise_minimum(draft: Draft, replicas: int) -> None:
    """Raise an autoscaler's least number of pods, and its greatest by as much."""
    spec = draft.section("spec")
    minimum, maximum = spec.get("minReplicas"), spec.get("maxReplicas")
    least = minimum if isinstance(minimum, int) else 1
    if least >= replicas:
        return
    spec["minReplicas"] = replicas
    if isinstance(maximum, int):
        spec["maxReplicas"] = maximum + replicas - least


def override_replicas(draft: Draft, override: WorkloadOverride, scaled: frozenset[str]) -> None:
    """Give one workload, or its autoscaler, the number of pods of its override."""
    name, replicas = override.name, override.replicas
    if replicas is None:
        return
    if is_autoscaler(draft) and draft.released == autoscaler_of(name):
        raise_minimum(draft, replicas)
    if counts_pods(draft, "Deployment", "StatefulSet") and draft.released == name not in scaled:
        draft.section("spec")["replicas"] = replicas
