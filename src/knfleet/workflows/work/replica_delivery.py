"""What `create work --placement` does on the hub: the clusters of a Placement, or a replica set."""

from typing import Literal

from msgspec import Struct

from knfleet.api.cluster.placement import DECISIONS, PLACEMENT_LABEL, PLACEMENTS
from knfleet.api.meta import Key, Object
from knfleet.api.work.replicaset import REPLICA_SETS
from knfleet.hub.placement.decisions.decision_groups import decided_groups
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, NotFound
from knfleet.workflows.work.work_delivery import DeliveryWish, WorkError
from knfleet.workflows.work.work_split import split


class Replicated(Struct, frozen=True):
    """What happened to a replica set."""

    outcome: Literal["create", "update"]
    key: Key

    def __str__(self) -> str:
        return f"{self.outcome} replica set {self.key}"


async def check_placement(client: Client, placement: Key) -> None:
    """Raise `WorkError` when there is no such Placement."""
    try:
        await client.get(PLACEMENTS, placement.name, placement.namespace)
    except NotFound as error:
        raise WorkError(
            f"Placement {placement} does not exist; `knfleet get placements` lists those that do"
        ) from error


async def selected_clusters(client: Client, placement: Key) -> list[str]:
    """The clusters that a Placement selects now."""
    await check_placement(client, placement)
    labels = f"{PLACEMENT_LABEL}={placement.name}"
    decisions = (await client.list(DECISIONS, placement.namespace, labels=labels)).items
    found = [cluster for group in decided_groups(decisions) for cluster in group.clusters]
    if not found:
        raise WorkError(
            f"Placement {placement} selects no clusters; see why: knfleet placement explain"
            f" {placement.name} -n {placement.namespace}"
        )
    return found


async def replicate(client: Client, wish: DeliveryWish, placement: Key) -> Replicated:
    """Write a replica set for the clusters of a Placement, beside it."""
    await check_placement(client, placement)
    if len(split(wish.name, wish.manifests)) > 1:
        raise WorkError(
            f"{wish.name} is larger than one work can be, and a replica set has one for each"
            " cluster; divide the files among several replica sets"
        )
    key = Key(placement.namespace, wish.name)
    spec: Object = {
        "placementRefs": [{"name": placement.name}],
        "manifestWorkTemplate": {"workload": {"manifests": wish.manifests}},
    }
    manifest: Object = {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": spec,
    }
    try:
        await client.create(REPLICA_SETS, manifest, dry_run=wish.dry_run)
    except AlreadyExists as error:
        if not wish.overwrite:
            raise WorkError(
                f"replica set {key} already exists; --overwrite changes its objects"
            ) from error
        template = {"workload": {"manifests": wish.manifests}}
        patch: Object = {"spec": {"manifestWorkTemplate": template}}
        await client.patch(REPLICA_SETS, key, patch, dry_run=wish.dry_run)
        return Replicated("update", key)
    return Replicated("create", key)
