"""Keeps the revisions of fleets as ControllerRevisions."""

from contextlib import suppress

from knfleet.api.fleet.knativefleet import KnativeFleet
from knfleet.api.meta import Key, Object
from knfleet.hub.knativefleet.fleet_cache import FleetCache
from knfleet.hub.knativefleet.plan.fleet_rollout import FleetRolloutView
from knfleet.hub.knativefleet.template.revisions import (
    CONTROLLER_REVISIONS,
    Revision,
    next_number,
    obsolete,
    read_revision,
    revision_manifest,
)
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, Conflict, NotFound


class RevisionStore:
    """Makes, numbers and deletes revisions."""

    def __init__(self, client: Client, cache: FleetCache) -> None:
        self.client = client
        self.cache = cache

    async def put(self, fleet: KnativeFleet, content: Object, target: str) -> dict[str, Revision]:
        """Have the target revision kept; one that comes again gets a new number."""
        known = self.cache.revisions_of(fleet.metadata.name, fleet.metadata.uid)
        number = next_number(known)
        if target not in known:
            made = revision_manifest(
                fleet, content, target, namespace=self.cache.namespace, number=number
            )
            try:
                answer = await self.client.create(CONTROLLER_REVISIONS, made)
            except AlreadyExists:
                answer = await self.known_revision(fleet, Key.of(made))
            self.cache.remember(answer)
        elif fleet.status.rollout.revision != target and known[target].number != number - 1:
            key = Key(self.cache.namespace, known[target].name)
            patch = {"revision": number}
            self.cache.remember(await self.client.patch(CONTROLLER_REVISIONS, key, patch))
        else:
            return known
        self.cache.begin_pass()
        return self.cache.revisions_of(fleet.metadata.name, fleet.metadata.uid)

    async def known_revision(self, fleet: KnativeFleet, key: Key) -> Object:
        """A revision that the watch does not show yet; raises Conflict for that of an older fleet.

        Such a one is deleted, as the garbage collector would.
        """
        answer = await self.client.get(CONTROLLER_REVISIONS, key.name, key.namespace)
        found = read_revision(answer)
        if found.owner != fleet.metadata.uid:
            await self.client.delete(CONTROLLER_REVISIONS, key, uid=found.uid)
            raise Conflict(f"ControllerRevision {key} belonged to an older fleet")
        return answer

    async def prune(
        self, fleet: KnativeFleet, view: FleetRolloutView, revisions: dict[str, Revision]
    ) -> None:
        """Delete revisions that are neither used nor kept by the history limit."""
        used = {view.target, view.good}
        for cluster in view.clusters.values():
            used.update(child.revision for child in cluster.children.values())
        for each in obsolete(revisions, used, fleet.spec.revision_history_limit):
            await self.delete(each)
        self.cache.forget(fleet.metadata.name, used, keep=True)

    async def remove(self, fleet: KnativeFleet) -> None:
        """Delete all revisions of a fleet."""
        known = self.cache.revisions_of(fleet.metadata.name, fleet.metadata.uid)
        for each in known.values():
            await self.delete(each)

    async def delete(self, revision: Revision) -> None:
        """Delete a revision, if it is there."""
        with suppress(NotFound, Conflict):
            key = Key(self.cache.namespace, revision.name)
            await self.client.delete(CONTROLLER_REVISIONS, key, uid=revision.uid)
