"""What the hub's controllers know: one watch for each kind, shared by all of them."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.clusterset import BINDINGS, CLUSTER_SETS, ManagedClusterSet
from knfleet.api.cluster.managedcluster import (
    CLUSTER_NAME_LABEL,
    CLUSTERS,
    LEASE_NAME,
    ManagedCluster,
)
from knfleet.api.cluster.placement import DECISIONS, PLACEMENTS
from knfleet.api.core import LEASES, SECRETS
from knfleet.api.inventory import PROFILES
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.operator import CLUSTER_MANAGERS
from knfleet.api.schema import decode
from knfleet.api.work.manifestwork import WORKS
from knfleet.hub.placement.decisions.decision_objects import placements_of
from knfleet.hub.registration.rbac import ACCESS_SECRET
from knfleet.hub.work.work_cache import INDEXES, without_content
from knfleet.kube.cache.informer import Informer, without_managed_fields
from knfleet.kube.cache.store import Index
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError


def labels_of(manifest: Object) -> dict[str, str]:
    """An object's labels."""
    return manifest["metadata"].get("labels") or {}


def cluster_label(manifest: Object) -> list[str]:
    return [labels_of(manifest).get(CLUSTER_NAME_LABEL, "")]


def own_name(manifest: Object) -> list[str]:
    """An object's name."""
    return [manifest["metadata"]["name"]]


class HubInformers:
    """One informer for each kind that controllers of the hub watch, shared by all of them."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.known: dict[tuple[Resource, str, str, str], Informer] = {}
        self.optional: set[Informer] = set()
        """Those that no start waits for, and whose failures are those of one feature alone."""
        self.clusters = self.shared(CLUSTERS)
        self.sets = self.shared(CLUSTER_SETS)
        self.bindings = self.shared(BINDINGS)
        self.profiles = self.shared(PROFILES, indexes={"cluster": own_name})
        self.managers = self.shared(CLUSTER_MANAGERS)
        self.requests = self.shared(
            CSRS, labels=CLUSTER_NAME_LABEL, indexes={"cluster": cluster_label}
        )
        self.placements = self.shared(PLACEMENTS)
        self.decisions = self.shared(DECISIONS, indexes={"placement": placements_of})
        self.leases = self.shared(LEASES, fields=f"metadata.name={LEASE_NAME}")
        self.access = self.shared(SECRETS, fields=f"metadata.name={ACCESS_SECRET}")
        self.works = self.shared(WORKS, trim=without_content, indexes=INDEXES)

    def shared(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        trim: Callable[[Object], Object] = without_managed_fields,
        indexes: Mapping[str, Index] | None = None,
        required: bool = True,
    ) -> Informer:
        """The informer of a kind; controllers ask for it when they are built.

        Who asks first decides on the indexes, and on what is kept of each object. Controllers
        begin when all that are required have listed.
        """
        key = (resource, namespace, labels, fields)
        if key not in self.known:
            self.known[key] = Informer(
                self.client,
                resource,
                namespace,
                labels=labels,
                fields=fields,
                trim=trim,
                indexes=indexes,
            )
            if not required:
                self.optional.add(self.known[key])
        return self.known[key]

    @property
    def all(self) -> list[Informer]:
        """Every informer that was asked for."""
        return list(self.known.values())

    @property
    def required(self) -> list[Informer]:
        """Those without which no controller works."""
        return [informer for informer in self.all if informer not in self.optional]

    async def synced(self) -> None:
        """Return when everything is known that controllers wait for."""
        await asyncio.gather(*(informer.synced.wait() for informer in self.required))

    @property
    def failing(self) -> KubeError | None:
        """What is wrong with a watch, if something is."""
        return next(
            (informer.failing for informer in self.required if informer.failing is not None), None
        )

    def cluster(self, name: str) -> ManagedCluster | None:
        manifest = self.clusters.get(Key("", name))
        return None if manifest is None else decode(manifest, ManagedCluster)

    def works_of(self, cluster: str) -> list[Object]:
        """The works of a cluster, without the content of their manifests."""
        return self.works.by_index("cluster", cluster)

    def cluster_sets(self) -> list[ManagedClusterSet]:
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
