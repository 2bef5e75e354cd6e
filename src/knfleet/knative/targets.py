"""Which cluster a custom resource is installed on, behind one small seam.

A local custom resource is installed on the hub, owns its objects there, and keeps its inventory in
a ConfigMap beside it. Whoever knows other clusters brings another `Targets`.
"""

import hashlib
from typing import Protocol

from msgspec import Struct

from knfleet.api.meta import HUB, ClusterName, Key, Object
from knfleet.knative.kinds import profile_of
from knfleet.kube.client import Client

LONGEST_NAME = 253


class TargetError(Exception):
    """The target cannot be used now."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        """One of the reasons of the condition TargetClusterResolved."""


class Target(Struct, frozen=True):
    """A cluster that one custom resource is installed on."""

    cluster: ClusterName
    client: Client
    owner: Object
    """The object there with which everything in its namespace goes."""
    parent: Key
    """The ConfigMap there that says which objects belong to the custom resource."""


class Targets(Protocol):
    """Finds targets."""

    async def resolve(self, manifest: Object) -> Target:
        """The target of a custom resource; raises `TargetError`, or `KubeError`."""
        ...


class LocalTargets:
    """The hub, and nothing else."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def resolve(self, manifest: Object) -> Target:
        """The hub, for a custom resource that names no other cluster."""
        profile = profile_of(manifest)
        if profile is not None:
            raise TargetError(
                "MulticlusterDisabled",
                f"ClusterProfile {profile}: multi-cluster support is disabled: set "
                "--clusterprofile-provider-file to enable",
            )
        return Target(HUB, self.client, manifest, inventory_key(manifest))


def inventory_key(manifest: Object) -> Key:
    """Where the inventory of a local custom resource is."""
    meta = manifest["metadata"]
    name = f"{manifest['kind'].lower()}-{meta['name']}-inventory"
    if len(name) > LONGEST_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        name = f"{name[: LONGEST_NAME - 17]}-{digest}"
    return Key(meta["namespace"], name)
