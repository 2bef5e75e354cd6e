"""The fleet, read from the hub: four lists, whatever the number of clusters.

Nothing is asked of the clusters themselves. Objects are read leniently: one that is odd becomes a
row that says little, and takes nothing from the others.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from msgspec import Struct

from knfleet.api.cluster.managedcluster import (
    ACCEPTED,
    AVAILABLE,
    CLUSTER_NAME_LABEL,
    CLUSTERS,
    JOINED,
    SET_LABEL,
)
from knfleet.api.cluster.tunnel import REACHED_BY, TUNNEL_ROUND_TRIP, TUNNEL_SINCE
from knfleet.api.inventory import CONTROL_PLANE_HEALTHY, PROFILES
from knfleet.api.inventory import JOINED as PROFILE_JOINED
from knfleet.api.knative.conditions import READY, Condition, Status, find, timestamp
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import items, part
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Forbidden, KubeError, NotFound
from knfleet.operator.kinds import is_deleting, is_paused, profile_of, uid_of
from knfleet.view.fleet_model import (
    ClusterRow,
    FleetView,
    InstallRow,
    Stand,
    cluster_order,
    install_order,
)
from knfleet.view.progress import progress_of

KINDS = (CLUSTERS, PROFILES, SERVINGS, EVENTINGS)
"""What a fleet is read from."""
HUB_TARGET = "hub"
PROFILE_SET_LABEL = "multicluster.x-k8s.io/clusterset"
BUSY = frozenset({"", "Installing", "NotReady", "NotKnown", "Uninstalling"})
"""Reasons of what is on its way, and needs no action."""
STUCK = "has timed out progressing"
"""What Kubernetes says of a Deployment that does not get there by itself."""


class HubObjects(Struct, frozen=True):
    """The hub's objects, as lists or informers have them."""

    clusters: Sequence[Object] = ()
    profiles: Sequence[Object] = ()
    servings: Sequence[Object] = ()
    eventings: Sequence[Object] = ()
    warnings: tuple[str, ...] = ()
    """What could not be read, and why."""
    left_out: tuple[Resource, ...] = ()
    """The kinds that could not be read."""


async def read_fleet(client: Client) -> FleetView:
    """The fleet of a hub, by one list for each kind.

    Kinds that the hub does not have count as empty, with a warning; so do those that the user may
    not list, unless that is all of them.
    """
    return fleet_of(await read_objects(client), datetime.now(UTC))


async def read_objects(client: Client, *, metadata_only: bool = False) -> HubObjects:
    """What a fleet is read from, as it is now; for names, metadata will do."""
    answers = await asyncio.gather(
        *(listed(client, resource, metadata_only=metadata_only) for resource in KINDS)
    )
    failures = {
        resource: answer
        for resource, answer in zip(KINDS, answers, strict=True)
        if isinstance(answer, KubeError)
    }
    for error in failures.values():
        is_passed_over = isinstance(error, NotFound) or (
            isinstance(error, Forbidden) and len(failures) < len(KINDS)
        )
        if not is_passed_over:
            raise error
    lists = [[] if isinstance(each, KubeError) else each for each in answers]
    warnings = tuple(warning(resource, error) for resource, error in failures.items())
    return HubObjects(*lists, warnings=warnings, left_out=tuple(failures))


async def listed(
    client: Client, resource: Resource, *, metadata_only: bool
) -> list[Object] | KubeError:
    """All objects of a kind, or why there are none."""
    try:
        return (await client.list(resource, metadata_only=metadata_only)).items
    except KubeError as error:
        return error


def warning(resource: Resource, error: KubeError) -> str:
    """Why a kind is left out."""
    if isinstance(error, NotFound):
        return f"{resource} are not installed on this cluster"
    return f"{resource} are left out: {error}"


def fleet_of(objects: HubObjects, now: datetime) -> FleetView:
    """All clusters and installations, broken ones first, then by name."""
    homes = clusters_of_profiles(objects)
    installs = [
        install_row(manifest, kind.kind, homes)
        for kind, manifests in ((SERVINGS, objects.servings), (EVENTINGS, objects.eventings))
        for manifest in manifests
    ]
    versions = {
        (row.cluster, row.kind): row.installed
        for row in sorted(installs, key=lambda row: row.installed)
        if row.cluster
    }
    profiles: dict[str, list[str]] = {}
    for profile, home in sorted(homes.items()):
        profiles.setdefault(home, []).append(profile)
    published = {str(Key.of(each)): each for each in objects.profiles}
    rows = [
        reached_row(cluster_row(each, tuple(profiles.get(name_of(each), ()))), published)
        for each in objects.clusters
    ]
    managed = {row.name for row in rows}
    rows += [
        profile_row(each) for each in objects.profiles if homes[str(Key.of(each))] not in managed
    ]
    clusters = [
        msgspec.structs.replace(
            row,
            serving=versions.get((row.name, SERVINGS.kind), ""),
            eventing=versions.get((row.name, EVENTINGS.kind), ""),
        )
        for row in rows
    ]
    return FleetView(
        clusters=tuple(sorted(clusters, key=cluster_order)),
        installs=tuple(sorted(installs, key=install_order)),
        when=timestamp(now),
        warnings=objects.warnings,
    )


def reached_row(row: ClusterRow, published: Mapping[str, Object]) -> ClusterRow:
    """A cluster with what its profiles say about the way to it."""
    for name in row.profiles:
        found = {
            str(each.get("name", "")): str(each.get("value", ""))
            for each in items(published[name], "status", "properties")
        }
        if REACHED_BY in found:
            return msgspec.structs.replace(
                row,
                reached_by=found[REACHED_BY],
                tunnel_since=found.get(TUNNEL_SINCE, ""),
                round_trip_milliseconds=found.get(TUNNEL_ROUND_TRIP, ""),
            )
    return row


