"""ConfigMaps and Secrets of the namespaces that have real pods, kept in memory while they do."""

import asyncio
import base64
from collections.abc import Callable, Mapping

from knfleet.api.core import CONFIG_MAPS, SECRETS
from knfleet.api.meta import Key
from knfleet.dev.node.pods.pod_manifests import table
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.kube.client.verbs import Client


class NamespaceStore:
    """The ConfigMaps and Secrets of one namespace."""

    def __init__(self, client: Client, namespace: str, changed: Callable[[str], None]) -> None:
        self.namespace = namespace
        self.users: set[str] = set()
        """Identities of the pods that keep this store alive."""
        self.config_maps = Informer(client, CONFIG_MAPS, namespace, trim=without_managed_fields)
        self.secrets = Informer(client, SECRETS, namespace, trim=without_managed_fields)

        def tell(change: StoreChange) -> None:
            changed(change.key.namespace)

        for informer in (self.config_maps, self.secrets):
            informer.on_change(tell)

    async def run(self) -> None:
        """Keep the store up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.config_maps.run())
            group.create_task(self.secrets.run())

    def config_map(self, name: str) -> Mapping[str, bytes] | None:
        """All keys of a ConfigMap, or nothing."""
        found = self.config_maps.get(Key(self.namespace, name))
        if found is None:
            return None
        text = {key: value.encode() for key, value in table(found.get("data")).items()}
        return text | decoded(found.get("binaryData"))

    def secret(self, name: str) -> Mapping[str, bytes] | None:
        """All keys of a Secret, or nothing."""
        found = self.secrets.get(Key(self.namespace, name))
        return None if found is None else decoded(found.get("data"))

    async def known(self) -> None:
        """Wait until everything in the namespace is known."""
        await self.config_maps.synced.wait()
        await self.secrets.synced.wait()


def decoded(table: Mapping[str, str] | None) -> dict[str, bytes]:
    """Values that the API carries as base64."""
    return {key: base64.b64decode(value) for key, value in (table or {}).items()}


class References:
    """One store for each namespace in use."""

    def __init__(
        self, client: Client, group: asyncio.TaskGroup, changed: Callable[[str], None]
    ) -> None:
        self.client = client
        self.group = group
        self.changed = changed
        """Called with the namespace in which something changed."""
        self.stores: dict[str, tuple[NamespaceStore, asyncio.Task[None]]] = {}

    def hold(self, namespace: str, uid: str) -> NamespaceStore:
        """The store of a namespace, kept until this pod and all others release it."""
        if namespace not in self.stores:
            store = NamespaceStore(self.client, namespace, self.changed)
            self.stores[namespace] = store, self.group.create_task(store.run())
        store, _ = self.stores[namespace]
        store.users.add(uid)
        return store

    def release(self, namespace: str, uid: str) -> None:
        """The pod needs the store no longer."""
        if (entry := self.stores.get(namespace)) is None:
            return
        store, task = entry
        store.users.discard(uid)
        if not store.users:
            task.cancel()
            del self.stores[namespace]
