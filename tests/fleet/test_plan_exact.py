"""A plan says exactly what an apply then changes, on a real cluster with real releases."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from knfleet.api.core import CLUSTER_ROLES, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.schema import decode
from knfleet.apply.applyset import ApplySet
from knfleet.apply.manifest_fields import items, part
from knfleet.apply.refs import GroupKind, Ref
from knfleet.kube.errors import NotFound
from knfleet.kube.yaml import is_mapping
from knfleet.operator.desired_objects import Renderer
from knfleet.operator.installation import Installation
from knfleet.operator.targets.targets import LocalTargets
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.releases import Releases
from knfleet.view.differences import differences
from knfleet.view.images.image_list import images
from knfleet.view.plan.dry_run import CHOSEN
from knfleet.view.plan.model import ObjectChange, PlannedAction, ResourcePlan, ordered
from knfleet.view.plan.planner import Planner
from knfleet.view.plan.preview import KINDS, PlanSubject
from knfleet.view.plan.subjects import as_of
from testbed.operators import HOME, Hub
from testbed.waiting import until
from tests.support import edits

pytestmark = pytest.mark.full
SEED = int(os.environ.get("KNFLEET_TEST_SEED", "9"))
Objects = dict[Ref, Object]


class Site:
    """One custom resource on a hub: planned by the command's code, applied by the operator's."""

    def __init__(self, hub: Hub, resource: Resource, renderer: Renderer) -> None:
        self.client = hub.client
        self.resource = resource
        self.kind = KINDS[resource.kind]
        self.renderer = renderer
        self.planner = Planner(hub.client, None, renderer)
        self.installation: Installation | None = None

    @property
    def key(self) -> Key:
        """The custom resource."""
        return Key(HOME[self.resource], "knative")

    async def live(self) -> Object:
        """The custom resource as it is."""
        return await self.client.get(self.resource, self.key.name, self.key.namespace)

    async def plan(self, spec: edits.Spec | None = None) -> ResourcePlan:
        """What would change with another spec; without one, with the spec that there is."""
        live = await self.live()
        wanted = live if spec is None else as_of(live, {"metadata": {}, "spec": spec})
        return await self.planner.plan(PlanSubject(self.kind, wanted, live))

    async def apply(self) -> None:
        """Make the cluster so, by the steps of the operator's pass, until nothing is left to do."""
        live = await self.live()
        target = await LocalTargets(self.client).resolve(live)
        if self.installation is None:
            self.installation = Installation(target, lambda: None, lambda _: None)
        installation = self.installation
        rendering = await self.renderer.render(decode(live, self.kind.type), installation)

        async def settled() -> bool:
            changes = await installation.apply(rendering.objects)
            assert not changes.failures, changes.failures
            return changes.settled

        await until(settled, "everything is applied")
        pruned = await installation.prune(rendering.objects)
        assert pruned.settled, pruned

    async def objects(self) -> Objects:
        """All members of the set, whole."""
        assert self.installation is not None
        applyset: ApplySet = self.installation.applyset
        parent = await self.installation.engine.parents.read()
        served = await self.client.discovery.resources()
        resources = {GroupKind.of(each.resource): each.resource for each in served}
        kinds = [resources[kind] for kind in parent.inventory.kinds if kind in resources]
        lists = await asyncio.gather(
            *(self.client.list(each, labels=applyset.selector) for each in kinds)
        )
        return {Ref.of(each): each for listing in lists for each in listing.items}

    async def is_trusted(self) -> bool:
        """Whether webhooks, once they run, have written their authority into configurations."""
        assert self.installation is not None
        selector = self.installation.applyset.selector
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            for found in (await self.client.list(resource, labels=selector)).items:
                for webhook in items(found, "webhooks"):
                    if not part(webhook, "clientConfig").get("caBundle"):
                        return False
        return True

    async def exists(self, ref: Ref) -> bool:
        """Whether an object is there, member or not."""
        served = await self.client.discovery.resources()
        resources = {GroupKind.of(each.resource): each.resource for each in served}
        try:
            await self.client.get(resources[ref.group_kind], ref.name, ref.namespace)
        except NotFound:
            return False
        return True


async def installed(
    hub: Hub, resource: Resource, spec: edits.Spec, *, root: Path, cache: Path
) -> Site:
    """A custom resource whose installation has come to rest."""
    renderer = Renderer(Releases(root, cache=ParsedCache(cache)))
    site = Site(hub, resource, renderer)
    await hub.create(resource, **spec)
    await site.apply()
    last: Objects = {}

    async def at_rest() -> bool:
        nonlocal last
        before, last = last, await site.objects()
        return bool(before) and not changed(before, last)

    await until(site.is_trusted, "webhooks have written their certificate authority")
    await until(at_rest, "nobody writes any more")
    return site


