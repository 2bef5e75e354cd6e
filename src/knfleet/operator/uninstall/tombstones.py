"""What is left on spokes that were lost, remembered on the hub until they return.

A tombstone is a ConfigMap in the operator's namespace. It says which custom resource had installed
something, on which cluster, and by which profile that cluster was reached.
"""

import hashlib
from contextlib import suppress

import msgspec
from msgspec import Struct

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import Key, Object
from knfleet.clusters.anchor import AnchorSpec
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, NotFound

LABEL = "knfleet.dev/tombstone"
SELECTOR = f"{LABEL}=true"


class Tombstone(Struct, frozen=True, kw_only=True, rename="camel"):
    """A custom resource that is gone, and whose objects may not be."""

    kind: str
    namespace: str
    name: str
    profile: str
    """Namespace and name of the ClusterProfile."""
    target_uid: str
    """The uid of the cluster's kube-system namespace; empty when it was never noted."""
    when: str

    @property
    def key(self) -> Key:
        """The custom resource."""
        return Key(self.namespace, self.name)

    @property
    def profile_key(self) -> Key:
        """The ClusterProfile."""
        namespace, _, name = self.profile.partition("/")
        return Key(namespace, name)

    def root(self, hub_uid: str) -> AnchorSpec:
        return AnchorSpec(self.kind, self.key, hub_uid)


def name_of(tombstone: Tombstone) -> str:
    """The name of its ConfigMap: one for each custom resource and cluster."""
    words = (tombstone.kind, str(tombstone.key), tombstone.profile, tombstone.target_uid)
    return f"knfleet-tombstone-{hashlib.sha256(' '.join(words).encode()).hexdigest()[:16]}"


def manifest_of(tombstone: Tombstone, namespace: str) -> Object:
    """A tombstone as a ConfigMap."""
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": {
            "name": name_of(tombstone),
            "namespace": namespace,
            "labels": {LABEL: "true", "app.kubernetes.io/managed-by": "knfleet"},
        },
        "data": {
            **msgspec.to_builtins(tombstone),
            "anchor": str(tombstone.root("").key),
        },
    }


def read(manifest: Object) -> Tombstone | None:
    """The tombstone in a ConfigMap; None when it cannot be read."""
    try:
        return msgspec.convert(manifest.get("data") or {}, Tombstone)
    except msgspec.ValidationError:
        return None


class Tombstones:
    """Writes and removes tombstones on the hub."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def write(self, tombstone: Tombstone) -> Key:
        """Set one up, unless it stands already; where it is."""
        manifest = manifest_of(tombstone, self.namespace)
        with suppress(AlreadyExists):
            await self.client.create(CONFIG_MAPS, manifest)
        return Key.of(manifest)

    async def remove(self, key: Key) -> None:
        """Take one away."""
        with suppress(NotFound):
            await self.client.delete(CONFIG_MAPS, key)
