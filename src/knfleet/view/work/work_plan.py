"""What `create work --overwrite` would change, object by object, before anything is written.

Wanted objects are compared with the works on the hub. Where the cluster is reached by its
ClusterProfile, its API server is asked besides what it would make of them (server-side apply as a
dry run): that also shows what was changed on the cluster itself, and what it would refuse.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct

from knfleet.api.cluster.managedcluster import CLUSTER_NAME_LABEL
from knfleet.api.inventory import PROFILES
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.work.manifestwork import DEFAULT_FIELD_MANAGER
from knfleet.apply.act.refusals import reason_of
from knfleet.apply.change_set import FailureKind
from knfleet.apply.manifest_fields import items, part
from knfleet.apply.refs import CRD, NAMESPACE, Ref
from knfleet.clusters.connection_state import cluster_name
from knfleet.clusters.provider_file import ProviderFile
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import ApiError, Forbidden, KubeError, NotFound
from knfleet.view.differences import differences
from knfleet.view.plan.model import ObjectChange, PlannedAction, PlanProblem, ordered
from knfleet.view.target_access import OPTIONS, way_to
from knfleet.workflows.work.work_delivery import (
    WorkError,
    check_cluster,
    check_owner,
    manifests_in,
    works_of_set,
)
from knfleet.workflows.work.work_split import split

UNCHANGED = ("CreateOnly", "ReadOnly")
"""Strategies with which an object that is there is left as it is."""
SPOKE_SECONDS = 30.0


class WorkPlan(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What would change for one cluster."""

    name: str
    cluster: str
    works: tuple[str, ...] = ()
    """The works that hold the objects afterwards."""
    is_new: bool = False
    compared_with: Literal["cluster", "hub"] = "hub"
    changes: tuple[ObjectChange, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[PlanProblem, ...] = ()


class WorkPlans(Struct, frozen=True):
    """What would change for some clusters."""

    plans: tuple[WorkPlan, ...]

    @property
    def exit_code(self) -> int:
        """1 when something is in the way, 2 when something would change, else 0."""
        if any(plan.problems for plan in self.plans):
            return 1
        return 2 if any(plan.changes or plan.is_new for plan in self.plans) else 0


class Comparison(Struct, frozen=True):
    """What one object would become: a change, a problem, a warning, or nothing."""

    change: ObjectChange | None = None
    problem: PlanProblem | None = None
    warning: str = ""


async def work_plan(
    hub: Client,
    name: str,
    manifests: list[Object],
    cluster: str,
    providers: ProviderFile | None,
) -> WorkPlan:
    """What would change for one cluster; never raises what a person can put right."""
    try:
        await check_cluster(hub, cluster)
        works = await works_of_set(hub, name, cluster)
        for work in works.values():
            check_owner(work)
        parts = split(name, manifests, manifests_in(works))
    except WorkError as error:
        return WorkPlan(name=name, cluster=cluster, problems=(PlanProblem(str(error)),))
    old = {
        Ref.of(each): each
        for work in works.values()
        for each in items(work, "spec", "workload", "manifests")
        if part(each, "metadata").get("name")
    }
    async with spoke_of(hub, cluster, providers) as (spoke, note):
        found = await compare_all(manifests, old, list(works.values()), spoke)
    wanted = {Ref.of(each) for each in manifests}
    removed = [removal(ref, works.values()) for ref in old if ref not in wanted]
    warnings = dict.fromkeys([note, *(each.warning for each in found)])
    return WorkPlan(
        name=name,
        cluster=cluster,
        works=tuple(each.name for each in parts),
        is_new=not works,
        compared_with="hub" if spoke is None else "cluster",
        changes=ordered([*removed, *(each.change for each in found if each.change)]),
        warnings=tuple(filter(None, warnings)),
        problems=tuple(each.problem for each in found if each.problem),
    )


def removal(ref: Ref, works: Iterable[Object]) -> ObjectChange:
    """What becomes of an object that is no longer wanted."""
    policies = {
        str(part(work, "spec", "deleteOption").get("propagationPolicy", "")) for work in works
    }
    if policies == {"Orphan"}:
        return ObjectChange(PlannedAction.RELEASE, ref, note="the work orphans what it leaves")
    rules = "unless an orphaning rule keeps it" if "SelectivelyOrphan" in policies else ""
    return ObjectChange(PlannedAction.DELETE, ref, note=rules)


@asynccontextmanager
async def spoke_of(
    hub: Client, cluster: str, providers: ProviderFile | None
) -> AsyncGenerator[tuple[Client | None, str]]:
    """A client of a cluster by its ClusterProfile, or why there is none."""
    apart = f"{cluster} itself was not asked; objects are compared with the work on the hub"
    try:
        profile = await profile_of(hub, cluster)
        if profile is None:
            yield None, f"{apart}: there is no ClusterProfile of it that you may see"
            return
        access = await way_to(hub, profile, providers)
    except KubeError as error:
        yield None, f"{apart}: {error}"
        return
    connection = Connection(cluster_name(profile), access.endpoint, access.plugin)
    async with Client(connection, OPTIONS) as client:
        try:
            await client.version(deadline=SPOKE_SECONDS)
        except KubeError as error:
            yield None, f"{apart}: {error}"
            return
        yield client, ""


async def profile_of(hub: Client, cluster: str) -> Key | None:
    """A ClusterProfile of a cluster."""
    try:
        found = await hub.list(PROFILES, labels=f"{CLUSTER_NAME_LABEL}={cluster}")
    except NotFound:
        return None
    keys = sorted(Key.of(each) for each in found.items if items(each, "status", "accessProviders"))
    return keys[0] if keys else None


async def compare_all(
    manifests: Sequence[Object],
    old: dict[Ref, Object],
    works: Sequence[Object],
    spoke: Client | None,
) -> list[Comparison]:
    """What all objects would become."""
    if spoke is None:
        return [with_hub(each, old.get(Ref.of(each))) for each in manifests]
    trial = Trial(spoke, manifests, old, works)
    return list(await asyncio.gather(*map(trial.compared, manifests)))


def with_hub(manifest: Object, old: Object | None) -> Comparison:
    """What an object would become, by what the hub has of it."""
    ref = Ref.of(manifest)
    if old is None:
        return Comparison(ObjectChange(PlannedAction.CREATE, ref))
    fields = differences(old, manifest)
    return Comparison(ObjectChange(PlannedAction.CHANGE, ref, fields) if fields else None)


class Trial:
    """Asks a cluster what it would make of objects."""

    def __init__(
        self,
        spoke: Client,
        manifests: Sequence[Object],
        old: dict[Ref, Object],
        works: Sequence[Object],
    ) -> None:
        self.spoke = spoke
        self.old = old
        self.coming = {Ref.of(each) for each in manifests}
        self.kinds = {
            (str(part(each, "spec").get("group")), str(part(each, "spec", "names").get("kind")))
            for each in manifests
            if Ref.of(each).group_kind == CRD
        }
        self.configs = [each for work in works for each in items(work, "spec", "manifestConfigs")]

    async def compared(self, manifest: Object) -> Comparison:
        """What one object would become."""
        ref = Ref.of(manifest)
        try:
            return await self.tried(manifest, ref)
        except Forbidden as error:
            if reason_of(error) != FailureKind.FORBIDDEN:
                return Comparison(problem=PlanProblem(error.message, ref))
            note = (
                f"the account of {self.spoke.cluster} may not try {ref.group_kind}, which is"
                " compared with the work on the hub"
            )
            return Comparison(with_hub(manifest, self.old.get(ref)).change, warning=note)
        except KubeError as error:
            if self.is_early(ref, error):
                return Comparison(ObjectChange(PlannedAction.CREATE, ref))
            text = error.message if isinstance(error, ApiError) else str(error)
            return Comparison(problem=PlanProblem(text, ref))

    async def tried(self, manifest: Object, ref: Ref) -> Comparison:
        """What one object would become, by the word of the cluster."""
        resource = await self.spoke.discovery.resource(manifest["apiVersion"], manifest["kind"])
        try:
            before = await self.spoke.get(resource, ref.name, ref.namespace)
        except NotFound:
            before = None
        if before is not None and self.strategy(resource, ref) in UNCHANGED:
            return Comparison()
        after = await self.spoke.apply(
            resource, manifest, manager=DEFAULT_FIELD_MANAGER, dry_run=True
        )
        if before is None:
            return Comparison(ObjectChange(PlannedAction.CREATE, ref))
        fields = differences(before, after)
        return Comparison(ObjectChange(PlannedAction.CHANGE, ref, fields) if fields else None)

    def is_early(self, ref: Ref, error: KubeError) -> bool:
        """Whether the cluster says no only because something is missing that comes along."""
        namespace = Ref(NAMESPACE.group, NAMESPACE.kind, "", ref.namespace)
        return (ref.group, ref.kind) in self.kinds or (
            reason_of(error) == FailureKind.NO_NAMESPACE and namespace in self.coming
        )

    def strategy(self, resource: Resource, ref: Ref) -> str:
        """How the work has an object written; the last word on it counts."""
        found = "Update"
        for each in self.configs:
            named = part(each, "resourceIdentifier")
            is_meant = (
                (named.get("group", ""), named.get("resource")) == (resource.group, resource.plural)
                and fnmatchcase(ref.name, str(named.get("name", "")))
                and fnmatchcase(ref.namespace, str(named.get("namespace", "")))
            )
            if is_meant and part(each, "updateStrategy"):
                found = str(part(each, "updateStrategy").get("type", found))
        return found