def changed(
    before: Objects, after: Objects, plan: ResourcePlan | None = None
) -> list[ObjectChange]:
    """What really became of all objects."""
    found: list[ObjectChange] = []
    for ref in sorted(before.keys() | after.keys()):
        one, other = before.get(ref), after.get(ref)
        if other is None:
            found.append(ObjectChange(PlannedAction.DELETE, ref))
        elif one is None:
            found.append(ObjectChange(PlannedAction.CREATE, ref))
        elif one["metadata"]["uid"] != other["metadata"]["uid"]:
            found.append(ObjectChange(PlannedAction.RECREATE, ref))
        elif fields := differences(without_filled(one), without_filled(other)):
            found.append(ObjectChange(PlannedAction.CHANGE, ref, fields))
    return list(ordered(found)) if plan is None else with_chosen(ordered(found), plan)


def without_filled(manifest: Object) -> Object:
    """An object without what the cluster fills in because others changed: aggregated rules."""
    if manifest["kind"] == CLUSTER_ROLES.kind and manifest.get("aggregationRule"):
        return {name: value for name, value in manifest.items() if name != "rules"}
    return manifest


def with_chosen(changes: tuple[ObjectChange, ...], plan: ResourcePlan) -> list[ObjectChange]:
    """Changes in which ports that the cluster was said to choose are not told."""
    chosen = {
        (each.ref, field.field)
        for each in plan.changes
        for field in each.fields
        if CHOSEN in str(field.after)
    }
    return [
        msgspec.structs.replace(
            each,
            fields=tuple(
                msgspec.structs.replace(field, after=blurred(field.after))
                if (each.ref, field.field) in chosen
                else field
                for field in each.fields
            ),
        )
        for each in changes
    ]


def blurred(value: object) -> object:
    """A port, or a list item with one, as the plan has it."""
    return {**value, "nodePort": CHOSEN} if is_mapping(value) else CHOSEN


async def check(site: Site, specs: list[tuple[str, edits.Spec]]) -> int:
    """Plan, carry out and compare each edit; how many of them changed something."""
    effective = 0
    before = await site.objects()
    for number, (name, spec) in enumerate(specs):
        plan = await site.plan(spec)
        assert plan.problems == (), (number, name, plan.problems)
        await site.client.patch(
            site.resource, site.key, [{"op": "add", "path": "/spec", "value": spec}]
        )
        await site.apply()
        after = await site.objects()
        actual = changed(before, after, plan)

        said = [each for each in plan.changes if each.act != PlannedAction.RELEASE]
        released = [each.ref for each in plan.by(PlannedAction.RELEASE)]
        assert said == [each for each in actual if each.ref not in released], (number, name, spec)
        for ref in released:
            assert ref not in after
            assert await site.exists(ref)
        new = images(after.values()) - images(before.values())
        assert new <= set(plan.images) <= images(after.values()), (number, name)
        effective += bool(plan.changes)
        before = after
    return effective


async def test_a_plan_is_what_apply_then_changes(
    knative_hub: Hub, bundle_root: Path, tmp_path: Path
) -> None:
    """Twenty random edits of real releases: Serving with its ingress, and Eventing.

    At rest, a plan is empty.
    """
    start: edits.Spec = {"version": "1.23", "ingress": {"kourier": {"enabled": True}}}
    serving, eventing = await asyncio.gather(
        installed(knative_hub, SERVINGS, start, root=bundle_root, cache=tmp_path),
        installed(knative_hub, EVENTINGS, {"version": "1.23"}, root=bundle_root, cache=tmp_path),
    )
    counts = await asyncio.gather(
        check(serving, edits.edits(SEED, start, edits.SERVING, 13)),
        check(eventing, edits.edits(SEED, {"version": "1.23"}, edits.EVENTING, 7)),
    )

    assert sum(counts) >= 13
    assert [(await each.plan()).is_empty for each in (serving, eventing)] == [True, True]


def test_every_sort_of_edit_is_tried() -> None:
    """The edits are random, and cover all sections."""
    found = edits.edits(SEED, {"version": "1.23"}, edits.SERVING, 13)

    assert len({name for name, _ in found}) == len(edits.SERVING)
