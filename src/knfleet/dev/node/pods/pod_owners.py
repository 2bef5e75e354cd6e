"""The objects that own pods, as far as annotations for the dev node are concerned."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from knfleet.api.core import DAEMON_SETS, DEPLOYMENTS, JOBS, REPLICA_SETS, STATEFUL_SETS
from knfleet.api.meta import Key, Object
from knfleet.dev.node.pods.pod_manifests import annotations_of, controller_of, uid_of
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound

PREFIX = "dev.knfleet.dev/"
KINDS = {each.kind: each for each in (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, JOBS)}
BY_OWNER = "owner"


def trimmed(manifest: Object) -> Object:
    """What the node needs of an owner: names, its own annotations, and who owns it."""
    meta = manifest["metadata"]
    kept = {
        key: meta[key]
        for key in ("name", "namespace", "uid", "resourceVersion", "ownerReferences")
        if key in meta
    }
    kept["annotations"] = {
        key: value for key, value in annotations_of(manifest).items() if key.startswith(PREFIX)
    }
    return {"metadata": kept}


def owner_uid(manifest: Object) -> Iterable[str]:
    """Index by the controller's identity."""
    owner = controller_of(manifest)
    return [owner["uid"]] if owner else []


class PodOwners:
    """Everything that can be a pod's topmost owner."""

    def __init__(self, client: Client, changed: Callable[[str], None]) -> None:
        self.client = client
        self.changed = changed
        """Called with the identity of an object whose pods may have to behave differently."""
        self.informers = {
            kind: Informer(
                client,
                resource,
                metadata_only=True,
                trim=trimmed,
                indexes={BY_OWNER: owner_uid} if resource is REPLICA_SETS else {},
            )
            for kind, resource in KINDS.items()
        }
        for informer in self.informers.values():
            informer.on_change(self.compare)

    def compare(self, change: StoreChange) -> None:
        """Tell about the pods of an owner whose annotations changed."""
        if annotations_of(change.old) == annotations_of(change.new):
            return
        manifest = change.new or change.old
        if manifest is None:
            return
        self.changed(uid_of(manifest))
        for replica_set in self.informers["ReplicaSet"].by_index(BY_OWNER, uid_of(manifest)):
            self.changed(uid_of(replica_set))

    async def run(self) -> None:
        """Keep all owners up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers.values():
                group.create_task(informer.run())

    async def synced(self) -> None:
        """Wait until all owners are known."""
        for informer in self.informers.values():
            await informer.synced.wait()

    async def annotations(self, pod: Object) -> Mapping[str, str]:
        """The annotations of the pod's topmost owner; none if it has no owner that we know."""
        manifest: Object | None = pod
        topmost: Object | None = None
        while manifest is not None:
            manifest = await self.owner(manifest)
            topmost = manifest or topmost
        return annotations_of(topmost)

    async def owner(self, manifest: Object) -> Object | None:
        """The controller of an object, asked from the server if the watch is behind."""
        reference = controller_of(manifest)
        if reference is None or reference["kind"] not in KINDS:
            return None
        key = Key(manifest["metadata"].get("namespace", ""), reference["name"])
        found = self.informers[reference["kind"]].get(key)
        if found is None or uid_of(found) != reference["uid"]:
            try:
                found = await self.client.get(KINDS[reference["kind"]], key.name, key.namespace)
            except NotFound:
                return None
        return found if uid_of(found) == reference["uid"] else None
