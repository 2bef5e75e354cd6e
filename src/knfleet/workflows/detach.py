"""Taking a cluster out of a fleet, and a hub off its cluster: nothing is left, or it says why."""

import base64
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from knfleet.api.certificate_requests import CSRS, SIGNER
from knfleet.api.cluster.managedcluster import (
    AVAILABLE,
    CLUSTER_NAME_LABEL,
    CLUSTERS,
    DELETING,
    FORCE_DETACH,
    ManagedCluster,
)
from knfleet.api.conditions import find, is_true
from knfleet.api.core import CLUSTER_ROLES, ROLE_BINDINGS, SECRETS
from knfleet.api.fleet.fleet_names import FLEET_LABEL, KNATIVE_FLEETS
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.operator import AGENT_NAMESPACE, KLUSTERLETS, OPERATOR_NAMESPACE, Klusterlet
from knfleet.api.schema import decode
from knfleet.api.work.appliedmanifestwork import APPLIED_WORKS
from knfleet.api.work.manifestwork import WORKS
from knfleet.apply.manifest_fields import part
from knfleet.apply.observe.collection import Collection, follow
from knfleet.hub.profiles.rights import TOKENS_ROLE
from knfleet.hub.registration.rbac import OLD_SHARED_ROLES
from knfleet.install.access_manifests import removable
from knfleet.install.agent_manifests import (
    EXTERNAL_SECRET,
    AgentInstall,
    home_objects,
    managed_objects,
)
from knfleet.kube.auth.kubeconfig import connect, parse
from knfleet.kube.auth.kubeconfig_entries import EntryOrigin
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError, NotFound
from knfleet.workflows.hub_discovery import BRIEF
from knfleet.workflows.join_token import TOKEN_SECRET
from knfleet.workflows.object_lists import WaitTimeout, called, gone, remove_all
from knfleet.workflows.spoke_access import unused_roles


class StillAttached(Exception):
    """Something must be detached or removed first; the message says what and how."""


async def listed(client: Client, resource: Resource) -> list[Object]:
    """All objects of a kind; none when the cluster does not serve it."""
    try:
        return (await client.list(resource)).items
    except NotFound:
        return []


def names_of(manifests: Sequence[Object]) -> str:
    """Names for a message; not more than a few."""
    return few(sorted(str(Key.of(each)) for each in manifests))


def few(names: Sequence[str]) -> str:
    """Names for a message; not more than a few."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def plan_for(klusterlet: Klusterlet) -> AgentInstall:
    """What was once applied for a Klusterlet, as far as it matters for removing it."""
    mode = klusterlet.spec.deploy_option.mode
    name = klusterlet.metadata.name
    hosted = mode in ("Hosted", "SingletonHosted")
    default = klusterlet.spec.namespace or AGENT_NAMESPACE
    return AgentInstall(
        cluster=klusterlet.spec.cluster_name,
        bootstrap=b"",
        image="",
        mode="Hosted" if hosted else "Singleton" if mode == "Singleton" else "Default",
        klusterlet=name,
        namespace=name if hosted else default,
    )


class DetachOptions(Struct, frozen=True):
    """How something is to be taken off a cluster."""

    purge: bool = True
    """Whether our CRDs go too."""
    force: bool = False
    """Whether a cluster that is managed from elsewhere is left as it is."""
    dry_run: bool = False
    """Whether to return only what would be removed."""
    seconds: float = 300.0


async def unjoin(client: Client, cluster: str, leave: DetachOptions) -> list[str]:
    """Take the agent off a cluster, with all that came with it; what was removed.

    A cluster that is managed from here is cleaned as well.
    """
    found = [decode(each, Klusterlet) for each in await listed(client, KLUSTERLETS)]
    mine = [each for each in found if each.spec.cluster_name == cluster]
    if not mine:
        names = ", ".join(sorted(each.spec.cluster_name for each in found)) or "none"
        raise StillAttached(
            f"{client.cluster} is not joined as {cluster}; what is joined here: {names}"
        )
    removed: list[str] = []
    for plan in map(plan_for, mine):
        if plan.mode != "Hosted":
            await check_works(client)
        elif not leave.force:
            removed += await clear_managed(client, plan, leave)
        keep = not leave.purge or len(found) > len(mine)
        objects = [
            each
            for each in removable(home_objects(plan), plan.rights)
            if not (keep and each["kind"] == "CustomResourceDefinition")
        ]
        if plan.mode != "Hosted":
            objects = [*await unused_roles(client), *objects]
        removed += await remove_objects(client, objects, leave)
    return removed


async def remove_objects(
    client: Client, objects: Sequence[Object], leave: DetachOptions
) -> list[str]:
    """Remove objects, and return when they are gone; what was removed, or would be."""
    if leave.dry_run:
        return [called(each) for each in reversed(objects)]
    removed = await remove_all(client, objects)
    await all_gone(client, objects, seconds=leave.seconds)
    return removed


async def check_works(client: Client) -> None:
    """Raise `StillAttached` while a hub's works are on a cluster."""
    works = await listed(client, APPLIED_WORKS)
    if works:
        named = sorted(str(part(each, "spec").get("manifestWorkName", "")) for each in works)
        raise StillAttached(
            f"{len(works)} ManifestWorks are still applied here ({few(named)}); on the hub, delete"
            " them with `knfleet delete work`, or all with the cluster by `knfleet detach`, and try"
            " again"
        )


