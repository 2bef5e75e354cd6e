"""What must be done to each object, decided from what is wanted and what is there.

An object is left alone when it carries the hash of what is wanted and we still own every field that
we applied: then no client has changed it since (see `apply.fields`, and docs/decisions/0006).
"""

import hashlib
from collections.abc import Collection, Mapping
from enum import StrEnum

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.apply import well_known
from knfleet.apply.desired import Desired, DesiredSet
from knfleet.apply.manifest_fields import part
from knfleet.apply.observe.metadata import ObservedObject
from knfleet.apply.plan.field_sets import UnownedField, contains, set_of, uncovered
from knfleet.apply.plan.provided_roles import role_digest
from knfleet.apply.plan.takeover import is_inherited
from knfleet.apply.plan.waves import Wave, in_waves
from knfleet.apply.plan.webhooks import Webhooks, webhooks_of
from knfleet.apply.refs import JOB, NAMESPACE, GroupKind, Ref

AUTOSCALER = "kube-controller-manager"
SCALED = frozenset({GroupKind("apps", "Deployment"), GroupKind("apps", "StatefulSet")})
REPLICAS = ("f:spec", "f:replicas")

PROOFS: set[bytes] = set()
"""Digests of an object as it is wanted, with a set of fields that was found to hold all of it."""
MANY_PROOFS = 16384


class StepAction(StrEnum):
    """What must be done to one object."""

    KEEP = "keep"
    CREATE = "create"
    CONFIGURE = "configure"
    ADOPT = "adopt"
    """Take it over from the Go operator, then apply."""
    WAIT = "wait"
    """It is being deleted; it can be made anew when it is gone."""
    REFUSE = "refuse"
    """It belongs to another set."""


class ApplyStep(Struct, frozen=True):
    """One object, and what must be done to it."""

    desired: Desired
    verdict: StepAction
    observed: ObservedObject | None = None
    missing: tuple[UnownedField, ...] = ()
    """Fields that others changed since we applied the very same object."""

    @property
    def manifest(self) -> Object:
        return fitted(self.desired, self.observed)


class ApplyPlan(Struct, frozen=True):
    """What must be done to all objects of a set, wave by wave."""

    waves: Mapping[Wave, tuple[ApplyStep, ...]]
    kept: tuple[ApplyStep, ...] = ()
    stopped: tuple[ApplyStep, ...] = ()
    """Objects that must wait, or are not ours to touch."""
    webhooks: Webhooks = Webhooks()

    @property
    def steps(self) -> list[ApplyStep]:
        """Everything that is to be written, in order."""
        return [step for steps in self.waves.values() for step in steps]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be written."""
        return not any(self.waves.values())


class StepContext(Struct, frozen=True):
    """What a decision depends on beside the object itself."""

    set_id: str
    adoptable: frozenset[str] = frozenset()
    """Other sets whose objects may be taken, because those sets are gone."""
    done_jobs: Mapping[str, str] = {}


def decide(desired: Desired, observed: ObservedObject | None, context: StepContext) -> ApplyStep:
    """What must be done to one object."""
    if observed is None:
        done = context.done_jobs.get(str(desired.ref.key)) == desired.digest
        is_done = done and desired.ref.group_kind == JOB
        return ApplyStep(desired, StepAction.KEEP if is_done else StepAction.CREATE)
    if observed.part_of not in {"", context.set_id} | context.adoptable:
        # Several installations may share a Namespace; the first one keeps it.
        shared = desired.ref.group_kind == NAMESPACE
        return ApplyStep(desired, StepAction.KEEP if shared else StepAction.REFUSE, observed)
    if observed.deleting:
        return ApplyStep(desired, StepAction.WAIT, observed)
    if observed.provides and role_digest(desired.manifest) in observed.provides:
        return ApplyStep(desired, StepAction.KEEP, observed)
    return decide_ours(desired, observed, context)


def decide_ours(desired: Desired, observed: ObservedObject, context: StepContext) -> ApplyStep:
    """What must be done to an object that is there and that we may write."""
    if is_inherited(observed):
        return ApplyStep(desired, StepAction.ADOPT, observed)
    if observed.part_of != context.set_id or observed.applied_hash != desired.digest:
        return ApplyStep(desired, StepAction.CONFIGURE, observed)
    missing = missing_of(desired, observed)
    return ApplyStep(
        desired, StepAction.CONFIGURE if missing else StepAction.KEEP, observed, missing
    )


def missing_of(desired: Desired, observed: ObservedObject) -> tuple[UnownedField, ...]:
    """What of an object that we applied is no longer ours.

    Most changes are of a status. Then our own set of fields is, letter for letter, one that was
    gone through before.
    """
    manifest, text = fitted(desired, observed), observed.own_text
    if manifest is not desired.manifest or not text:
        return tuple(uncovered(observed.own, manifest))
    proof = hashlib.blake2b(f"{desired.digest} {text}".encode(), digest_size=16).digest()
    if proof in PROOFS:
        return ()
    missing = tuple(uncovered(observed.own, manifest))
    if not missing:
        if len(PROOFS) >= MANY_PROOFS:
            PROOFS.clear()
        PROOFS.add(proof)
    return missing


def make_plan(
    desired: DesiredSet,
    observed: Mapping[Ref, ObservedObject],
    context: StepContext,
    *,
    trusted: Collection[Ref] = frozenset(),
) -> ApplyPlan:
    """What must be done; objects that are trusted to be as we left them are not looked at."""
    webhooks = webhooks_of(desired.objects.values())
    kept: list[ApplyStep] = []
    stopped: list[ApplyStep] = []
    waves: dict[Wave, tuple[ApplyStep, ...]] = {}
    for wave, members in in_waves(desired.objects.values(), webhooks.gates).items():
        steps: list[ApplyStep] = []
        for each in members:
            if each.ref in trusted:
                kept.append(ApplyStep(each, StepAction.KEEP))
                continue
            step = decide(each, observed.get(each.ref), context)
            match step.verdict:
                case StepAction.KEEP:
                    kept.append(step)
                case StepAction.WAIT | StepAction.REFUSE:
                    stopped.append(step)
                case _:
                    steps.append(step)
        if steps:
            waves[wave] = tuple(steps)
    return ApplyPlan(waves, tuple(kept), tuple(stopped), webhooks)


def fitted(desired: Desired, observed: ObservedObject | None) -> Object:
    """What to apply to an object as it is now: others keep what is theirs by right."""
    manifest = desired.manifest
    if observed is None:
        return manifest
    if desired.ref.group_kind in SCALED and is_autoscaled(observed):
        spec = {name: value for name, value in manifest["spec"].items() if name != "replicas"}
        manifest = {**manifest, "spec": spec}
    if desired.ref.group_kind == NAMESPACE and observed.created_by:
        manifest = with_annotation(manifest, well_known.CREATED_BY, observed.created_by)
    return manifest


def with_annotation(manifest: Object, name: str, value: str) -> Object:
    """A copy of a manifest with one more annotation."""
    meta = manifest["metadata"]
    annotations = {**part(meta, "annotations"), name: value}
    return {**manifest, "metadata": {**meta, "annotations": annotations}}


def is_autoscaled(observed: ObservedObject) -> bool:
    """Whether a HorizontalPodAutoscaler has set the replicas."""
    return any(
        entry.get("manager") == AUTOSCALER
        and entry.get("subresource") == "scale"
        and contains(set_of(entry), REPLICAS)
        for entry in observed.managed
    )
