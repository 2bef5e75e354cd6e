"""Reconciles ManifestWorkReplicaSets: works for the clusters of Placements, rolled out in order."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from msgspec import Struct

from knfleet.api.cluster.placement import SATISFIED
from knfleet.api.conditions import put
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import HUB, Key, Object, Request
from knfleet.api.moments import as_moment
from knfleet.api.schema import decode
from knfleet.api.work.manifestwork import WORKS
from knfleet.api.work.replicaset import (
    REPLICA_SET_FINALIZER,
    REPLICA_SET_LABEL,
    REPLICA_SETS,
    ROLLOUT_PAUSED,
    TEMPLATE_VARIABLES,
    ManifestWorkReplicaSet,
    PlacementReference,
)
from knfleet.apply.manifest_fields import items, part
from knfleet.hub.context import HubContext, plain
from knfleet.hub.hub_controller import HubController, Watch
from knfleet.hub.placement.decisions.decision_groups import agrees, decided_groups
from knfleet.hub.placement.decisions.decision_objects import placements_of
from knfleet.hub.rollout.rollout_model import Progress, State, Strategy
from knfleet.hub.rollout.strategy import WrongStrategy, strategy_of
from knfleet.hub.work.replicasets import replica_status
from knfleet.hub.work.replicasets.replica_plan import (
    PlacementSource,
    ReplicaSetPlan,
    ReplicaSetView,
    plan_replicas,
)
from knfleet.hub.work.replicasets.replica_state import ReplicaWork, replica_work
from knfleet.hub.work.replicasets.replica_template import (
    ClusterVariables,
    MissingVariable,
    Template,
    WorkOrder,
    label_value,
    owner_of,
    work_name,
)
from knfleet.hub.work.replicasets.rights import RULES
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.errors import ApiError, Conflict, NotFound
from knfleet.runtime.controller import Result

WRITERS = 16
"""How many works of one replica set are written at once."""
RETRY_SECONDS = 30.0
"""When a work that could not be written is tried again."""
UNSEEN_SECONDS = 60.0
"""For how long a work counts as written that the cache does not show."""
CONFLICT_SECONDS = 0.1


class Attempt(Struct, frozen=True):
    """A work that was written, or could not be."""

    hash: str
    at: datetime
    problem: str = ""


class ReplicaSetController:
    """Reconciles replica sets."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.client = context.client
        self.informers = context.informers
        self.replica_sets = self.informers.shared(REPLICA_SETS)
        self.templates: dict[Key, tuple[str, Template]] = {}
        self.attempts: dict[Key, dict[str, Attempt]] = {}
        self.generations: dict[Key, dict[Key, int]] = {}
        """By replica set and work: the generation of the work as it was written."""

    def watches(self) -> Sequence[Watch]:
        """Replica sets, their works, Placements with their decisions, and clusters."""
        return (
            Watch(self.replica_sets.on_change, self.by_replica_set),
            Watch(self.informers.works.on_change, self.by_work),
            Watch(self.informers.placements.on_change, self.by_placement),
            Watch(self.informers.decisions.on_change, self.by_decision),
            Watch(self.informers.clusters.on_change, self.by_cluster),
        )

    def by_replica_set(self, change: StoreChange) -> Iterable[Request]:
        """A replica set changed; its own status is ignored."""
        old, new = change.old, change.new
        if old is None or new is None or identity(old) != identity(new):
            yield Request(HUB, change.key)

    def by_work(self, change: StoreChange) -> Iterable[Request]:
        """A work of a replica set changed."""
        for each in (change.new, change.old):
            if each is not None and (owners := owner_of(each)):
                namespace, _, name = owners[0].partition("/")
                yield Request(HUB, Key(namespace, name))
                return

    def by_placement(self, change: StoreChange) -> Iterable[Request]:
        """A Placement changed."""
        yield from self.referring(change.key)

    def by_decision(self, change: StoreChange) -> Iterable[Request]:
        """Decisions changed."""
        for each in (change.old, change.new):
            for owner in placements_of(each) if each is not None else ():
                namespace, _, name = owner.partition("/")
                yield from self.referring(Key(namespace, name))

    def referring(self, placement: Key) -> Iterable[Request]:
        """The replica sets that refer to a Placement."""
        for key, manifest in list(self.replica_sets.store.objects.items()):
            if key.namespace == placement.namespace and placement.name in {
                each.get("name") for each in items(manifest, "spec", "placementRefs")
            }:
                yield Request(HUB, key)

    def by_cluster(self, change: StoreChange) -> Iterable[Request]:
        """What templates can ask for changed, or a cluster can have works now."""
        old, new = (None if each is None else readable(each) for each in (change.old, change.new))
        if old == new:
            return
        for key, manifest in list(self.replica_sets.store.objects.items()):
            tried = self.attempts.get(key, {}).get(change.key.name)
            if has_variables(manifest) or (tried is not None and tried.problem):
                yield Request(HUB, key)

    async def reconcile(self, request: Request) -> Result:
        """Bring the works of one replica set up to date."""
        key = request.key
        manifest = self.replica_sets.get(key)
        if manifest is None:
            self.templates.pop(key, None)
            self.attempts.pop(key, None)
            self.generations.pop(key, None)
            return Result.never()
        replica_set = decode(manifest, ManifestWorkReplicaSet)
        try:
            if replica_set.metadata.deleting:
                return await self.delete(replica_set)
            if REPLICA_SET_FINALIZER not in replica_set.metadata.finalizers:
                finalizers = [*replica_set.metadata.finalizers, REPLICA_SET_FINALIZER]
                await self.put_finalizers(replica_set, finalizers)
                return Result.never()
            return await self.roll_out(replica_set, manifest)
        except Conflict:
            return Result.after(CONFLICT_SECONDS)
        except NotFound:
            return Result.never()

    async def put_finalizers(
        self, replica_set: ManifestWorkReplicaSet, finalizers: list[str]
    ) -> None:
        """Set the finalizers of a replica set in the state that is known."""
        version = replica_set.metadata.resource_version
        patch: Object = {"metadata": {"resourceVersion": version, "finalizers": finalizers}}
        await self.client.patch(REPLICA_SETS, replica_set.key, patch)

    async def delete(self, replica_set: ManifestWorkReplicaSet) -> Result:
        """Delete all works; with Foreground, wait until they are gone."""
        if REPLICA_SET_FINALIZER not in replica_set.metadata.finalizers:
            return Result.never()
        labels = f"{REPLICA_SET_LABEL}={label_value(replica_set.key)}"
        # Of the server, since the cache may not show yet what was written last.
        found = (await self.client.list(WORKS, labels=labels, metadata_only=True)).items
        own = [each for each in found if owner_of(each) == [str(replica_set.key)]]
        await self.delete_works(
            [
                (Key.of(each), each["metadata"]["uid"])
                for each in own
                if not each["metadata"].get("deletionTimestamp")
            ]
        )
        if own and replica_set.spec.cascade_deletion_policy == "Foreground":
            return Result.after(RETRY_SECONDS)
        left = [each for each in replica_set.metadata.finalizers if each != REPLICA_SET_FINALIZER]
        await self.put_finalizers(replica_set, left)
        return Result.never()

    async def delete_works(self, works: Sequence[tuple[Key, str]]) -> None:
        """Delete works, so many at a time."""
        slots = asyncio.Semaphore(WRITERS)

        async def delete(key: Key, uid: str) -> None:
            async with slots:
                with suppress(NotFound, Conflict):
                    await self.client.delete(WORKS, key, uid=uid)

        await asyncio.gather(*(delete(key, uid) for key, uid in works))

    async def roll_out(self, replica_set: ManifestWorkReplicaSet, manifest: Object) -> Result:
        """Write and delete works as far as the rollout allows, and say how far it is."""
        now = self.context.now()
        template = self.template_of(manifest)
        view = self.view(replica_set, template, now)
        plan = plan_replicas(view, now)
        await self.write_works(replica_set, template, plan, view)
        await self.delete_works(
            [(each.key, each.metadata.uid) for each in plan.deleted if not each.metadata.deleting]
        )
        problems = {**view.unfit, **self.problems(replica_set.key)}
        await self.write_status(replica_set, manifest, plan, view, problems)
        moments = [] if plan.next_look is None else [plan.next_look]
        if problems:
            moments.append(now + timedelta(seconds=RETRY_SECONDS))
        if not moments:
            return Result.never()
        return Result.after((min(moments) - self.context.now()).total_seconds())

    def template_of(self, manifest: Object) -> Template:
        """The template of a replica set, prepared once for each generation."""
        key, meta = Key.of(manifest), manifest["metadata"]
        version = f"{meta.get('uid')}/{meta.get('generation')}/{has_variables(manifest)}"
        known = self.templates.get(key)
        if known is None or known[0] != version:
            spec = part(manifest, "spec", "manifestWorkTemplate")
            known = (version, Template(spec, has_variables=has_variables(manifest)))
            self.templates[key] = known
        return known[1]

    def view(
        self, replica_set: ManifestWorkReplicaSet, template: Template, now: datetime
    ) -> ReplicaSetView:
        """What is known of a replica set."""
        placements = tuple(
            self.source(replica_set, reference) for reference in replica_set.spec.placement_refs
        )
        hashes: dict[str, str] = {}
        unfit: dict[str, str] = {}
        for name in {cluster for each in placements for cluster in each.clusters}:
            try:
                hashes[name] = template.hash_for(self.variables_of(name))
            except MissingVariable as error:
                unfit[name] = str(error)
        attempts = self.attempts.setdefault(replica_set.key, {})
        written: dict[str, Progress] = {}
        for name, attempt in list(attempts.items()):
            limit = RETRY_SECONDS if attempt.problem else UNSEEN_SECONDS
            if attempt.hash != hashes.get(name) or now >= attempt.at + timedelta(seconds=limit):
                del attempts[name]
            elif attempt.problem:
                written[name] = Progress(State.FAILED, attempt.at)
            else:
                written[name] = Progress(State.PROGRESSING, attempt.at)
        found = self.informers.works.by_index("replicaset", str(replica_set.key))
        works = tuple(replica_work(each) for each in found)
        return ReplicaSetView(
            placements=placements,
            works=works,
            hashes=hashes,
            unfit=unfit,
            written=written,
            edited=self.edited(replica_set.key, works),
            work_name=work_name(replica_set.key),
            has_progress_rule=template.has_progress_rule,
            paused=replica_set.metadata.annotations.get(ROLLOUT_PAUSED) == "true",
        )

    def edited(self, key: Key, works: Sequence[ReplicaWork]) -> frozenset[str]:
        """Clusters whose work another client changed since it was written or first seen here."""
        known = self.generations.setdefault(key, {})
        for each in works:
            known.setdefault(each.key, each.metadata.generation)
        return frozenset(
            each.cluster for each in works if each.metadata.generation > known[each.key]
        )

    def source(
        self, replica_set: ManifestWorkReplicaSet, reference: PlacementReference
    ) -> PlacementSource:
        """What is known of a Placement that a replica set refers to."""
        key = Key(replica_set.key.namespace, reference.name)
        placement = self.informers.placements.get(key)
        decisions = self.informers.decisions.by_index("placement", str(key))
        groups = decided_groups(decisions)
        size = part(placement or {}, "spec", "decisionStrategy", "groupStrategy").get(
            "clustersPerDecisionGroup", "100%"
        )
        strategy: Strategy | None = None
        problem = ""
        try:
            strategy = strategy_of(reference.rollout_strategy, size)
        except WrongStrategy as error:
            problem = str(error)
        return PlacementSource(
            name=reference.name,
            exists=placement is not None and not placement["metadata"].get("deletionTimestamp"),
            has_decisions=bool(decisions),
            groups=groups,
            is_complete=placement is not None and agrees(placement, groups),
            empty_since=unsatisfied_since(placement or {}),
            strategy=strategy,
            problem=problem,
        )

    def variables_of(self, cluster: str) -> ClusterVariables:
        """What a template can ask for of a cluster."""
        labels, claims = readable(self.informers.clusters.get(Key("", cluster)) or {})
        return ClusterVariables(cluster, labels, claims)

    def is_of_others(self, owner: Key, work: Key) -> bool:
        """Whether there is a work of this name that a replica set did not make."""
        existing = self.informers.works.get(work)
        return existing is not None and str(owner) not in owner_of(existing)

    async def write_works(
        self,
        replica_set: ManifestWorkReplicaSet,
        template: Template,
        plan: ReplicaSetPlan,
        view: ReplicaSetView,
    ) -> None:
        """Write the works that the rollout releases; what fails concerns one cluster alone."""
        slots = asyncio.Semaphore(WRITERS)
        attempts = self.attempts.setdefault(replica_set.key, {})
        generations = self.generations.setdefault(replica_set.key, {})

        async def write(cluster: str, placement: str, name: str) -> None:
            now = self.context.now()
            if self.is_of_others(replica_set.key, Key(cluster, name)):
                problem = (
                    f"ManifestWork {cluster}/{name} exists and is not of this replica set; delete"
                    " it, or give the replica set another name"
                )
                attempts[cluster] = Attempt(view.hashes[cluster], now, problem)
                return
            order = WorkOrder(
                owner=replica_set.key,
                labels=replica_set.metadata.labels,
                placement=placement,
                cluster=cluster,
                name=name,
                hash=view.hashes[cluster],
                started=timestamp(now),
                spec=template.spec_for(self.variables_of(cluster)),
            )
            async with slots:
                try:
                    made = await self.client.apply(WORKS, order.manifest(), metadata_only=True)
                except ApiError as error:
                    attempts[cluster] = Attempt(order.hash, now, str(error))
                else:
                    attempts[cluster] = Attempt(order.hash, now)
                    generations[Key(cluster, name)] = made["metadata"]["generation"]

        await asyncio.gather(
            *(
                write(
                    cluster,
                    each.placement.name,
                    each.works[cluster].metadata.name if cluster in each.works else view.work_name,
                )
                for each in plan.placements
                for cluster in each.plan.act
            )
        )

    def problems(self, key: Key) -> dict[str, str]:
        """Clusters whose work could not be written, and why."""
        return {
            name: attempt.problem
            for name, attempt in self.attempts.get(key, {}).items()
            if attempt.problem
        }

    async def write_status(
        self,
        replica_set: ManifestWorkReplicaSet,
        manifest: Object,
        plan: ReplicaSetPlan,
        view: ReplicaSetView,
        problems: dict[str, str],
    ) -> None:
        """Write how far the rollout is, if that is news."""
        now = self.context.now()
        conditions = list(replica_set.status.conditions)
        for condition in replica_status.conditions(replica_set, plan, problems):
            conditions = put(conditions, condition, now)
        summaries = replica_status.placement_summaries(plan, view.hashes)
        status = {
            **replica_status.status_fields(summaries, len(plan.kept)),
            "conditions": plain(conditions),
        }
        old = part(manifest, "status")
        if {**old, **status} != old:
            await self.client.patch(
                REPLICA_SETS, replica_set.key, {"status": status}, subresource="status"
            )


def identity(manifest: Object) -> tuple[object, ...]:
    """What of a replica set leads to other works."""
    meta = manifest["metadata"]
    return (
        meta.get("uid"),
        meta.get("generation"),
        meta.get("deletionTimestamp"),
        meta.get("finalizers"),
        meta.get("labels"),
        part(meta, "annotations").get(ROLLOUT_PAUSED),
        has_variables(manifest),
    )


def has_variables(manifest: Object) -> bool:
    """Whether variables in the template are replaced."""
    return part(manifest["metadata"], "annotations").get(TEMPLATE_VARIABLES) == "true"


def readable(cluster: Object) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and claims of a cluster."""
    claims = items(cluster, "status", "clusterClaims")
    return part(cluster, "metadata", "labels"), {each["name"]: each["value"] for each in claims}


def unsatisfied_since(placement: Object) -> datetime | None:
    """Since when a Placement is not satisfied; None when it is."""
    for each in items(placement, "status", "conditions"):
        if each.get("type") == SATISFIED and each.get("status") == "False":
            return as_moment(each.get("lastTransitionTime") or "")
    return None


CONTROLLER = HubController("manifestworkreplicaset", ReplicaSetController, RULES)
