"""Informers on the members of one set: what is there, without asking.

Most kinds are watched by metadata alone; those that are judged by their status are watched with it.
Each kind costs a connection, so the caller chooses which kinds are worth one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct

from knfleet.api.meta import Object, Resource
from knfleet.apply.applyset import ApplySet
from knfleet.apply.observe.metadata import ObservedObject, observe, slim, slim_workload
from knfleet.apply.observe.readiness import JUDGES, SetReadiness, summarize
from knfleet.apply.refs import CRD, NAMESPACE, GroupKind, Ref
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client

EVERYWHERE: Mapping[Resource, str] = MappingProxyType({})
JUDGED = frozenset(JUDGES) - {CRD, NAMESPACE}
"""Kinds whose status tells whether they work; CRDs are too large to keep, and settle at once."""


class MemberChange(Struct, frozen=True):
    """A member that appeared, changed or went; without an observation it is no longer a member."""

    ref: Ref
    observed: ObservedObject | None
    version: str
    """The resource version at which it happened."""


class SetWatch:
    """Keeps the metadata of a set's members in memory."""

    def __init__(self, client: Client, applyset: ApplySet) -> None:
        self.client = client
        self.applyset = applyset
        self.informers: dict[GroupKind, Informer] = {}
        self.handlers: list[Callable[[MemberChange], None]] = []
        self.changed = asyncio.Event()
        self.wanted = asyncio.Event()

    def follow(
        self,
        resources: Iterable[Resource],
        namespaces: Mapping[Resource, str] = EVERYWHERE,
    ) -> bool:
        """Watch these kinds beside those that are watched already; whether any is new.

        A kind is watched in the namespace that is given for it, else in all.
        """
        is_new = False
        for resource in resources:
            kind, namespace = GroupKind.of(resource), namespaces.get(resource, "")
            known = self.informers.get(kind)
            if known is not None and known.selection.namespace in ("", namespace):
                continue
            is_new = True
            judged = kind in JUDGED
            informer = Informer(
                self.client,
                resource,
                # Of two namespaces, none is enough.
                namespace if known is None else "",
                labels=self.applyset.selector,
                metadata_only=not judged,
                trim=slim_workload if judged else slim,
            )
            informer.on_change(self.notice)
            self.informers[kind] = informer
        self.wanted.set()
        return is_new

    def follows(self, resources: Iterable[Resource]) -> bool:
        """Whether all of these kinds are watched."""
        return all(GroupKind.of(each) in self.informers for each in resources)

    def on_change(self, handler: Callable[[MemberChange], None]) -> None:
        """Call a function with everything that happens to a member; it must not block."""
        self.handlers.append(handler)

    def notice(self, change: StoreChange) -> None:
        """Handle a change from an informer."""
        self.changed.set()
        known = change.new or change.old
        if known is None or not self.handlers:
            return
        version = known["metadata"].get("resourceVersion", "")
        noticed = MemberChange(
            Ref.of(known), None if change.new is None else observe(change.new), version
        )
        for handler in self.handlers:
            handler(noticed)

    async def run(self) -> None:
        """Follow all kinds, and those that are added later, until cancelled."""
        running: dict[GroupKind, tuple[Informer, asyncio.Task[None]]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                self.wanted.clear()
                for kind, informer in self.informers.items():
                    known, task = running.get(kind, (None, None))
                    if known is informer:
                        continue
                    if task is not None:
                        task.cancel()
                    running[kind] = informer, group.create_task(informer.run())
                await self.wanted.wait()

    async def synced(self, kinds: Iterable[GroupKind] | None = None) -> None:
        """Wait until everything that is there is known, or everything of some kinds."""
        for kind in list(self.informers if kinds is None else kinds):
            await self.informers[kind].synced.wait()

    def covers(self, kind: GroupKind, namespaces: Iterable[str]) -> bool:
        """Whether a kind is watched in all of these namespaces."""
        informer = self.informers.get(kind)
        if informer is None:
            return False
        return informer.selection.namespace == "" or set(namespaces) <= {
            informer.selection.namespace
        }

    def informer(self, kind: GroupKind) -> Informer | None:
        """The informer of a kind, when it knows everything that is there."""
        informer = self.informers.get(kind)
        return informer if informer is not None and informer.synced.is_set() else None

    def found(self) -> Mapping[Ref, Object]:
        """The members of all kinds that are judged by their status."""
        return {
            Ref.of(manifest): manifest
            for kind, informer in self.informers.items()
            if kind in JUDGED
            for manifest in informer.items()
        }

    def summary(self, wanted: Iterable[Ref]) -> SetReadiness:
        """How the wanted members are that can be judged."""
        return summarize((ref for ref in wanted if ref.group_kind in JUDGED), self.found())

    async def progress(self, wanted: Iterable[Ref]) -> AsyncIterator[SetReadiness]:
        """How the members are, again whenever that changes; ends when all are ready."""
        refs = [ref for ref in wanted if ref.group_kind in JUDGED]
        await self.synced()
        before: SetReadiness | None = None
        while True:
            self.changed.clear()
            now = self.summary(refs)
            if now != before:
                yield now
                before = now
            if now.is_ready:
                return
            await self.changed.wait()
