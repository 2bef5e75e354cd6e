"""Whether an object is what it should be, and works: one pure function for each kind.

Replicas count only when they are of the newest template and the controller has seen the newest
spec, so an old ReplicaSet never passes for a new one. What is not in the table is ready by being
there.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items, part
from knfleet.apply.refs import GroupKind, Ref


class ReadinessState(StrEnum):
    """How an object is."""

    READY = "ready"
    PROGRESSING = "progressing"
    FAILED = "failed"
    """It will not become ready by waiting."""


class ObjectReadiness(Struct, frozen=True):
    """How one object is, with numbers where it has some."""

    ref: Ref
    state: ReadinessState
    message: str = ""
    ready: int = 0
    wanted: int = 0

    def __str__(self) -> str:
        count = f" {self.ready}/{self.wanted}" if self.wanted else ""
        return f"{self.ref}{count}" + (f": {self.message}" if self.message else "")


class SetReadiness(Struct, frozen=True):
    """How all objects of a set are."""

    healths: tuple[ObjectReadiness, ...] = ()

    def by(self, state: ReadinessState) -> list[ObjectReadiness]:
        return [health for health in self.healths if health.state == state]

    @property
    def is_ready(self) -> bool:
        """Whether everything works."""
        return all(health.state == ReadinessState.READY for health in self.healths)

    @property
    def failed(self) -> list[ObjectReadiness]:
        """Objects that waiting does not help."""
        return self.by(ReadinessState.FAILED)

    @property
    def waiting(self) -> list[ObjectReadiness]:
        """Objects that are on their way."""
        return self.by(ReadinessState.PROGRESSING)

    def __str__(self) -> str:
        ready = len(self.by(ReadinessState.READY))
        rest = "; ".join(map(str, self.failed + self.waiting))
        return f"{ready} of {len(self.healths)} ready" + (f"; {rest}" if rest else "")


def health(manifest: Object) -> ObjectReadiness:
    """How an object is."""
    ref = Ref.of(manifest)
    judge = JUDGES.get(ref.group_kind)
    if manifest["metadata"].get("deletionTimestamp"):
        return ObjectReadiness(ref, ReadinessState.PROGRESSING, "it is being deleted")
    return ObjectReadiness(ref, ReadinessState.READY) if judge is None else judge(ref, manifest)


def absent(ref: Ref) -> ObjectReadiness:
    """How an object is that is not there."""
    return ObjectReadiness(ref, ReadinessState.PROGRESSING, "it is not there")


def summarize(wanted: Iterable[Ref], found: Mapping[Ref, Object]) -> SetReadiness:
    """How all wanted objects are, those that are not there among them."""
    return SetReadiness(
        tuple(
            health(found[ref]) if ref in found else absent(ref)
            for ref in sorted(wanted)
            if ref in found or ref.group_kind in JUDGES
        )
    )


def conditions(manifest: Object) -> dict[str, Object]:
    return {each["type"]: each for each in items(manifest, "status", "conditions")}


def is_true(condition: Object | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def is_observed(manifest: Object) -> bool:
    """Whether the controller has seen the newest spec."""
    generation = manifest["metadata"].get("generation", 0)
    return part(manifest, "status").get("observedGeneration", 0) >= generation


def deployment(ref: Ref, manifest: Object) -> ObjectReadiness:
    """All replicas are new, available, and the old ones are gone."""
    spec, status = part(manifest, "spec"), part(manifest, "status")
    wanted: int = spec.get("replicas", 1)
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    ready = min(updated, available)
    if not is_observed(manifest):
        return ObjectReadiness(
            ref, ReadinessState.PROGRESSING, "its change is not seen yet", 0, wanted
        )
    found = conditions(manifest)
    progressing = found.get("Progressing", {})
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        message = progressing.get("message") or "it makes no progress"
        return ObjectReadiness(ref, ReadinessState.FAILED, message, ready, wanted)
    old = status.get("replicas", 0) - updated
    message = ""
    if is_true(found.get("ReplicaFailure")):
        message = found["ReplicaFailure"].get("message") or "its pods cannot be made"
    elif updated < wanted:
        message = f"{updated} of {wanted} updated"
    elif old > 0:
        message = f"{old} old pods remain"
    elif available < wanted:
        message = f"{available} of {wanted} available"
    return ObjectReadiness(
        ref, ReadinessState.PROGRESSING if message else ReadinessState.READY, message, ready, wanted
    )


def stateful_set(ref: Ref, manifest: Object) -> ObjectReadiness:
    """All replicas are of the newest revision and available."""
    spec, status = part(manifest, "spec"), part(manifest, "status")
    wanted: int = spec.get("replicas", 1)
    available = status.get("availableReplicas", status.get("readyReplicas", 0))
    if not is_observed(manifest):
        return ObjectReadiness(
            ref, ReadinessState.PROGRESSING, "its change is not seen yet", 0, wanted
        )
    strategy = part(spec, "updateStrategy")
    partition = part(strategy, "rollingUpdate").get("partition") or 0
    updated = status.get("updatedReplicas", 0)
    due = 0 if strategy.get("type") == "OnDelete" else max(0, wanted - partition)
    if status.get("currentRevision") != status.get("updateRevision") and updated < due:
        message = f"{updated} of {due} updated"
        return ObjectReadiness(
            ref, ReadinessState.PROGRESSING, message, min(updated, available), wanted
        )
    if available < wanted:
        message = missing_pod(manifest, available) or f"{available} of {wanted} available"
        return ObjectReadiness(ref, ReadinessState.PROGRESSING, message, available, wanted)
    return ObjectReadiness(ref, ReadinessState.READY, "", wanted, wanted)


def missing_pod(manifest: Object, available: int) -> str:
    """What is said of a StatefulSet whose controller has not created the next pod, or nothing.

    Its pods have fixed names, so one that an earlier StatefulSet left behind is in the way.
    """
    spec = part(manifest, "spec")
    created: int = part(manifest, "status").get("replicas", 0)
    if created > available or spec.get("podManagementPolicy") == "Parallel":
        return ""
    next_ordinal = part(spec, "ordinals").get("start", 0) + created
    pod = f"{manifest['metadata']['name']}-{next_ordinal}"
    return f"pod {pod} is not created; one of that name may be left of an earlier StatefulSet"


def daemon_set(ref: Ref, manifest: Object) -> ObjectReadiness:
    """Every node that should have a pod has a new one, available."""
    spec, status = part(manifest, "spec"), part(manifest, "status")
    wanted: int = status.get("desiredNumberScheduled", 0)
    available = status.get("numberAvailable", 0)
    if not is_observed(manifest) or "desiredNumberScheduled" not in status:
        return ObjectReadiness(
            ref, ReadinessState.PROGRESSING, "its change is not seen yet", 0, wanted
        )
    by_hand = part(spec, "updateStrategy").get("type") == "OnDelete"
    updated = wanted if by_hand else status.get("updatedNumberScheduled", 0)
    if updated < wanted:
        message = f"{updated} of {wanted} updated"
        return ObjectReadiness(
            ref, ReadinessState.PROGRESSING, message, min(updated, available), wanted
        )
    if available < wanted:
        message = f"{available} of {wanted} available"
        return ObjectReadiness(ref, ReadinessState.PROGRESSING, message, available, wanted)
    return ObjectReadiness(ref, ReadinessState.READY, "", wanted, wanted)


def job(ref: Ref, manifest: Object) -> ObjectReadiness:
    """It is complete."""
    spec, status = part(manifest, "spec"), part(manifest, "status")
    wanted: int = spec.get("completions") or 1
    done: int = status.get("succeeded", 0)
    found = conditions(manifest)
    if is_true(found.get("Complete")):
        return ObjectReadiness(ref, ReadinessState.READY, "", wanted, wanted)
    if is_true(found.get("Failed")):
        message = found["Failed"].get("message") or found["Failed"].get("reason") or "it failed"
        return ObjectReadiness(ref, ReadinessState.FAILED, message, done, wanted)
    return ObjectReadiness(ref, ReadinessState.PROGRESSING, "it is not complete", done, wanted)


def custom_resource_definition(ref: Ref, manifest: Object) -> ObjectReadiness:
    """Its names are accepted, and the server serves it."""
    found = conditions(manifest)
    names = found.get("NamesAccepted")
    if names is not None and names.get("status") == "False":
        return ObjectReadiness(
            ref, ReadinessState.FAILED, names.get("message") or "its names are taken"
        )
    if is_true(found.get("NonStructuralSchema")):
        message = found["NonStructuralSchema"].get("message") or "its schema is not structural"
        return ObjectReadiness(ref, ReadinessState.FAILED, message)
    if is_true(found.get("Established")):
        return ObjectReadiness(ref, ReadinessState.READY)
    return ObjectReadiness(ref, ReadinessState.PROGRESSING, "it is not established yet")


def namespace(ref: Ref, manifest: Object) -> ObjectReadiness:
    """It is not going away."""
    if part(manifest, "status").get("phase") == "Terminating":
        return ObjectReadiness(ref, ReadinessState.PROGRESSING, "it is being deleted")
    return ObjectReadiness(ref, ReadinessState.READY)


def ready_endpoints(slices: Iterable[Object]) -> int:
    """How many addresses of a Service take requests."""
    return sum(
        1
        for each in slices
        for endpoint in items(each, "endpoints")
        # Without the condition an endpoint counts as ready, says the API.
        if part(endpoint, "conditions").get("ready") is not False
    )


JUDGES: dict[GroupKind, Callable[[Ref, Object], ObjectReadiness]] = {
    GroupKind("apps", "Deployment"): deployment,
    GroupKind("apps", "StatefulSet"): stateful_set,
    GroupKind("apps", "DaemonSet"): daemon_set,
    GroupKind("batch", "Job"): job,
    GroupKind("apiextensions.k8s.io", "CustomResourceDefinition"): custom_resource_definition,
    GroupKind("", "Namespace"): namespace,
}
