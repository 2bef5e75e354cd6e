"""Taking a cluster out of a fleet, and a hub off its cluster: nothing is left, or it says why."""

from collections.abc import Sequence

from knfleet.api.cluster import AVAILABLE, CLUSTERS, FORCE_DETACH, ManagedCluster
from knfleet.api.hub import AGENT_NAMESPACE, KLUSTERLETS, Klusterlet
from knfleet.api.knative import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.schema import decode
from knfleet.api.standard import is_true
from knfleet.api.work import APPLIED_WORKS
from knfleet.apply.waiting import Collection, follow
from knfleet.fleet.applying import NotInTime, gone, remove_all
from knfleet.fleet.joining import JoinPlan, home_objects
from knfleet.kube.client import Client
from knfleet.kube.errors import KubeError, NotFound


class Attached(Exception):
    """Something must be detached or removed first; the message says what and how."""


async def listed(client: Client, resource: Resource) -> list[Object]:
    """All objects of a kind; none when the cluster does not serve it."""
    try:
        return (await client.list(resource)).items
    except NotFound:
        return []


def names_of(manifests: Sequence[Object]) -> str:
    """Names for a message; not more than a few."""
    names = sorted(str(Key.of(each)) for each in manifests)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def plan_for(klusterlet: Klusterlet) -> JoinPlan:
    """What was once applied for a Klusterlet, as far as it matters for removing it."""
    mode = klusterlet.spec.deploy_option.mode
    name = klusterlet.metadata.name
    hosted = mode in ("Hosted", "SingletonHosted")
    default = klusterlet.spec.namespace or AGENT_NAMESPACE
    return JoinPlan(
        cluster=klusterlet.spec.cluster_name,
        bootstrap=b"",
        image="",
        mode="Hosted" if hosted else "Singleton" if mode == "Singleton" else "Default",
        klusterlet=name,
        namespace=name if hosted else default,
    )


async def unjoin(client: Client, cluster: str, *, purge: bool, seconds: float) -> list[str]:
    """Take the agent off a cluster, with all that came with it; what was removed."""
    found = [decode(each, Klusterlet) for each in await listed(client, KLUSTERLETS)]
    mine = [each for each in found if each.spec.cluster_name == cluster]
    if not mine:
        names = ", ".join(sorted(each.spec.cluster_name for each in found)) or "none"
        raise Attached(f"{client.cluster} is not joined as {cluster}; what is joined here: {names}")
    works = await listed(client, APPLIED_WORKS)
    if works:
        raise Attached(
            f"{len(works)} ManifestWorks are still applied here ({names_of(works)}); delete them on"
            " the hub, or the ManagedCluster, and try again"
        )
    removed: list[str] = []
    for klusterlet in mine:
        keep = not purge or len(found) > len(mine)
        objects = [
            each
            for each in home_objects(plan_for(klusterlet))
            if not (keep and each["kind"] == "CustomResourceDefinition")
        ]
        removed += await remove_all(client, objects)
        await all_gone(client, objects, seconds=seconds)
    return removed


async def all_gone(client: Client, objects: Sequence[Object], *, seconds: float) -> None:
    """Return when namespaces and CRDs are gone; raises `NotInTime`."""
    left = await gone(client, objects, seconds=seconds)
    if left:
        raise NotInTime(
            f"still there after {seconds:.0f} s: {', '.join(left)}; see what blocks their deletion"
            " by `kubectl get … -o yaml`, and run the command again"
        )


async def clean(client: Client, objects: Sequence[Object], *, seconds: float) -> list[str]:
    """Take a hub off its cluster; what was removed."""
    clusters = await listed(client, CLUSTERS)
    attached = [each for each in clusters if is_available(each)]
    if attached:
        raise Attached(
            f"clusters are attached: {names_of(attached)}; run `knfleet unjoin` on each and"
            " `kubectl delete managedcluster` here, then clean again"
        )
    knative = [*await listed(client, SERVINGS), *await listed(client, EVENTINGS)]
    if knative:
        raise Attached(
            f"Knative is installed by this hub: {names_of(knative)}; delete those first, for with"
            " the hub gone nobody removes what they installed"
        )
    for each in clusters:
        await give_up(client, each["metadata"]["name"])
    if clusters:
        await follow(client, Collection(CLUSTERS), lambda found: not found, seconds=seconds)
        if left := await listed(client, CLUSTERS):
            raise NotInTime(f"still there after {seconds:.0f} s: ManagedClusters {names_of(left)}")
    removed = await remove_all(client, objects)
    await all_gone(client, objects, seconds=seconds)
    return removed


def is_available(manifest: Object) -> bool:
    """Whether a cluster is heard of and well."""
    return is_true(decode(manifest, ManagedCluster).status.conditions, AVAILABLE)


async def give_up(client: Client, cluster: str) -> None:
    """Delete a cluster that is not heard of, with what it can no longer clean up."""
    key = Key("", cluster)
    try:
        await client.patch(CLUSTERS, key, {"metadata": {"annotations": {FORCE_DETACH: "0s"}}})
        await client.delete(CLUSTERS, key)
    except NotFound:
        return
    except KubeError as error:
        raise Attached(f"{cluster} cannot be deleted: {error}") from error