async def works_on(client: Client, cluster: str = "") -> list[Key]:
    """The works of a cluster, or of all."""
    try:
        found = await client.list(WORKS, cluster, metadata_only=True)
    except NotFound:
        return []
    return sorted(Key.of(each) for each in found.items)


async def clear_managed(home: Client, plan: AgentInstall, leave: DetachOptions) -> list[str]:
    """Clean a cluster that is managed from elsewhere; what was removed."""
    try:
        secret = await home.get(SECRETS, EXTERNAL_SECRET, plan.namespace)
        text = base64.b64decode(part(secret, "data").get("kubeconfig", ""))
        where = EntryOrigin(f"Secret {plan.namespace}/{EXTERNAL_SECRET}")
        async with Client(connect(parse(text, where)), BRIEF) as managed:
            await check_works(managed)
            objects = removable(managed_objects(plan), plan.rights)
            return await remove_objects(managed, [*await unused_roles(managed), *objects], leave)
    except KubeError as error:
        raise StillAttached(
            f"{plan.cluster} cannot be cleaned: {error}; if it no longer exists, unjoin it with"
            " --force, which does not clean it"
        ) from error


async def all_gone(client: Client, objects: Sequence[Object], *, seconds: float) -> None:
    """Return when namespaces and CRDs are gone; raises `WaitTimeout`."""
    left = await gone(client, objects, seconds=seconds)
    if left:
        raise WaitTimeout(
            f"still there after {seconds:.0f} s: {', '.join(left)}; see what blocks their deletion"
            " by `kubectl get … -o yaml`, and run the command again"
        )


async def clean(client: Client, objects: Sequence[Object], leave: DetachOptions) -> list[str]:
    """Take a hub off its cluster; what was removed."""
    clusters = await listed(client, CLUSTERS)
    attached = [each for each in clusters if is_available(each)]
    if attached:
        raise StillAttached(
            f"clusters are attached: {names_of(attached)}; run `knfleet unjoin` on each and"
            " `kubectl delete managedcluster` here, then clean again"
        )
    if fleets := await listed(client, KNATIVE_FLEETS):
        raise StillAttached(
            f"fleets of Knative are here: {names_of(fleets)}; delete those first with"
            " `kubectl delete knativefleet NAME`"
        )
    knative = [*await listed(client, SERVINGS), *await listed(client, EVENTINGS)]
    if knative:
        raise StillAttached(
            f"Knative is installed by this hub: {names_of(knative)}; delete those first, because"
            " without the hub their objects would not be removed"
        )
    works = await works_on(client)
    known = {each["metadata"]["name"] for each in clusters}
    if stray := [each for each in works if each.namespace not in known]:
        raise StillAttached(
            f"ManifestWorks are left of clusters that are gone: {few([*map(str, stray)])}; nothing"
            " removes them; delete them with `knfleet delete work NAME --cluster CLUSTER --force`"
        )
    lost = [
        *(f"{WORKS.kind} {each}" for each in works),
        *(f"{CLUSTERS.kind} {Key.of(each)}" for each in clusters),
    ]
    if leave.dry_run:
        return [*lost, *await remove_objects(client, objects, leave)]
    for each in clusters:
        await remove_finalizers(client, each["metadata"]["name"])
    if clusters:
        await follow(client, Collection(CLUSTERS), lambda found: not found, seconds=leave.seconds)
        if left := await listed(client, CLUSTERS):
            raise WaitTimeout(
                f"still there after {leave.seconds:.0f} s: ManagedClusters {names_of(left)}; it is"
                f" the hub that lets them go: see that its pod in {OPERATOR_NAMESPACE} runs, and"
                " clean again"
            )
    removed = [*lost, *await remove_all(client, objects)]
    removed += await remove_traces(client)
    await all_gone(client, objects, seconds=leave.seconds)
    return removed


