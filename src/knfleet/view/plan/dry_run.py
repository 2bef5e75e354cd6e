"""What would become of objects, by asking the server itself: server-side apply as a dry run.

What cannot be tried yet, because its namespace or its kind comes with the same plan, is taken as
it is rendered.
"""

import asyncio
from collections.abc import Collection
from contextlib import suppress

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.apply import well_known
from knfleet.apply.act.refusals import reason_of, refusal
from knfleet.apply.change_set import FailureKind, ObjectFailure
from knfleet.apply.desired import crd_of
from knfleet.apply.manifest_fields import items, part
from knfleet.apply.plan.steps import ApplyStep, StepAction
from knfleet.apply.refs import CRD, JOB, NAMESPACE, SERVICE, Ref
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, KubeError, NotFound
from knfleet.view.plan.inherited import without_inherited

BINDINGS = frozenset({"ClusterRoleBinding", "RoleBinding"})
HEALTH_PORT = "healthCheckNodePort"
CHOSEN = "(chosen by the cluster)"
"""In place of a port that the server picks: in a dry run it picks another than later."""
ADOPT_TRIES = 8
"""How often an object is tried that is written by others meanwhile, as Deployments in a rollout."""


class DryRun(Struct, frozen=True):
    """One object before, and as it would be after."""

    step: ApplyStep
    before: Object | None = None
    """None when it is not there."""
    after: Object | None = None
    """None when the server says no."""
    failure: ObjectFailure | None = None
    is_recreated: bool = False
    """Whether it would be deleted and made anew, since it cannot be changed."""

    @property
    def ref(self) -> Ref:
        """Which object it is."""
        return self.step.desired.ref


class PlannedObjects(Struct, frozen=True):
    """What the same plan brings, so that it cannot be there yet."""

    created: frozenset[Ref]
    definitions: frozenset[Ref]
    """CRDs that are made or changed."""
    namespaces: frozenset[str]


async def tried(client: Client, steps: Collection[ApplyStep], home: str) -> list[DryRun]:
    """What would become of objects; `home` is a namespace that is made if it is not there."""
    refs = frozenset(step.desired.ref for step in steps)
    created = frozenset(step.desired.ref for step in steps if step.verdict == StepAction.CREATE)
    coming = PlannedObjects(
        created,
        frozenset(ref for ref in refs if ref.group_kind == CRD),
        frozenset(ref.name for ref in created if ref.group_kind == NAMESPACE) | {home},
    )
    return list(await asyncio.gather(*(one(client, step, coming) for step in steps)))


async def one(client: Client, step: ApplyStep, coming: PlannedObjects) -> DryRun:
    """What would become of one object."""
    desired, manifest = step.desired, step.manifest
    is_adopted = step.verdict == StepAction.ADOPT
    if step.verdict == StepAction.CREATE and waits(step, coming.created):
        return DryRun(step, None, manifest)
    before: Object | None = None
    try:
        if step.verdict != StepAction.CREATE:
            before = await client.get(desired.resource, desired.ref.name, desired.ref.namespace)
        after = await (adopted(client, step) if is_adopted else applied(client, step))
    except KubeError as error:
        why = reason_of(error)
        if before is None and is_early(step, error, coming.namespaces):
            return DryRun(step, None, manifest)
        if why == FailureKind.IMMUTABLE and desired.ref.group_kind == JOB:
            return DryRun(step, before, manifest, is_recreated=True)
        if (
            why == FailureKind.INVALID
            and before is not None
            and crd_of(desired) in coming.definitions
        ):
            return DryRun(step, before, laid_over(before, manifest))
        return DryRun(step, before, failure=refusal(desired.ref, error))
    if desired.ref.group_kind == SERVICE:
        after = with_chosen(before or {}, after, manifest)
    return DryRun(step, before, after)


async def applied(client: Client, step: ApplyStep) -> Object:
    """An object as the server would make it of ours."""
    resource, manifest = step.desired.resource, step.manifest
    return await client.apply(resource, manifest, manager=well_known.MANAGER, dry_run=True)


async def adopted(client: Client, step: ApplyStep) -> Object:
    """The same for one that is taken over; its controllers may write it between two requests."""
    resource, ref = step.desired.resource, step.desired.ref
    for _ in range(ADOPT_TRIES):
        after = without_inherited(await applied(client, step))
        with suppress(Conflict):
            return await client.replace(resource, after, dry_run=True)
    raise Conflict(f"{ref} is written all the time; make the plan again when it is at rest")


def waits(step: ApplyStep, created: Collection[Ref]) -> bool:
    """Whether an object cannot be tried, because what it lives in is made by the same plan."""
    desired = step.desired
    namespace = Ref("", NAMESPACE.kind, "", desired.ref.namespace)
    is_homeless = bool(desired.ref.namespace) and namespace in created
    return is_homeless or (desired.ref.group_kind.is_custom and crd_of(desired) in created)


def is_early(step: ApplyStep, error: KubeError, made: Collection[str]) -> bool:
    """Whether the server says no only because something is not there that comes first."""
    why, ref = reason_of(error), step.desired.ref
    if why == FailureKind.NO_NAMESPACE:
        return ref.namespace in made
    # Rights cannot be compared with a role that is not there yet.
    return why == FailureKind.NOT_ESTABLISHED or (
        ref.kind in BINDINGS and isinstance(error, NotFound)
    )


def with_chosen(before: Object, after: Object, manifest: Object) -> Object:
    """A Service without the ports that the server picks anew."""
    spec = dict(part(after, "spec"))
    known = {
        each.get("nodePort")
        for source in (before, manifest)
        for each in items(source, "spec", "ports")
    }
    if "ports" in spec:
        spec["ports"] = [
            {**each, "nodePort": CHOSEN} if each.get("nodePort", 0) not in {0, *known} else each
            for each in items(after, "spec", "ports")
        ]
    checked = {part(each, "spec").get(HEALTH_PORT) for each in (before, manifest)}
    if spec.get(HEALTH_PORT) not in {None, *checked}:
        spec[HEALTH_PORT] = CHOSEN
    return {**after, "spec": spec}


def laid_over(before: Object, manifest: Object) -> Object:
    """An object with the fields of a manifest, where the server cannot be asked to do it."""
    result = dict(before)
    for name, value in manifest.items():
        mine = result.get(name)
        if isinstance(mine, dict) and isinstance(value, dict):
            result[name] = laid_over(mine, value)  # pyright: ignore[reportUnknownArgumentType]
        else:
            result[name] = value
    return result
