"""Cleans spokes that return after their custom resources were removed without them.

A tombstone (see `knative.tombstones`) is worked on when its spoke answers, and is the same cluster;
then it goes. When a custom resource uses the same anchor again, it has what is left, and the
tombstone only goes.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import HUB, ClusterName, Key, Object, Request
from knfleet.apply.applyset import ApplySet
from knfleet.apply.change_set import ChangeSet
from knfleet.apply.engine import Engine
from knfleet.clusters.access_errors import AccessError
from knfleet.clusters.anchor import Anchors, OtherHub
from knfleet.clusters.cluster import LiveCluster
from knfleet.clusters.pool import ClusterPool
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.operator.installation import DEADLINES
from knfleet.operator.kinds import TARGET_UID, annotations_of, is_deleting, profile_of
from knfleet.operator.status.messages import left_text
from knfleet.operator.targets.spoke_targets import UNKNOWN
from knfleet.operator.uninstall.finalizer import uninstall_set
from knfleet.operator.uninstall.tombstones import SELECTOR, Tombstone, Tombstones, read
from knfleet.runtime.controller import Controller, ControllerOptions, Result
from knfleet.runtime.logs import log
from knfleet.runtime.manager import Manager
from knfleet.runtime.queue import QueueOptions

NAME = "tombstones"
RETRY_SECONDS = 15.0
REPORT_SECONDS = 600.0
"""When to look again at a spoke that is not there, should no event show that it is."""


class CleanupContext(Struct, frozen=True):
    """What a cleaner must know of the rest."""

    hub_uid: str
    resources: Mapping[str, Informer]
    """The custom resources that there are, by kind."""
    owns: Callable[[str], bool] | None = None
    """Whether a spoke is for this process to clean; None when all are."""


class OrphanCleanup:
    """Cleans spokes by their tombstones."""

    def __init__(self, tombstones: Tombstones, spokes: ClusterPool, world: CleanupContext) -> None:
        self.tombstones = tombstones
        self.spokes = spokes
        self.world = world
        self.stones = Informer(
            tombstones.client,
            CONFIG_MAPS,
            tombstones.namespace,
            labels=SELECTOR,
            trim=without_managed_fields,
        )
        self.held: dict[Key, Key] = {}
        """The profile that is used for each tombstone."""
        options = ControllerOptions(QueueOptions(cluster_of=self.cluster_of))
        self.controller = Controller(NAME, self.reconcile, options)
        self.controller.watches(self.stones.on_change, requests=requests)
        spokes.on_change(self.spoke_changed)

    def join(self, manager: Manager) -> None:
        """Run as a part of a process, while it leads, or on its share."""
        manager.add(self.stones, NAME)
        manager.add(self, "cleaner", leading=self.world.owns is None)

    async def run(self) -> None:
        """Clean from when it is known which custom resources there are."""
        for informer in self.world.resources.values():
            await informer.synced.wait()
        await self.controller.run()

    def stop(self) -> None:
        """Begin nothing new."""
        self.controller.stop()

    def ours(self, manifest: Object) -> Tombstone | None:
        """What a tombstone says, if it can be read and is for this process to see to."""
        stone, owns = read(manifest), self.world.owns
        if stone is None:
            key = str(Key.of(manifest))
            log.error("a tombstone cannot be read; correct or delete it", key=key)
        elif owns is not None and not owns(stone.profile):
            return None
        return stone

    def on_gained(self) -> None:
        """Begin with spokes that are ours now."""
        for manifest in self.stones.items():
            self.controller.queue.add(Request(HUB, Key.of(manifest)))

    async def on_lost(self) -> None:
        """Stop cleaning spokes that are not ours; nothing of it runs afterwards."""
        owns = self.world.owns
        theirs = {key for key, used in self.held.items() if owns and not owns(str(used))}
        await self.controller.cut_off(lambda request: request.key in theirs)
        for key in theirs:
            self.leave(key)

    def cluster_of(self, request: Request) -> ClusterName:
        """Whose slot the work uses."""
        manifest = self.stones.get(request.key)
        stone = None if manifest is None else read(manifest)
        return HUB if stone is None else ClusterName(stone.profile)

    def spoke_changed(self, profile: Key) -> None:
        """Look at all that is left on a spoke."""
        for key, used in self.held.items():
            if used == profile:
                self.controller.queue.add(Request(HUB, key))

    async def reconcile(self, request: Request) -> Result:
        """Clean up after one custom resource, if that can be done now."""
        manifest = self.stones.get(request.key)
        if manifest is None:
            self.leave(request.key)
            return Result.never()
        stone = self.ours(manifest)
        if stone is None:
            return Result.never()
        if self.is_alive(stone):
            log.info("a custom resource manages the target again", key=str(request.key))
            await self.tombstones.remove(request.key)
            return Result.never()
        profile = self.held[request.key] = stone.profile_key
        self.spokes.use(profile, holder_of(request.key))
        try:
            live = await self.spokes.live(profile, even_unhealthy=True)
        except AccessError:
            return Result.after(REPORT_SECONDS)
        if stone.target_uid not in ("", UNKNOWN, live.uid):
            log.warning("another cluster is there now", key=str(request.key), uid=live.uid)
            return Result.never()
        return await self.clean(request.key, stone, live)

    async def clean(self, key: Key, stone: Tombstone, live: LiveCluster) -> Result:
        """Remove everything that is left, then the tombstone."""
        root, anchors = stone.root(self.world.hub_uid), Anchors(live.client)
        try:
            await anchors.find(root)
            changes = await self.uninstall(root.key, live)
            if not changes.settled:
                log.warning("not clean yet", key=str(key), problem=left_text(changes))
                return Result.after(RETRY_SECONDS)
            anchor = await anchors.find(root)
            if anchor is not None:
                await anchors.remove(root.key, anchor)
            log.info("cleaned a spoke that returned", key=str(key), changes=str(changes))
        except OtherHub as error:
            log.warning("nothing is cleaned", key=str(key), error=str(error))
        await self.tombstones.remove(key)
        return Result.never()

    async def uninstall(self, anchor: Key, live: LiveCluster) -> ChangeSet:
        """Delete every member of a set."""
        applyset = ApplySet(CONFIG_MAPS, anchor)
        return await uninstall_set(Engine(live.client, applyset, deadlines=DEADLINES))

    def is_alive(self, stone: Tombstone) -> bool:
        """Whether a custom resource has the place of the one that is gone."""
        informer = self.world.resources.get(stone.kind)
        found = None if informer is None else informer.get(stone.key)
        # The one that left the tombstone may still be seen, on its way out.
        return found is not None and not is_deleting(found) and is_same_target(found, stone)

    def leave(self, key: Key) -> None:
        """A tombstone is gone."""
        profile = self.held.pop(key, None)
        if profile is not None:
            self.spokes.leave(profile, holder_of(key))


def is_same_target(manifest: Object, stone: Tombstone) -> bool:
    """Whether a custom resource is installed where another one of its name was."""
    uid = annotations_of(manifest).get(TARGET_UID, "")
    return profile_of(manifest) == stone.profile_key or (
        bool(stone.target_uid) and uid == stone.target_uid
    )


def holder_of(key: Key) -> str:
    """Who needs a connection, in words."""
    return f"tombstone {key}"


def requests(change: StoreChange) -> Iterable[Request]:
    """What must be looked at after a change of a tombstone."""
    yield Request(HUB, change.key)