def clusters_of_profiles(objects: HubObjects) -> dict[str, str]:
    """The name of the cluster's row for each profile; a profile without a cluster is its own."""
    managed = {name_of(each) for each in objects.clusters}
    found: dict[str, str] = {}
    for profile in objects.profiles:
        key = str(Key.of(profile))
        named = str(part(profile, "metadata", "labels").get(CLUSTER_NAME_LABEL, ""))
        found[key] = named if named in managed else key
    return found


def cluster_row(manifest: Object, profiles: tuple[str, ...]) -> ClusterRow:
    """What is known of a cluster that asked to join."""
    conditions = conditions_of(manifest)
    available, joined = find(conditions, AVAILABLE), find(conditions, JOINED)
    accepted = part(manifest, "spec").get("hubAcceptsClient") is True
    is_joined = joined is not None and joined.status == "True"
    condition = available if accepted else find(conditions, ACCEPTED)
    labels = part(manifest, "metadata", "labels")
    row = ClusterRow(
        name=name_of(manifest),
        profiles=profiles,
        stand=cluster_state(available, is_expected=accepted and is_joined),
        health="" if available is None else available.status,
        kubernetes=str(part(manifest, "status", "version").get("kubernetes", "")),
        sets=tuple(filter(None, [str(labels.get(SET_LABEL, ""))])),
        accepted=accepted,
        joined=is_joined,
        deleting=is_deleting(manifest),
    )
    if condition is None:
        return msgspec.structs.replace(row, message=waits_for(row), since=created(manifest))
    return msgspec.structs.replace(
        row,
        reason=condition.reason,
        message=condition.message,
        since=condition.last_transition_time,
    )


def waits_for(row: ClusterRow) -> str:
    """What a cluster without a condition waits for."""
    if not row.accepted:
        return f"waiting for acceptance: knfleet accept --clusters {row.name}"
    return "its agent has not reported yet"


def cluster_state(health: Condition | None, *, is_expected: bool) -> Stand:
    """How a cluster stands; one that has not joined yet is no problem."""
    if health is None or (not is_expected and health.status != "True"):
        return "busy"
    if health.status == "True":
        return "ok"
    return "bad"


def profile_row(manifest: Object) -> ClusterRow:
    """What is known of a cluster that another manager publishes."""
    conditions = conditions_of(manifest)
    healthy, joined = find(conditions, CONTROL_PLANE_HEALTHY), find(conditions, PROFILE_JOINED)
    labels = part(manifest, "metadata", "labels")
    key = str(Key.of(manifest))
    row = ClusterRow(
        name=key,
        profiles=(key,),
        stand=cluster_state(healthy, is_expected=True),
        kubernetes=str(part(manifest, "status", "version").get("kubernetes", "")),
        sets=tuple(filter(None, [str(labels.get(PROFILE_SET_LABEL, ""))])),
        accepted=True,
        joined=joined is None or joined.status == "True",
        deleting=is_deleting(manifest),
    )
    if healthy is None:
        message = "its cluster manager has not reported whether it is healthy"
        return msgspec.structs.replace(row, message=message, since=created(manifest))
    return msgspec.structs.replace(
        row,
        health=healthy.status,
        reason=healthy.reason,
        message=healthy.message,
        since=healthy.last_transition_time,
    )


def install_row(manifest: Object, kind: str, homes: dict[str, str]) -> InstallRow:
    """How an installation stands; `homes` names the clusters of profiles."""
    conditions = conditions_of(manifest)
    ready = find(conditions, READY)
    status: Status = "Unknown" if ready is None else ready.status
    profile = profile_of(manifest)
    row = InstallRow(
        kind=kind,
        namespace=str(manifest["metadata"].get("namespace", "")),
        name=name_of(manifest),
        uid=uid_of(manifest),
        target=HUB_TARGET if profile is None else str(profile),
        cluster="" if profile is None else homes.get(str(profile), ""),
        wanted=str(part(manifest, "spec").get("version") or ""),
        installed=str(part(manifest, "status").get("version") or ""),
        stand=install_state(manifest, ready),
        ready=status,
        conditions=conditions,
        progress=progress_of(conditions),
        paused=is_paused(manifest),
        deleting=is_deleting(manifest),
    )
    if ready is None:
        message = "no operator has reconciled it yet"
        return msgspec.structs.replace(row, message=message, since=created(manifest))
    return msgspec.structs.replace(
        row, reason=ready.reason, message=ready.message, since=ready.last_transition_time
    )


def install_state(manifest: Object, ready: Condition | None) -> Stand:
    """How an installation stands, as its conditions say of its newest generation."""
    if ready is None:
        return "unknown"
    seen = part(manifest, "status").get("observedGeneration", 0)
    if isinstance(seen, int) and seen < manifest["metadata"].get("generation", 0):
        return "busy"
    if ready.reason not in BUSY or STUCK in ready.message:
        return "bad" if ready.status != "True" else "ok"
    if is_deleting(manifest):
        return "busy"
    return "ok" if ready.status == "True" else "busy"


def conditions_of(manifest: Object) -> tuple[Condition, ...]:
    """The conditions of an object; those that cannot be read are passed over."""
    return tuple(each for each in map(condition, items(manifest, "status", "conditions")) if each)


def condition(value: Any) -> Condition | None:
    """A condition of whichever kind; None when it is none."""
    try:
        return msgspec.convert(value, Condition)
    except msgspec.ValidationError:
        return None


def name_of(manifest: Object) -> str:
    return cast("str", manifest["metadata"]["name"])


def created(manifest: Object) -> str:
    """When an object was made."""
    return str(manifest["metadata"].get("creationTimestamp", ""))
