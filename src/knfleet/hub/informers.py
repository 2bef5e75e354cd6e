"""What the hub's controllers know: one watch for each kind, shared by all of them."""

import asyncio
from collections.abc import Iterable

from knfleet.api.cluster.clusterset import BINDINGS, CLUSTER_SETS, ManagedClusterSet
from knfleet.api.cluster.managedcluster import (
    CLUSTER_NAME_LABEL,
    CLUSTERS,
    LEASE_NAME,
    ManagedCluster,
)
from knfleet.api.core import LEASES, SECRETS
from knfleet.api.inventory import PROFILES
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.operator import CLUSTER_MANAGERS
from knfleet.api.schema import decode
from knfleet.api.work.manifestwork import WORKS
from knfleet.hub.registration.rbac import ACCESS_SECRET
from knfleet.hub.work.work_cache import without_content
from knfleet.kube.cache.informer import Informer, without_managed_fields
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError

CSRS = Resource(
    "certificates.k8s.io",
    "v1",
    "CertificateSigningRequest",
    "certificatesigningrequests",
    namespaced=False,
)


def labels_of(manifest: Object) -> dict[str, str]:
    """An object's labels."""
    return manifest["metadata"].get("labels") or {}


def cluster_label(manifest: Object) -> list[str]:
    """The cluster that an object's label names."""
    return [labels_of(manifest).get(CLUSTER_NAME_LABEL, "")]


def own_namespace(manifest: Object) -> list[str]:
    """An object's namespace."""
    return [manifest["metadata"]["namespace"]]


def own_name(manifest: Object) -> list[str]:
    """An object's name."""
    return [manifest["metadata"]["name"]]


class HubInformers:
    """The collections of the hub that the fleet consists of."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.clusters = self.informer(CLUSTERS)
        self.sets = self.informer(CLUSTER_SETS)
        self.bindings = self.informer(BINDINGS)
        self.profiles = Informer(
            client, PROFILES, trim=without_managed_fields, indexes={"cluster": own_name}
        )
        self.managers = self.informer(CLUSTER_MANAGERS)
        self.requests = Informer(
            client,
            CSRS,
            labels=CLUSTER_NAME_LABEL,
            trim=without_managed_fields,
            indexes={"cluster": cluster_label},
        )
        self.leases = self.informer(LEASES, fields=f"metadata.name={LEASE_NAME}")
        self.works = Informer(
            client, WORKS, trim=without_content, indexes={"cluster": own_namespace}
        )
        self.access = self.informer(SECRETS, fields=f"metadata.name={ACCESS_SECRET}")

    def informer(self, resource: Resource, *, fields: str = "") -> Informer:
        """A watch of all objects of a kind."""
        return Informer(self.client, resource, fields=fields, trim=without_managed_fields)

    @property
    def all(self) -> list[Informer]:
        """Every watch."""
        return [
            self.clusters,
            self.sets,
            self.bindings,
            self.profiles,
            self.managers,
            self.requests,
            self.leases,
            self.access,
            self.works,
        ]

    async def synced(self) -> None:
        """Return when everything is known."""
        await asyncio.gather(*(informer.synced.wait() for informer in self.all))

    @property
    def failing(self) -> KubeError | None:
        """What is wrong with a watch, if something is."""
        return next(
            (informer.failing for informer in self.all if informer.failing is not None), None
        )

    def cluster(self, name: str) -> ManagedCluster | None:
        """A cluster by name."""
        manifest = self.clusters.get(Key("", name))
        return None if manifest is None else decode(manifest, ManagedCluster)

    def works_of(self, cluster: str) -> list[Object]:
        """The works of a cluster, without the content of their manifests."""
        return self.works.by_index("cluster", cluster)

    def cluster_sets(self) -> list[ManagedClusterSet]:
        """All sets."""
        return [decode(each, ManagedClusterSet) for each in self.sets.items()]

    def bound_sets(self) -> dict[str, list[ManagedClusterSet]]:
        """The sets that are bound and exist, by namespace; sets that are leaving do not count."""
        sets = {each.metadata.name: each for each in self.cluster_sets()}
        found: dict[str, list[ManagedClusterSet]] = {}
        for manifest in self.bindings.items():
            meta = manifest["metadata"]
            wanted = sets.get(manifest["spec"]["clusterSet"])
            if wanted is not None and not meta.get("deletionTimestamp"):
                found.setdefault(meta["namespace"], []).append(wanted)
        return found


def is_in(labels: dict[str, str], sets: Iterable[ManagedClusterSet]) -> bool:
    """Whether a cluster with these labels belongs to one of the sets."""
    return any(each.has(labels) for each in sets)
