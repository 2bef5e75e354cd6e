"""AppliedManifestWork: what one ManifestWork created on the cluster; it owns those objects.

It lives on the spoke, so that the objects are known, and can be deleted, without the hub.
"""

import hashlib
from typing import Annotated, ClassVar

from msgspec import Struct, field

from knfleet.api.meta import Resource
from knfleet.api.schema import ObjectMeta, doc
from knfleet.api.work.manifestwork import GROUP

APPLIED_WORKS = Resource(
    GROUP, "v1", "AppliedManifestWork", "appliedmanifestworks", namespaced=False
)
APPLIED_WORK_FINALIZER = "cluster.open-cluster-management.io/applied-manifest-work-cleanup"
"""Keeps an AppliedManifestWork until the agent has removed what it owns."""


def hub_hash(server: str) -> str:
    """What tells hubs apart on a spoke: SHA-256 of the hub's URL as the kubeconfig has it."""
    return hashlib.sha256(server.encode()).hexdigest()


def applied_work_name(hub: str, work: str) -> str:
    """Name of the AppliedManifestWork of a work, from the hash of its hub."""
    return f"{hub}-{work}"


class AppliedManifestWorkSpec(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """Which work was applied."""

    hub_hash: Annotated[str, doc("Tells hubs apart: a hash of the hub's URL.")]
    manifest_work_name: Annotated[str, doc("Name of the ManifestWork on the hub.")]
    agent_id: Annotated[str, doc("The agent that applied it.")] = field(default="", name="agentID")


class AppliedResource(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, order=True
):
    """An object that was applied; sorted as the status lists them."""

    group: Annotated[str, doc("API group; empty for the core group.")] = ""
    version: Annotated[str, doc("API version.")]
    resource: Annotated[str, doc("Plural name of the kind.")]
    namespace: Annotated[str, doc("Namespace of the object.")] = ""
    name: Annotated[str, doc("Name of the object.")]
    uid: Annotated[str, doc("UID of the object.")] = ""


class AppliedManifestWorkStatus(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """What was applied."""

    applied_resources: Annotated[list[AppliedResource], doc("The objects.")] = []
    eviction_start_time: Annotated[
        str, doc("Since when the hub has no such work.", format="date-time")
    ] = ""


class AppliedManifestWork(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a ManifestWork created on this cluster; owns all of it."""

    resource: ClassVar[Resource] = APPLIED_WORKS

    spec: Annotated[AppliedManifestWorkSpec, doc("Which work was applied.")]
    metadata: ObjectMeta = ObjectMeta()
    status: Annotated[AppliedManifestWorkStatus, doc("What was applied.")] = (
        AppliedManifestWorkStatus()
    )
