"""ManifestWork and AppliedManifestWork, as far as agents and detaching need them."""

from typing import Annotated, ClassVar

from msgspec import Struct, field

from knfleet.api.conditions import BY_TYPE, StandardCondition
from knfleet.api.meta import Resource
from knfleet.api.schema import Free, ObjectMeta, doc

GROUP = "work.open-cluster-management.io"
WORKS = Resource(GROUP, "v1", "ManifestWork", "manifestworks")
APPLIED_WORKS = Resource(
    GROUP, "v1", "AppliedManifestWork", "appliedmanifestworks", namespaced=False
)
WORK_FINALIZER = "cluster.open-cluster-management.io/manifest-work-cleanup"
"""Keeps a ManifestWork until the agent has removed what it applied."""


class Workload(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Objects for the cluster."""

    manifests: Annotated[list[Free], doc("The objects, each as its kind has it.")] = []


class WorkSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a cluster is to have."""

    workload: Annotated[Workload, doc("Objects for the cluster.")] = Workload()
    delete_option: Annotated[Free | None, doc("What becomes of them with the work.")] = None
    manifest_configs: Annotated[list[Free], doc("How single objects are treated.")] = []
    executor: Annotated[Free | None, doc("In whose name they are applied.")] = None


class WorkStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What became of the objects."""

    conditions: Annotated[list[StandardCondition], doc("How it stands, by type.", **BY_TYPE)] = []
    resource_status: Annotated[Free | None, doc("How single objects stand.")] = None


class ManifestWork(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Objects that the agent of a cluster applies there."""

    resource: ClassVar[Resource] = WORKS

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[WorkSpec, doc("What the cluster is to have.")] = WorkSpec()
    status: Annotated[WorkStatus, doc("What became of it.")] = WorkStatus()


class AppliedWorkSpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Which work was applied."""

    manifest_work_name: Annotated[str, doc("Name of the ManifestWork on the hub.")] = ""
    hub_hash: Annotated[str, doc("Tells hubs apart: a hash of the hub's address.")] = ""
    agent_id: Annotated[str, doc("The agent that applied it.")] = field(default="", name="agentID")


class AppliedResource(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An object that was applied."""

    name: Annotated[str, doc("Name of the object.")]
    version: Annotated[str, doc("Version of its API.")]
    resource: Annotated[str, doc("Plural name of its kind.")]
    group: Annotated[str, doc("Group of its API.")] = ""
    namespace: Annotated[str, doc("Namespace of the object.")] = ""
    uid: Annotated[str, doc("Identifier of the object.")] = ""


class AppliedWorkStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What was applied."""

    applied_resources: Annotated[list[AppliedResource], doc("The objects.")] = []
    eviction_start_time: Annotated[
        str, doc("Since when nobody asks for it any more.", format="date-time")
    ] = ""


class AppliedManifestWork(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a ManifestWork made on this cluster; owns all of it."""

    resource: ClassVar[Resource] = APPLIED_WORKS

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[AppliedWorkSpec, doc("Which work was applied.")] = AppliedWorkSpec()
    status: Annotated[AppliedWorkStatus, doc("What was applied.")] = AppliedWorkStatus()