async def remove_traces(client: Client) -> list[str]:
    """Remove what a hub made while it ran, wherever that is; what was removed."""
    requests = await client.list(CSRS, labels=CLUSTER_NAME_LABEL)
    ours = [each for each in requests.items if each["spec"].get("signerName") == SIGNER]
    named = f"metadata.name={TOKENS_ROLE}"
    bindings = await client.list(ROLE_BINDINGS, fields=named, metadata_only=True)
    token = {"metadata": {"name": TOKEN_SECRET, "namespace": "kube-system"}}
    traces: list[tuple[Resource, Object]] = [
        *((CSRS, each) for each in ours),
        *((ROLE_BINDINGS, each) for each in bindings.items),
        (SECRETS, token),
        *((CLUSTER_ROLES, {"metadata": {"name": name}}) for name in OLD_SHARED_ROLES),
    ]
    removed: list[str] = []
    for resource, each in traces:
        with suppress(NotFound):
            await client.delete(resource, Key.of(each))
            removed.append(f"{resource.kind} {Key.of(each)}")
    return removed


def is_available(manifest: Object) -> bool:
    return is_true(decode(manifest, ManagedCluster).status.conditions, AVAILABLE)


async def remove_finalizers(client: Client, cluster: str, *, force: bool = True) -> None:
    """Delete a cluster; by force also what it can no longer clean up."""
    key = Key("", cluster)
    try:
        if force:
            forced = {"metadata": {"annotations": {FORCE_DETACH: "0s"}}}
            await client.patch(CLUSTERS, key, forced)
        await client.delete(CLUSTERS, key)
    except NotFound:
        return
    except KubeError as error:
        raise StillAttached(f"{cluster} cannot be deleted: {error}") from error


async def detach(client: Client, cluster: str, *, force: bool, seconds: float) -> None:
    """Delete a cluster from its hub, and return when it is gone.

    By force for one that is gone for good: what only its agent could clean up is given up.
    """
    try:
        found = await client.get(CLUSTERS, cluster)
    except NotFound as error:
        raise StillAttached(f"{cluster}: there is no ManagedCluster of that name") from error
    if force and is_available(found):
        raise StillAttached(
            f"{cluster} is available, so that it can clean up itself; detach it without --force"
        )
    knative = [*await listed(client, SERVINGS), *await listed(client, EVENTINGS)]
    on_it = [each for each in knative if targets(each) == cluster]
    fleets = {name for each in on_it if (name := part(each, "metadata", "labels").get(FLEET_LABEL))}
    if fleets and not force:
        raise StillAttached(
            f"{cluster} is a part of KnativeFleet {', '.join(sorted(fleets))}; take it out of"
            " spec.clusters there first, so that Knative is removed from it"
        )
    if on_it and not force:
        raise StillAttached(
            f"{cluster} has Knative by {names_of(on_it)}; delete those first, for without the"
            " cluster's profile their objects would not be removed"
        )
    await remove_finalizers(client, cluster, force=force)
    key, fields = Key("", cluster), f"metadata.name={cluster}"
    left = await follow(
        client, Collection(CLUSTERS, fields=fields), lambda there: not there, seconds=seconds
    )
    if key in left:
        raise WaitTimeout(f"{cluster} is still there after {seconds:.0f} s: {excuse(left[key])}")


def targets(manifest: Object) -> str:
    """The cluster that a custom resource of Knative is for; empty when it is the hub."""
    return part(manifest, "spec", "clusterProfileRef").get("name", "")


def excuse(manifest: Object) -> str:
    """What keeps a cluster from leaving, and what to do about it."""
    condition = find(decode(manifest, ManagedCluster).status.conditions, DELETING)
    if condition is None:
        return f"see that the hub's pod in {OPERATOR_NAMESPACE} runs"
    return condition.message
