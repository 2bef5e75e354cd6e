"""Which cluster a custom resource is installed on, behind one small seam.

A local custom resource is installed on the hub, owns its objects there, and keeps its inventory in
a ConfigMap beside it. One that names a ClusterProfile is installed on that spoke (see
`knative.spokes`).
"""

import hashlib
from typing import Protocol

from msgspec import Struct

from knfleet.api.meta import HUB, ClusterName, Key, Object
from knfleet.apply.desired import OwnerReferences
from knfleet.clusters.anchor import AnchorSpec
from knfleet.kube.client.verbs import Client
from knfleet.operator.kinds import profile_of

LONGEST_NAME = 253


class TargetError(Exception):
    """The target cannot be used now."""

    def __init__(self, reason: str, message: str, *, is_lasting: bool = True) -> None:
        super().__init__(message)
        self.reason = reason
        """One of the reasons of the condition TargetClusterResolved."""
        self.is_lasting = is_lasting
        """Whether it may last; what only passes is not worth a decision."""


class Target(Struct, frozen=True):
    """A cluster that one custom resource is installed on."""

    cluster: ClusterName
    client: Client
    owners: OwnerReferences
    """What everything in the namespace belongs to."""
    parent: Key
    """The ConfigMap there that says which objects belong to the custom resource."""
    root: AnchorSpec | None = None
    """How the anchor must be, on a spoke."""
    was_used: bool = False
    """Whether something may have been installed there before."""
    just_read: Object | None = None
    """The parent, if it was read or made just now."""
    empty: frozenset[str] = frozenset()
    """Namespaces that were made just now, so that nothing can be in them."""


class Targets(Protocol):
    """Finds targets."""

    async def resolve(self, manifest: Object) -> Target:
        """The target of a custom resource, ready for its objects.

        Raises `TargetError`, `AnchorError` or `KubeError`.
        """
        ...

    async def find(self, manifest: Object) -> Target:
        """The target of a custom resource that is to be removed; nothing is made there."""
        ...

    async def reach(self, manifest: Object) -> None:
        """Raise `TargetError` unless something could be removed from the target now."""
        ...

    def problem(self, manifest: Object) -> TargetError | None:
        """Why the target cannot be used, as far as that is known without asking it."""
        ...

    def is_away(self, manifest: Object) -> bool:
        """Whether the target does not answer, as far as that is known without asking it."""
        ...

    def forget(self, manifest: Object) -> None:
        """Look at the target anew the next time."""
        ...

    def leave(self, manifest: Object) -> None:
        """A custom resource is gone, and needs its target no more."""
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
        return Target(HUB, self.client, OwnerReferences(manifest), inventory_key(manifest))

    async def find(self, manifest: Object) -> Target:
        return await self.resolve(manifest)

    async def reach(self, manifest: Object) -> None:
        """Nothing that the pass itself would not notice."""

    def problem(self, manifest: Object) -> TargetError | None:
        """Nothing that the pass itself would not notice."""
        return None

    def is_away(self, manifest: Object) -> bool:
        """Nothing that the pass itself would not notice."""
        return False

    def forget(self, manifest: Object) -> None:
        """Nothing is remembered."""

    def leave(self, manifest: Object) -> None:
        """Nothing is held."""


def inventory_key(manifest: Object) -> Key:
    """Where the inventory of a local custom resource is."""
    meta = manifest["metadata"]
    name = f"{manifest['kind'].lower()}-{meta['name']}-inventory"
    if len(name) > LONGEST_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        name = f"{name[: LONGEST_NAME - 17]}-{digest}"
    return Key(meta["namespace"], name)
