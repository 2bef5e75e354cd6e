"""Prunes and uninstalls: finds all members by what the parent says, and lets the remover act."""

import asyncio
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from knfleet.api.core import JOBS
from knfleet.api.meta import Object, Resource
from knfleet.apply.act.delete import Remover
from knfleet.apply.act.parents import Parents
from knfleet.apply.act.refusals import refusal
from knfleet.apply.act.writer import Deadlines
from knfleet.apply.applyset import Inventory
from knfleet.apply.change_set import (
    Action,
    ChangeSet,
    FailureKind,
    ObjectFailure,
    ObjectPending,
    Outcome,
)
from knfleet.apply.desired import DesiredSet, OwnerReferences
from knfleet.apply.observe.live_state import LiveStateReader
from knfleet.apply.observe.metadata import observe
from knfleet.apply.observe.readiness import ReadinessState, health
from knfleet.apply.plan.prune import (
    RUNNING,
    MemberAction,
    PrunePlan,
    SetMember,
    losses,
    member_action,
    prune,
)
from knfleet.apply.refs import JOB, GroupKind, Ref
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Forbidden, ServerError, Throttled

CONVERSION = "conversion webhook"
"""What API servers say of kinds whose versions they cannot convert."""

ROUNDS = 3
"""How often an uninstall goes over what is left, since webhooks may hold up the first time."""


