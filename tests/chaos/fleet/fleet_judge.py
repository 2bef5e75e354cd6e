"""Whether a fleet is as it is wanted: one check for each controller of the hub that spreads."""

from collections.abc import Iterable

from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.addon.names import DEFAULT_NAMESPACE
from knfleet.api.cluster.managedcluster import AVAILABLE, CLUSTERS
from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS
from knfleet.api.meta import Object
from knfleet.api.work.manifestwork import WORKS
from knfleet.api.work.replicaset import REPLICA_SET_LABEL
from knfleet.apply.manifest_fields import items, part
from tests.chaos.fleet.fleet_stage import (
    BY_TUNNEL,
    GREETING,
    NAME,
    SERVING,
    SPACE,
    SPREAD,
    FleetStage,
    WantedFleet,
)
from tests.chaos.works.works_stage import Member
from tests.support.knative_fleets import children, is_ready, version_of
from tests.support.placements import clusters_in, objects_of
from tests.support.tunnel_objects import access_provider
from tests.support.works import conditions


async def fleet_problems(stage: FleetStage) -> list[str]:
    """What of a fleet is not as it is wanted."""
    client = stage.client
    decided = clusters_in(await objects_of(client, SPACE, NAME))
    labels = f"{REPLICA_SET_LABEL}={SPACE}.{NAME}"
    works = (await client.list(WORKS, labels=labels)).items
    found = (await client.list(ADDONS)).items
    clusters = (await client.list(CLUSTERS)).items
    said = [
        *decision_problems(stage.wanted, decided),
        *work_problems(decided, works),
        *place_problems("add-on", decided, (part(each, "metadata") for each in found)),
        *child_problems(decided, await children(client), stage.wanted.version),
        *driver_problems(clusters),
        *history_problems(stage.decisions.seen),
    ]
    tunnelled = list(stage.members)[BY_TUNNEL]
    if "proxy-url" not in (await access_provider(client, tunnelled) or {}):
        said.append(f"the ClusterProfile of {tunnelled} does not lead through the tunnel")
    for member in stage.members.values():
        said += await cluster_problems(member, stage.wanted, chosen=member.name in decided)
    return said


def decision_problems(wanted: WantedFleet, decided: list[str]) -> list[str]:
    """Exactly as many clusters are selected as can be, all of them with the label, each once."""
    said = [f"{name} is selected" for name in sorted(set(decided) - wanted.chosen)]
    if len(decided) != wanted.count or len(set(decided)) != len(decided):
        said.append(f"{decided} are selected, {wanted.count} of {sorted(wanted.chosen)} should be")
    return said


def history_problems(seen: Iterable[frozenset[str]]) -> list[str]:
    """Some cluster could always be selected, so at no moment was none."""
    return ["a reader of the decisions saw none"] if frozenset() in seen else []


def place_problems(what: str, decided: list[str], metas: Iterable[Object]) -> list[str]:
    """Every selected cluster has one, and no other has any."""
    there = sorted(meta["namespace"] for meta in metas)
    return [] if there == sorted(decided) else [f"{what}: {there} instead of {sorted(decided)}"]


def work_problems(decided: list[str], works: list[Object]) -> list[str]:
    """Every selected cluster has the work of the replica set, and it is applied."""
    said = place_problems("replica set", decided, (part(each, "metadata") for each in works))
    for work in works:
        generation = work["metadata"]["generation"]
        applied = conditions(work).get("Applied", {})
        if (applied.get("status"), applied.get("observedGeneration")) != ("True", generation):
            said.append(f"the work of {work['metadata']['namespace']} is not applied")
    return said


def child_problems(decided: list[str], there: dict[str, Object], version: str) -> list[str]:
    """Every selected cluster has a custom resource of the fleet, ready at its version."""
    said: list[str] = []
    if sorted(there) != sorted(decided):
        said.append(f"Knative is on {sorted(there)} instead of {sorted(decided)}")
    for name, child in there.items():
        if version_of(child) != version or part(child, "status").get("version") != version:
            said.append(f"Knative on {name} does not have the version {version}")
        elif not is_ready(child):
            said.append(f"Knative on {name} is not ready")
    return said


def driver_problems(clusters: list[Object]) -> list[str]:
    """However a cluster has joined, its agent is heard of."""
    return [
        f"cluster {each['metadata']['name']} is not available"
        for each in clusters
        if not any(
            found["type"] == AVAILABLE and found["status"] == "True"
            for found in items(each, "status", "conditions")
        )
    ]


async def cluster_problems(member: Member, wanted: WantedFleet, *, chosen: bool) -> list[str]:
    """A selected cluster has all objects as they are wanted, and any other has none of them."""
    said: list[str] = []
    for space, name, text in (
        ("default", SPREAD, wanted.spread),
        (DEFAULT_NAMESPACE, GREETING, wanted.greeting),
    ):
        listed = await member.client.list(CONFIG_MAPS, space, fields=f"metadata.name={name}")
        data = [each["data"] for each in listed.items]
        if data != ([{"text": text}] if chosen else []):
            said.append(f"{name} on {member.name} is {data}, selected: {chosen}")
    made = (await member.client.list(DEPLOYMENTS, SERVING)).items
    if bool(made) != chosen:
        said.append(f"{member.name} has {len(made)} Deployments of Knative, selected: {chosen}")
    said += [
        f"Deployment {each['metadata']['name']} on {member.name} was not repaired"
        for each in made
        if each["spec"]["replicas"] != 1
    ]
    return said
