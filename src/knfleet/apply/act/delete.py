"""Deletes what must go, step by step, and makes sure that it is gone.

Every deletion names the very object and state that was looked at, so nothing newer is hit. What
does not go in time is reported with what holds it. One that fails stops no others, with one
exception: while custom resources wait for their finalizers, the controllers that serve those stay.

Only members are waited for. What they own, such as the pods of a Deployment, is deleted by the
cluster's garbage collector afterwards.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from knfleet.api.core import CLUSTER_ROLES
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply import well_known
from knfleet.apply.act.refusals import refusal
from knfleet.apply.act.writer import Deadlines
from knfleet.apply.applyset import ApplySet
from knfleet.apply.change_set import (
    Action,
    ChangeSet,
    FailureKind,
    ObjectFailure,
    ObjectPending,
    ObjectResult,
    Outcome,
)
from knfleet.apply.desired import OwnerReferences
from knfleet.apply.observe.collection import Collection, follow
from knfleet.apply.observe.live_state import LiveStateReader
from knfleet.apply.observe.metadata import ObservedObject
from knfleet.apply.plan.prune import PrunePlan, RemovalWave, SetMember, is_ghost
from knfleet.apply.refs import Ref
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, KubeError, NotFound

ATTEMPTS = 5
QUIET_SECONDS = 1.0
"""How long the aggregation controller is given to bring a ClusterRole back."""
LOOKS = 5


class Remover:
    """Deletes members of one set."""

    def __init__(
        self, client: Client, applyset: ApplySet, live_state: LiveStateReader, deadlines: Deadlines
    ) -> None:
        self.client = client
        self.applyset = applyset
        self.live_state = live_state
        self.applied_objects = live_state.applied_objects
        self.deadlines = deadlines

    async def remove(self, pruning: PrunePlan, owners: OwnerReferences) -> ChangeSet:
        """Delete and release, one step after the other."""
        outcomes: list[Outcome] = list(
            await asyncio.gather(*(self.release(each, owners) for each in pruning.released))
        )
        for step, members in pruning.removals.items():
            done = await self.remove_step(members)
            outcomes += done
            if any(blocks(step, outcome) for outcome in done):
                rest = [each for each in pruning.members if each.ref not in refs_of(outcomes)]
                outcomes += [
                    ObjectPending(each.ref, "it waits for others to go first") for each in rest
                ]
                break
        return ChangeSet.of(outcomes)

    async def remove_step(self, members: Sequence[SetMember]) -> list[Outcome]:
        """Delete some objects at once, and wait until they are gone."""
        self.applied_objects.forget(member.ref for member in members)
        asked = await asyncio.gather(*(self.delete(each) for each in members))
        outcomes = [outcome for outcome in asked if outcome is not None]
        known = refs_of(outcomes)
        going = [member for member in members if member.ref not in known]
        held = await self.gone(going)
        for member in going:
            if member.ref in held:
                outcomes.append(ObjectPending(member.ref, still_there(held[member.ref])))
            else:
                outcomes.append(ObjectResult(member.ref, Action.DELETED))
        return outcomes

    async def delete(self, member: SetMember) -> Outcome | None:
        """Ask for the deletion of an object, in the state in which it is ours; why it cannot go."""
        observed: ObservedObject | None = member.observed
        try:
            for _ in range(ATTEMPTS):
                if observed is None or observed.uid != member.observed.uid:
                    return None
                if observed.deleting:
                    return None
                if problem := self.objection(observed):
                    return ObjectFailure(member.ref, FailureKind.OTHER_SET, problem, "delete")
                if await self.try_delete(member.resource, observed):
                    return None
                observed = await self.live_state.get(member.resource, member.ref.key)
        except KubeError as error:
            return refusal(member.ref, error, "delete")
        message = "it changes faster than it can be deleted"
        return ObjectFailure(member.ref, FailureKind.CONFLICT, message, "delete")

    def objection(self, observed: ObservedObject) -> str:
        """Why an object is not ours to delete; empty when it is."""
        if observed.part_of != self.applyset.id:
            return other_set(observed)
        return (
            "" if observed.is_ours else "none of its field managers is ours, so it is not deleted"
        )

    async def try_delete(self, resource: Resource, observed: ObservedObject) -> bool:
        """Ask for the deletion of an object in one state; whether it was in that state."""
        try:
            await self.client.delete(
                resource,
                observed.ref.key,
                uid=observed.uid,
                resource_version=observed.version,
                propagation="Background",
            )
        except Conflict:
            return False
        except NotFound:
            pass
        return True

    async def gone(self, members: Sequence[SetMember]) -> dict[Ref, Object]:
        """Wait until objects are gone; those that are still there when time is up."""
        by_place: defaultdict[tuple[Resource, str], list[SetMember]] = defaultdict(list)
        for member in members:
            by_place[member.resource, member.ref.namespace].append(member)
        held = await asyncio.gather(
            *(
                self.gone_from(resource, namespace, some)
                for (resource, namespace), some in by_place.items()
            )
        )
        return {Ref.of(manifest): manifest for part in held for manifest in part}

    async def gone_from(
        self, resource: Resource, namespace: str, members: Sequence[SetMember]
    ) -> list[Object]:
        """The same for one kind and namespace; a list is enough when all are gone at once."""
        uids = {member.observed.uid for member in members}
        try:
            left = await self.live_state.members(resource, namespace)
            if uids.isdisjoint(each.uid for each in left):
                return []
            found = await follow(
                self.client,
                Collection(resource, namespace, self.applyset.selector, metadata_only=True),
                lambda found: uids.isdisjoint(map(uid_of, found.values())),
                seconds=self.deadlines.gone_seconds,
            )
        except NotFound:
            return []
        return [manifest for manifest in found.values() if uid_of(manifest) in uids]

    async def release(self, member: SetMember, owners: OwnerReferences) -> Outcome:
        """Let an object stay, without our marks, so that another set can have it."""
        self.applied_objects.forget([member.ref])
        try:
            if not member.observed.is_ours:
                return await self.release_copy(member, owners)
            await self.client.patch(member.resource, member.ref.key, unmarked(member))
        except (NotFound, Conflict):
            pass  # it is gone, or another one by now
        except KubeError as error:
            return refusal(member.ref, error, "patch")
        return ObjectResult(member.ref, Action.RELEASED)

    async def release_copy(self, member: SetMember, owners: OwnerReferences) -> Outcome:
        """Leave a copy to its author, without our owners: it would be collected after them."""
        key, uid = member.ref.key, member.observed.uid
        for _ in range(ATTEMPTS):
            found = await self.client.list(
                *(member.resource, key.namespace),
                fields=f"metadata.name={key.name}",
                metadata_only=True,
            )
            meta: Object = found.items[0]["metadata"] if found.items else {}
            if meta.get("uid") != uid:
                return ObjectResult(member.ref, Action.RELEASED)
            kept = [
                each for each in meta.get("ownerReferences") or () if each["uid"] not in owners.uids
            ]
            version = {"ownerReferences": kept, "resourceVersion": meta["resourceVersion"]}
            with suppress(Conflict):
                await self.client.patch(member.resource, key, unmarked(member, **version))
                return ObjectResult(member.ref, Action.RELEASED, copied=True)
        message = "it changes faster than our label can be removed"
        return ObjectFailure(member.ref, FailureKind.CONFLICT, message, "patch")

    async def second_look(self, names: Iterable[str]) -> list[Outcome]:
        """Delete ClusterRoles that the aggregation controller brought back after their deletion.

        It works from a memory that is a moment old, so it may write a role that has just gone, and
        so create it anew, without labels: only its name and its one field manager tell it.
        """
        wanted = sorted(names)
        outcomes: dict[Ref, Outcome] = {}
        for _ in range(LOOKS):
            ghosts = await self.ghosts(wanted)
            if not ghosts:
                break
            for ghost in ghosts:
                outcomes[ghost.ref] = await self.delete_ghost(ghost)
        return list(outcomes.values())

    async def ghosts(self, names: list[str]) -> list[ObservedObject]:
        """Roles of these names that came back within a short while."""
        found: dict[Key, Object] = await follow(
            self.client,
            Collection(CLUSTER_ROLES, metadata_only=True),
            lambda found: any(Key("", name) in found for name in names),
            seconds=QUIET_SECONDS,
        )
        there = [name for name in names if Key("", name) in found]
        seen = [await self.live_state.get(CLUSTER_ROLES, Key("", name)) for name in there]
        return [each for each in seen if each is not None and is_ghost(each)]

    async def delete_ghost(self, ghost: ObservedObject) -> Outcome:
        """Delete one of them, in the state that was looked at."""
        try:
            await self.client.delete(
                CLUSTER_ROLES, ghost.ref.key, uid=ghost.uid, resource_version=ghost.version
            )
        except (NotFound, Conflict):
            return ObjectPending(ghost.ref, "the cluster keeps writing it")
        except KubeError as error:
            return refusal(ghost.ref, error, "delete")
        return ObjectResult(ghost.ref, Action.DELETED)


def blocks(step: RemovalWave, outcome: Outcome) -> bool:
    """Whether later steps must wait: finalizers of custom resources need their controllers."""
    if isinstance(outcome, ObjectFailure):
        return outcome.why == FailureKind.UNANSWERED
    return isinstance(outcome, ObjectPending) and step == RemovalWave.CUSTOM


def unmarked(member: SetMember, **meta: Any) -> Object:
    """The patch that takes our marks off an object, and does more to its metadata."""
    marked = {"annotations": {well_known.APPLIED_HASH: None, well_known.CREATED_BY: None}}
    labels = {"labels": {well_known.PART_OF: None}}
    return {"metadata": {"uid": member.observed.uid, **labels, **marked, **meta}}


def refs_of(outcomes: Iterable[Outcome]) -> set[Ref]:
    return {outcome.ref for outcome in outcomes}


def uid_of(manifest: Object) -> str:
    return str(manifest["metadata"].get("uid", ""))


def still_there(manifest: Object) -> str:
    """Why an object that was deleted is still there."""
    finalizers = manifest["metadata"].get("finalizers") or ()
    text = "it is being deleted"
    if finalizers:
        text += f", and held by the finalizers {', '.join(finalizers)}"
    return text


def other_set(observed: ObservedObject) -> str:
    """What to say of an object that is not ours to touch."""
    if not observed.part_of:
        return f"it no longer carries the label {well_known.PART_OF}, so it is left alone"
    return (
        f"it belongs to the set {observed.part_of} ({well_known.PART_OF}); it is left alone."
        " When that set is gone, remove the label"
    )
