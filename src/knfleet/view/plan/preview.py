"""What a custom resource asks for, beside what is on its target: read, and never written.

    rendering (as the operator renders) → desired objects → what is there → what must be done

The decisions are those of `apply`; only the acting is left out.
"""

from contextlib import suppress

from msgspec import Struct

from knfleet.api.core import CONFIG_MAPS, NAMESPACES
from knfleet.api.knative.resources import Knative
from knfleet.api.meta import Object
from knfleet.api.schema import decode
from knfleet.apply.applyset import ApplySet
from knfleet.apply.change_set import ObjectFailure, Outcome
from knfleet.apply.desired import NO_OWNERS, DesiredSet, OwnerReferences
from knfleet.apply.engine import Engine
from knfleet.apply.manifest_fields import part
from knfleet.apply.observe.metadata import ObservedObject
from knfleet.apply.plan.prune import PrunePlan, SetMember, losses, prune
from knfleet.apply.plan.steps import ApplyPlan
from knfleet.apply.refs import Ref
from knfleet.clusters.anchor import Anchors
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from knfleet.operator.desired_objects import Renderer, RenderResult
from knfleet.operator.eventing import EVENTING
from knfleet.operator.kinds import KnativeKind, profile_of, uid_of, was_installed
from knfleet.operator.serving import SERVING
from knfleet.operator.targets.spoke_targets import root_of
from knfleet.operator.targets.targets import inventory_key
from knfleet.release.upgrade_path import check_migration
from knfleet.render.pipeline import Need

KINDS = {kind.resource.kind: kind for kind in (SERVING, EVENTING)}


class PlanSubject(Struct, frozen=True):
    """A custom resource as it is to be, and as it is on the hub."""

    kind: KnativeKind
    manifest: Object
    """As it is to be, with the metadata and status that it has."""
    live: Object | None = None
    """None when there is none yet."""

    @property
    def installed(self) -> str:
        """The version that is installed; empty when none is."""
        return str(part(self.live or {}, "status").get("version") or "")

    @property
    def cr(self) -> Knative:
        """The custom resource as a value; raises `DecodeError`."""
        return decode(self.manifest, self.kind.type)


class PlanPreview(Struct, frozen=True):
    """What is wanted on a target, what is there, and what must be done."""

    rendering: RenderResult
    desired: DesiredSet
    seen: dict[Ref, ObservedObject]
    """Every object that was looked at: wanted ones, and those that are to go."""
    plan: ApplyPlan
    pruning: PrunePlan
    unseen: tuple[ObjectFailure, ...] = ()
    """What we were not let look at."""
    lost: tuple[Ref, ...] = ()
    """The workloads that would be deleted, if those are most of them."""


class PlanTarget:
    """A target that nothing is remembered of."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.rendering: RenderResult | None = None

    def generation_of(self, need: Need) -> int | None:
        """There is no live object to read."""
        return None


async def rendered(client: Client, subject: PlanSubject, renderer: Renderer) -> RenderResult:
    """The objects that a custom resource asks for, if it may become what it asks for.

    Raises `ReleaseError` (`NotEligible` among them), `RenderError` or `DecodeError`.
    """
    cr = subject.cr
    wanted = renderer.releases.target(cr)
    check_migration(subject.installed, wanted, kind=subject.kind.resource.kind)
    return await renderer.render(cr, PlanTarget(client))


async def prospect(
    client: Client, subject: PlanSubject, renderer: Renderer, *, hub_uid: str
) -> PlanPreview:
    """Look at a target with the eyes of the operator; raises also `AnchorError` and `KubeError`."""
    rendering = await rendered(client, subject, renderer)
    engine = await engine_for(client, subject, hub_uid)
    desired = await engine.desired(rendering.objects)
    seen, plan = await engine.observe(desired.objects.values())
    members, hidden = await members_of(engine, subject, desired)
    pruning = prune(members, desired.refs, engine.applyset)
    every = seen.objects | {each.ref: each.observed for each in members}
    failures = [each for each in hidden if isinstance(each, ObjectFailure)]
    unseen = (*seen.failures, *failures)
    lost = tuple(losses(members, pruning))
    return PlanPreview(rendering, desired, every, plan, pruning, unseen, lost)


async def engine_for(client: Client, subject: PlanSubject, hub_uid: str) -> Engine:
    """The engine of the operator, for its eyes alone."""
    manifest = subject.manifest
    if profile_of(manifest) is None:
        owners = OwnerReferences(subject.live) if subject.live is not None else NO_OWNERS
        return Engine(client, ApplySet(CONFIG_MAPS, inventory_key(manifest)), owners=owners)
    root = root_of(manifest, hub_uid)
    anchor = await Anchors(client).find(root)
    owners = NO_OWNERS
    if anchor is not None:
        with suppress(NotFound):
            owners = OwnerReferences(anchor, await client.get(NAMESPACES, root.owner.namespace))
    return Engine(client, ApplySet(CONFIG_MAPS, root.key), owners=owners)


async def members_of(
    engine: Engine, subject: PlanSubject, desired: DesiredSet
) -> tuple[list[SetMember], list[Outcome]]:
    """All objects that belong to the installation now."""
    parent = engine.parents.parent or await engine.parents.read()
    if parent.is_marked:
        return await engine.pruner.members(parent.inventory, desired.resources)
    if subject.live is not None and uid_of(subject.live) and was_installed(subject.live):
        return await engine.pruner.sweep()
    return [], []