class Pruner:
    """Deletes what is not wanted of one set."""

    def __init__(
        self, client: Client, parents: Parents, live_state: LiveStateReader, deadlines: Deadlines
    ) -> None:
        self.client = client
        self.parents = parents
        self.applyset = parents.applyset
        self.live_state = live_state
        self.deadlines = deadlines
        self.remover = Remover(client, self.applyset, live_state, deadlines)
        self.pruned: frozenset[Ref] | None = None
        """What was wanted when nothing else was left, if nothing was applied since."""

    def forget(self) -> None:
        """Something is applied: look again."""
        self.pruned = None

    async def prune(self, desired: DesiredSet, owners: OwnerReferences) -> ChangeSet:
        """Delete members that are not wanted; then the parent lists what is wanted alone."""
        wanted = desired.refs
        if not wanted:
            raise ValueError("nothing is wanted: use uninstall to delete everything")
        if wanted == self.pruned:
            return ChangeSet()
        parent = await self.parents.read()
        if not parent.is_marked:
            return ChangeSet()
        unclear = parent.inventory.kinds - self.clean_kinds(wanted, parent.inventory.namespaces)
        inventory = replace(parent.inventory, kinds=unclear)
        members, unseen = await self.members(inventory, desired.resources)
        pruning = prune(members, wanted, self.applyset)
        result = ChangeSet.of(unseen) + await self.carry_out(pruning, owners)
        if result.settled:
            jobs = await self.done_jobs(desired, parent.inventory.done_jobs)
            narrow = Inventory(done_jobs=jobs).widened(wanted)
            await self.parents.change(lambda _: with_home(narrow, self.applyset.key.namespace))
            self.pruned = wanted
        return result

    async def losses(self, desired: DesiredSet) -> list[Ref]:
        """The workloads that a prune would delete, if those are most of them."""
        parent = await self.parents.read()
        if not parent.is_marked:
            return []
        kinds = parent.inventory.kinds & RUNNING
        inventory = replace(parent.inventory, kinds=kinds)
        members, _ = await self.members(inventory, desired.resources)
        return losses(members, prune(members, desired.refs, self.applyset))

    def clean_kinds(
        self, wanted: frozenset[Ref], namespaces: frozenset[str]
    ) -> frozenset[GroupKind]:
        """Kinds of which watches know all members, and none that must go.

        Where there is one that must, it is looked at in the cluster itself before it goes.
        """
        watch = self.live_state.watch
        if watch is None:
            return frozenset()
        synced = {kind: watch.informer(kind) for kind in watch.informers}
        return frozenset(
            kind
            for kind, informer in synced.items()
            if informer is not None
            and (not informer.resource.namespaced or watch.covers(kind, namespaces))
            and all(
                member_action(observe(each), wanted, self.applyset) == MemberAction.KEEP
                for each in informer.items()
            )
        )

    async def uninstall(self, owners: OwnerReferences) -> ChangeSet:
        """Delete all members, whatever was wanted; the parent stays, and lists nothing."""
        self.forget()
        result = ChangeSet()
        for _ in range(ROUNDS):
            parent = await self.parents.read()
            if parent.is_marked:
                members, unseen = await self.members(parent.inventory, {})
            else:
                members, unseen = await self.sweep()
            pruning = prune(members, frozenset(), self.applyset)
            done = ChangeSet.of(unseen) + await self.carry_out(pruning, owners)
            result = ChangeSet(result.changes + done.changes, done.failures, done.pending)
            if not any(each.why == FailureKind.WEBHOOK for each in done.failures):
                break
        if result.settled and self.parents.parent is not None and self.parents.parent.version:
            home = self.applyset.key.namespace
            await self.parents.change(lambda _: with_home(Inventory(), home))
        return result

    async def carry_out(self, pruning: PrunePlan, owners: OwnerReferences) -> ChangeSet:
        """Delete and release; roles that may come back are written down before they go."""
        parent = self.parents.parent
        names: frozenset[str] = pruning.second_look
        if parent is not None and parent.version:
            names |= parent.inventory.second_look
            await self.parents.change(lambda inventory: replace(inventory, second_look=names))
        result = await self.remover.remove(pruning, owners)
        if names and not any(each.why == FailureKind.UNANSWERED for each in result.failures):
            ghosts = await self.remover.second_look(names)
            known = set(result.by(Action.DELETED))
            result += ChangeSet.of(each for each in ghosts if each.ref not in known or fails(each))
        return result

    async def members(
        self, inventory: Inventory, known: Mapping[GroupKind, Resource]
    ) -> tuple[list[SetMember], list[Outcome]]:
        """All members in the kinds and namespaces that the parent lists, and what we cannot see."""
        resources = dict(known)
        hidden: list[Outcome] = []
        if inventory.kinds - resources.keys():
            for served in await self.client.discovery.resources():
                resources.setdefault(GroupKind.of(served.resource), served.resource)
            hidden = [self.hidden(each) for each in self.client.discovery.unavailable]
        places = [
            (resources[kind], namespace)
            for kind in sorted(inventory.kinds & resources.keys())
            for namespace in (sorted(inventory.namespaces) if resources[kind].namespaced else [""])
        ]
        members, unseen = await self.list_namespaces(places)
        lost = {each.group for each in inventory.kinds - resources.keys()}
        return members, unseen + [each for each in hidden if each.ref.group in lost]

    async def sweep(self) -> tuple[list[SetMember], list[Outcome]]:
        """All members of any kind, when there is no parent to say where they are."""
        served = await self.client.discovery.resources()
        places = [(each.resource, "") for each in served if {"list", "delete"} <= each.verbs]
        return await self.list_namespaces(places)

    async def list_namespaces(
        self, places: Iterable[tuple[Resource, str]]
    ) -> tuple[list[SetMember], list[Outcome]]:
        """The members in some kinds and namespaces."""
        parts = await asyncio.gather(*(self.list_namespace(*place) for place in places))
        members = {each.observed.uid: each for part, _ in parts for each in part}
        return list(members.values()), [each for _, failed in parts for each in failed]

    async def list_namespace(
        self, resource: Resource, namespace: str
    ) -> tuple[list[SetMember], list[Outcome]]:
        """The members of one kind in one namespace, or why we may not see them."""
        try:
            found = await self.live_state.members(resource, namespace)
        except (ServerError, Throttled) as error:
            if CONVERSION not in error.message:
                raise
            return await self.list_other_versions(resource, namespace, error)
        except Forbidden as error:
            home = self.applyset.key.namespace
            if resource.namespaced and not namespace and home:
                # Who may not look everywhere may look where most members are.
                return await self.list_namespace(resource, home)
            if namespace not in ("", home):
                # The parent does not say which kind is in which namespace. Where we may not look,
                # we have installed nothing: rights are compared before anything is written.
                return [], []
            ref = Ref(resource.group, resource.kind, namespace, "")
            return [], [refusal(ref, error, "list")]
        return [SetMember(resource, each) for each in found], []

    async def list_other_versions(
        self, resource: Resource, namespace: str, error: ServerError | Throttled
    ) -> tuple[list[SetMember], list[Outcome]]:
        """The members of a kind whose webhook is down: the version that is stored needs none."""
        for other in await self.client.discovery.other_versions(resource):
            try:
                found = await self.live_state.members(other, namespace)
            except (ServerError, Throttled):
                continue
            return [SetMember(other, each) for each in found], []
        raise error

    def hidden(self, api_version: str) -> ObjectFailure:
        """The failure for kinds whose own server is down: members of theirs may be there."""
        group, _, _ = api_version.rpartition("/")
        message = f"the server of {api_version} does not answer, so members may be there unseen"
        return ObjectFailure(Ref(group, "", "", ""), FailureKind.UNANSWERED, message, "list")

    async def done_jobs(self, desired: DesiredSet, before: Mapping[str, str]) -> dict[str, str]:
        """The wanted Jobs that are complete, or were when they were last seen."""
        jobs = {ref: each for ref, each in desired.objects.items() if ref.group_kind == JOB}
        done = {
            str(ref.key): each.digest
            for ref, each in jobs.items()
            if before.get(str(ref.key)) == each.digest
        }
        for manifest in await self.jobs(sorted({ref.namespace for ref in jobs})):
            ref = Ref.of(manifest)
            if ref in jobs and health(manifest).state == ReadinessState.READY:
                done[str(ref.key)] = jobs[ref].digest
        return done

    async def jobs(self, namespaces: Iterable[str]) -> list[Object]:
        """The members that are Jobs, with their status."""
        watch = self.live_state.watch
        if watch is not None and (informer := watch.informer(JOB)) is not None:
            return informer.items()
        listings = [
            await self.client.list(JOBS, namespace, labels=self.applyset.selector)
            for namespace in namespaces
        ]
        return [manifest for listing in listings for manifest in listing.items]


def with_home(inventory: Inventory, namespace: str) -> Inventory:
    """An inventory as it is read back: the parent's own namespace is always in it."""
    home = frozenset([namespace]) if namespace else frozenset[str]()
    return replace(inventory, namespaces=inventory.namespaces | home)


def fails(outcome: Outcome) -> bool:
    """Whether an outcome is no success."""
    return isinstance(outcome, ObjectFailure | ObjectPending)
