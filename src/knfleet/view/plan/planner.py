"""What would change on a target if a custom resource were so; nothing is written.

Functions decide (`changes_of`, `new_images`, `seal_of`); `Planner` asks hub and target. A custom
resource that cannot be planned has a plan that says why, so that it hides no other.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from knfleet.api.meta import HUB, Key, Object
from knfleet.api.schema import DecodeError
from knfleet.apply.act.delete import other_set
from knfleet.apply.act.refusals import reason_of
from knfleet.apply.change_set import FailureKind, ObjectFailure
from knfleet.apply.manifest_fields import part
from knfleet.apply.observe.metadata import ObservedObject
from knfleet.apply.plan.prune import PrunePlan
from knfleet.apply.plan.steps import ApplyStep, StepAction
from knfleet.apply.refs import Ref
from knfleet.clusters.anchor import AnchorError
from knfleet.clusters.preflight import kube_system_uid
from knfleet.clusters.provider_file import ProviderFile
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError, NotFound
from knfleet.operator.desired_objects import Renderer
from knfleet.operator.kinds import PAUSED, is_deleting, is_paused, profile_of, uid_of
from knfleet.operator.status.messages import denials_text, losses_text
from knfleet.operator.targets.target_claims import holder, same
from knfleet.release.errors import NotEligible, ReleaseError
from knfleet.release.version import parse
from knfleet.render.errors import RenderError
from knfleet.view.differences import FieldChange, differences
from knfleet.view.images.image_list import images
from knfleet.view.plan.dry_run import DryRun, tried
from knfleet.view.plan.model import (
    FleetPlan,
    ObjectChange,
    PlanBasis,
    PlannedAction,
    PlanProblem,
    ResourcePlan,
    ordered,
)
from knfleet.view.plan.preview import PlanPreview, PlanSubject, prospect
from knfleet.view.plan.subjects import patch_of
from knfleet.view.target_access import target_of

AT_ONCE = 8
"""So many targets are looked at together."""
HUB_SECONDS = 10.0
TAKEN_OVER = "taken over from the Knative Operator"
PLANNED_ERRORS = (ReleaseError, RenderError, DecodeError, AnchorError, KubeError)
"""What may stand in the way of one custom resource."""
encode = msgspec.json.Encoder(order="deterministic").encode


class HubSnapshot(Struct, frozen=True):
    """What is known of the hub, read once for many plans."""

    hub_uid: str
    resources: Mapping[str, Sequence[Object]]
    """All custom resources, by kind."""


class Planner:
    """Plans for the custom resources of one hub."""

    def __init__(self, hub: Client, providers: ProviderFile | None, renderer: Renderer) -> None:
        self.hub = hub
        self.providers = providers
        self.renderer = renderer

    async def plans(
        self, subjects: Sequence[PlanSubject], done: Callable[[int], None] = lambda _: None
    ) -> FleetPlan:
        """A plan for each custom resource, several at a time; `done` gets their number."""
        slots = asyncio.Semaphore(AT_ONCE)
        world = await self.world(subjects)
        count = 0

        async def one(subject: PlanSubject) -> ResourcePlan:
            nonlocal count
            async with slots:
                plan = await self.plan(subject, world)
            count += 1
            done(count)
            return plan

        return FleetPlan(tuple(await asyncio.gather(*map(one, subjects))))

    async def world(self, subjects: Iterable[PlanSubject]) -> HubSnapshot:
        """What all plans must know of the hub; raises `KubeError`."""
        kinds = {each.kind.resource.kind: each.kind.resource for each in subjects}
        lists = await asyncio.gather(*(self.hub.list(each) for each in kinds.values()))
        rivals = {kind: each.items for kind, each in zip(kinds, lists, strict=True)}
        return HubSnapshot(await kube_system_uid(self.hub, HUB_SECONDS), rivals)

    async def plan(self, subject: PlanSubject, world: HubSnapshot | None = None) -> ResourcePlan:
        """What would change for a custom resource; what is in the way is in the plan."""
        blank = outline(subject)
        try:
            return await self.complete(subject, blank, world or await self.world([subject]))
        except NotEligible as error:
            versions = self.renderer.releases.versions(subject.kind.type.component)
            text = f"{error}{detour(subject.installed, subject.cr.spec.version, versions)}"
            return msgspec.structs.replace(blank, problems=(PlanProblem(text),))
        except PLANNED_ERRORS as error:
            return msgspec.structs.replace(blank, problems=(PlanProblem(str(error)),))

    async def complete(
        self, subject: PlanSubject, blank: ResourcePlan, world: HubSnapshot
    ) -> ResourcePlan:
        """The plan, when nothing is in the way of all of it."""
        subject, refused = await self.admitted(subject)
        problems = [*refused, *objections(subject, world)]
        async with target_of(self.hub, subject.manifest, self.providers) as client:
            seen = await prospect(client, subject, self.renderer, hub_uid=world.hub_uid)
            trials = await tried(client, seen.plan.steps, blank.namespace)
        if seen.rendering.shortfall and seen.lost:
            problems.append(PlanProblem(losses_text(seen.rendering.shortfall, seen.lost)))
        problems += [PlanProblem(*failure_text(each)) for each in hindrances(seen, trials)]
        return msgspec.structs.replace(
            blank,
            wanted=seen.rendering.version,
            changes=changes_of(trials, seen.pruning),
            images=new_images(trials, seen.plan.kept),
            warnings=(*paused(subject), *seen.rendering.warnings),
            problems=tuple(problems),
            seal=seal_of(subject, seen),
        )

    async def admitted(self, subject: PlanSubject) -> tuple[PlanSubject, list[PlanProblem]]:
        """The custom resource as the hub would store it, or why it would not."""
        if subject.live is not None and subject.manifest is subject.live:
            return subject, []
        resource = subject.kind.resource
        try:
            if subject.live is None:
                stored = await self.hub.create(resource, subject.manifest, dry_run=True)
            else:
                key = Key.of(subject.live)
                stored = await self.hub.patch(resource, key, patch_of(subject), dry_run=True)
        except NotFound as error:
            if reason_of(error) != FailureKind.NO_NAMESPACE:
                raise
            namespace = subject.manifest["metadata"]["namespace"]
            text = f"the namespace {namespace} does not exist on the hub; create it first"
            return subject, [PlanProblem(text)]
        except KubeError as error:
            return subject, [PlanProblem(f"the hub does not take it: {error}")]
        if subject.live is None:
            # A dry run invents them.
            stored["metadata"] = {
                name: value
                for name, value in stored["metadata"].items()
                if name not in ("uid", "creationTimestamp")
            }
        return PlanSubject(subject.kind, stored, subject.live), []


def objections(subject: PlanSubject, world: HubSnapshot) -> list[PlanProblem]:
    """Why the operator would install nothing."""
    if subject.live is not None and is_deleting(subject.live):
        return [PlanProblem("it is being deleted; nothing is installed any more")]
    kind = subject.kind
    first = holder(
        dated(subject.manifest),
        world.resources.get(kind.resource.kind, ()),
        finalizer=kind.finalizer,
        claimed=frozenset(),
    )
    if same(first, subject.manifest):
        return []
    return [
        PlanProblem(
            f"{kind.resource.kind} {Key.of(first)} installs {kind.title} on this target"
            " already, and there can be only one"
        )
    ]


def outline(subject: PlanSubject) -> ResourcePlan:
    """A plan that says which custom resource it is about."""
    key = Key.of(subject.manifest)
    profile = profile_of(subject.manifest)
    return ResourcePlan(
        kind=subject.kind.resource.kind,
        namespace=key.namespace,
        name=key.name,
        target=HUB if profile is None else str(profile),
        installed=subject.installed,
        custom_resource=spec_changes(subject),
        is_new=subject.live is None,
    )


def spec_changes(subject: PlanSubject) -> tuple[FieldChange, ...]:
    """What is different on the hub; of a new custom resource everything is, which says nothing."""
    if subject.live is None:
        return ()
    live: Object = {"spec": part(subject.live, "spec")}
    return differences(live, {"spec": part(subject.manifest, "spec")})


def paused(subject: PlanSubject) -> tuple[str, ...]:
    """What to say of a custom resource that the operator leaves alone."""
    if not is_paused(subject.manifest):
        return ()
    return (f"the annotation {PAUSED} is true: the operator does none of this until it is removed",)


def dated(manifest: Object) -> Object:
    """A custom resource that is not there yet is younger than all others."""
    if uid_of(manifest):
        return manifest
    return {**manifest, "metadata": {**manifest["metadata"], "creationTimestamp": "9"}}


def changes_of(trials: Iterable[DryRun], pruning: PrunePlan) -> tuple[ObjectChange, ...]:
    """What would become of all objects; those that only get our marks are left out."""
    found = [ObjectChange(PlannedAction.DELETE, each.ref) for each in pruning.members]
    found += [ObjectChange(PlannedAction.RELEASE, each.ref) for each in pruning.released]
    for each in trials:
        if each.failure is not None:
            continue
        fields = differences(each.before, each.after) if each.before is not None else ()
        note = TAKEN_OVER if each.step.verdict == StepAction.ADOPT else ""
        if each.is_recreated:
            found.append(ObjectChange(PlannedAction.RECREATE, each.ref, note=note))
        elif each.before is None:
            found.append(ObjectChange(PlannedAction.CREATE, each.ref, note=note))
        elif fields or note:
            found.append(ObjectChange(PlannedAction.CHANGE, each.ref, fields, note))
    return ordered(found)


def new_images(trials: Sequence[DryRun], kept: Iterable[ApplyStep]) -> tuple[str, ...]:
    """Images that no object of the installation has there yet."""
    present = images(each.desired.manifest for each in kept)
    before = images(each.before for each in trials if each.before is not None)
    after = images(each.after for each in trials if each.after is not None)
    return tuple(sorted(after - before - present))


def hindrances(seen: PlanPreview, trials: Iterable[DryRun]) -> list[ObjectFailure]:
    """All that the operator could not do, as far as one can know."""
    found = [*seen.desired.rejected, *seen.unseen]
    for step in seen.plan.stopped:
        assert step.observed is not None
        if step.verdict == StepAction.REFUSE:
            found.append(
                ObjectFailure(step.desired.ref, FailureKind.OTHER_SET, other_set(step.observed))
            )
        else:
            text = "it is being deleted; it is made anew when it is gone"
            found.append(ObjectFailure(step.desired.ref, FailureKind.CONFLICT, text))
    return [*found, *(each.failure for each in trials if each.failure is not None)]


def failure_text(failure: ObjectFailure) -> tuple[str, Ref]:
    """A failure in words: of a missing right, what to grant."""
    if not failure.denials:
        return failure.message, failure.ref
    rights = denials_text(failure.denials)
    return f"not allowed to {rights}; grant this on that cluster to who connects", failure.ref


def detour(installed: str, wanted: str, versions: Sequence[str]) -> str:
    """Which of the versions, newest first, to take on a way that is too long for one step."""
    old, new = parse(installed), parse(wanted)
    if old is None or new is None or (old.major, old.minor) == (new.major, new.minor):
        return ""
    step = 1 if (new.major, new.minor) > (old.major, old.minor) else -1
    for each in versions:
        version = parse(each)
        if version is not None and (version.major, version.minor) == (old.major, old.minor + step):
            return f"; go to {each} first, one minor version at a time"
    return "; go one minor version at a time"


def seal_of(subject: PlanSubject, seen: PlanPreview) -> PlanBasis:
    """The world that a plan is made for."""
    wanted = sorted((str(ref), each.digest) for ref, each in seen.desired.objects.items())
    return PlanBasis(
        custom_resource=resource_stamp(subject.live),
        desired=hashlib.sha256(encode(wanted)).hexdigest()[:32],
        objects={name_of(ref): stamp(each) for ref, each in sorted(seen.seen.items())},
    )


def resource_stamp(live: Object | None) -> str:
    """What tells whether a custom resource asks for something else than before."""
    if live is None:
        return ""
    meta = part(live, "metadata")
    return f"{meta.get('uid', '')}:{meta.get('generation', 0)}"


def name_of(ref: Ref) -> str:
    """An object as a text that no other has."""
    return f"{ref.group_kind} {ref.key}"


def stamp(observed: ObservedObject) -> str:
    """What tells whether a client wrote an object; its status does not count."""
    entries = [
        {**entry, "apiVersion": ""} for entry in observed.managed if not entry.get("subresource")
    ]
    return hashlib.sha256(encode([observed.uid, entries])).hexdigest()[:16]
