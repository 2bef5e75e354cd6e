"""Writes decisions: the objects of Open Cluster Management, and those for other consumers.

Every write is for the very state that its plan was made for; when an object has another one, the
plan is made anew.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from knfleet.api.cluster.placement import DECISIONS, Placement
from knfleet.api.inventory import PUBLISHED_DECISIONS
from knfleet.api.meta import Key, Object
from knfleet.hub.placement.decisions.decision_objects import (
    Changes,
    DecisionObject,
    held,
    manifest_of,
    metadata,
    status_of,
)
from knfleet.hub.placement.decisions.published import Publication, in_between
from knfleet.hub.placement.decisions.write_order import Write
from knfleet.hub.placement.scheduler.schedule_model import Decision
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound


class DecisionWriter:
    """Writes the decisions of one Placement."""

    def __init__(self, client: Client, placement: Placement) -> None:
        self.client = client
        self.placement = placement
        self.versions: dict[str, str] = {}

    def key(self, name: str) -> Key:
        """The key of an object beside the Placement."""
        return Key(self.placement.key.namespace, name)

    async def decide(self, changes: Changes, existing: Iterable[DecisionObject]) -> None:
        """Have the decision objects say what was scheduled."""
        found = list(existing)
        self.versions = {each.name: each.version for each in found}
        known: dict[str, Decision] = {
            decision.cluster: decision
            for each in (*found, *changes.targets.values())
            for decision in each.decisions
        }
        for each in changes.relabeled:
            await self.relabel(each)
        labels = {each.name: each.labels for each in (*found, *changes.targets.values())}

        async def carry_out(write: Write) -> None:
            if write.clusters is None:
                await self.delete(write.name)
                return
            if write.name not in self.versions:
                own = labels[write.name if write.name in labels else write.like]
                await self.create(DecisionObject(write.name, own, ()))
                if not write.clusters:
                    return
            await self.put(write.name, held(write, changes.targets, known))

        for batch in batches(changes.writes, self.versions):
            await asyncio.gather(*(carry_out(write) for write in batch))
        for name in changes.rewritten:
            await self.put(name, list(changes.targets[name].decisions))

    async def relabel(self, target: DecisionObject) -> None:
        """Set labels and owner of an object right."""
        meta = metadata(self.placement, target)
        patch: Object = {
            "metadata": {
                "resourceVersion": self.versions[target.name],
                "labels": meta["labels"],
                "ownerReferences": meta["ownerReferences"],
            }
        }
        self.remember(await self.client.patch(DECISIONS, self.key(target.name), patch))

    async def create(self, target: DecisionObject) -> None:
        """Create an object, without decisions as yet."""
        self.remember(await self.client.create(DECISIONS, manifest_of(self.placement, target)))

    async def put(self, name: str, decisions: list[Decision]) -> None:
        """Give an object its decisions."""
        patch: Object = {
            "metadata": {"resourceVersion": self.versions[name]},
            "status": status_of(decisions),
        }
        self.remember(
            await self.client.patch(DECISIONS, self.key(name), patch, subresource="status")
        )

    async def delete(self, name: str) -> None:
        """Delete an object in the state that is known."""
        with suppress(NotFound):
            await self.client.delete(
                DECISIONS, self.key(name), resource_version=self.versions[name]
            )

    def remember(self, manifest: Object) -> None:
        """Remember the version of what was written."""
        meta = manifest["metadata"]
        self.versions[meta["name"]] = meta["resourceVersion"]

    async def publish(self, publication: Publication, existing: Iterable[Object]) -> None:
        """Have the published objects say the same."""
        found = {each["metadata"]["name"] for each in existing}

        async def carry_out(write: Write) -> None:
            if write.clusters is None:
                with suppress(NotFound):
                    await self.client.delete(PUBLISHED_DECISIONS, self.key(write.name))
                return
            manifest = in_between(self.placement, write, publication)
            if write.name in found:
                await self.republish(manifest)
            else:
                await self.client.create(PUBLISHED_DECISIONS, manifest)
                found.add(write.name)

        for batch in batches(publication.writes, found):
            await asyncio.gather(*(carry_out(write) for write in batch))
        for name in publication.rewritten:
            await self.republish(publication.manifests[name])

    async def republish(self, manifest: Object) -> None:
        """Have a published object be as given."""
        name = manifest["metadata"]["name"]
        patch: Object = {
            "metadata": {
                "labels": manifest["metadata"]["labels"],
                "ownerReferences": manifest["metadata"]["ownerReferences"],
            },
            "schedulerName": manifest["schedulerName"],
            "decisions": manifest["decisions"],
        }
        await self.client.patch(PUBLISHED_DECISIONS, self.key(name), patch)


def batches(writes: Sequence[Write], existing: Collection[str]) -> list[list[Write]]:
    """Writes in their order, with those together that can be done at once.

    Objects that do not exist yet take nothing from others; all other writes wait for those before.
    """
    result: list[list[Write]] = []
    known = set(existing)
    adding = False
    for write in writes:
        is_new = write.name not in known
        known.add(write.name)
        if is_new and adding:
            result[-1].append(write)
        else:
            result.append([write])
        adding = is_new
    return result
