"""Runs the gRPC server and keeps its certificates: its CA, what it shows, what agents trust.

Everything is kept together in one Secret that only the hub reads, so that it always fits together;
the server gets a copy of its own pair, and agents one of the CA. They have that in a file, so it
lives for ten years, and one that is replaced is trusted to its end.
"""

import base64
from collections.abc import Iterable, Sequence
from datetime import timedelta

from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS, SECRETS, SERVICES
from knfleet.api.meta import Key, Object, Request, Resource
from knfleet.api.operator import GRPC_SERVER, HUB_NAMESPACE, ClusterManager
from knfleet.apply.manifest_fields import part
from knfleet.hub.certificates.port_certificates import (
    CertificatePolicy,
    PortCertificates,
    pem,
    renewal,
)
from knfleet.hub.context import HubContext, cluster_request, remove
from knfleet.hub.grpc.exposure import exposure, is_enabled, serving_names
from knfleet.hub.grpc.grpc_names import (
    BUNDLE_CONFIG_MAP,
    BUNDLE_KEY,
    SERVING_SECRET,
    SIGNER_SECRET,
)
from knfleet.hub.grpc.server_manifests import server_deployment, server_image, server_service
from knfleet.hub.hub_controller import HubController, Watch
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.errors import Conflict
from knfleet.runtime.controller import Result
from knfleet.runtime.logs import log

POLICY = CertificatePolicy(
    ca_life=timedelta(days=3650),
    serving_life=timedelta(days=30),
    ca_name="knfleet-grpc-ca",
    signs_clients=True,
)
KEYS = {
    "ca.crt": BUNDLE_KEY,
    "ca.key": "tls.key",
    "tls.crt": "serving.crt",
    "tls.key": "serving.key",
}
"""What the keys of webhook certificates are called in the signer's Secret."""
EVERYTHING = cluster_request(GRPC_SERVER)
CONFLICT_SECONDS = 0.2
SYNC_SECONDS = 0.5
MOST_SECONDS = 86_400.0


class GrpcObjects:
    """The objects that hold the certificates, each followed by an informer."""

    def __init__(self, context: HubContext) -> None:
        self.signer = self.followed(context, SECRETS, SIGNER_SECRET)
        self.serving = self.followed(context, SECRETS, SERVING_SECRET)
        self.bundle = self.followed(context, CONFIG_MAPS, BUNDLE_CONFIG_MAP)
        self.service = self.followed(context, SERVICES, GRPC_SERVER)

    def followed(self, context: HubContext, resource: Resource, name: str) -> Informer:
        """The informer of one object."""
        fields = f"metadata.name={name}"
        return context.informers.shared(resource, HUB_NAMESPACE, fields=fields, required=False)

    @property
    def all(self) -> list[Informer]:
        """Every informer."""
        return [self.signer, self.serving, self.bundle, self.service]

    def one(self, informer: Informer) -> Object | None:
        """The object that an informer follows."""
        return next(iter(informer.items()), None)

    def certificates(self) -> PortCertificates | None:
        """What the Secret holds; None when something is missing or does not fit."""
        signer = part(self.one(self.signer) or {}, "data")
        data = {ours: signer.get(theirs, "") for ours, theirs in KEYS.items()}
        return PortCertificates.of({"data": data})


class GrpcCertificateController:
    """Reconciles the Secrets and the ConfigMap."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.client = context.client
        self.objects = GrpcObjects(context)
        self.deployed: list[tuple[Resource, Object]] = []
        """What was applied last."""

    def watches(self) -> Sequence[Watch]:
        """The objects themselves, and the configuration."""
        informers = (*self.objects.all, self.context.informers.managers)
        return [Watch(each.on_change, self.by_change) for each in informers]

    def by_change(self, _change: StoreChange) -> Iterable[Request]:
        """Something changed."""
        yield EVERYTHING

    async def reconcile(self, request: Request) -> Result:
        """Have certificates that are valid for the names of the server, if it is wanted at all."""
        manager = self.context.configuration.manager
        objects = self.objects
        if not all(each.synced.is_set() for each in objects.all):
            return Result.after(SYNC_SECONDS)
        if not is_enabled(manager):
            await self.remove_server()
            return Result.never()
        names = serving_names(exposure(manager), objects.one(objects.service))
        kept = objects.certificates()
        wanted = renewal(kept, names, self.context.now(), POLICY)
        made = wanted.certificates
        try:
            if made != kept:
                await self.write(made)
            await self.copy(made)
        except Conflict:
            return Result.after(CONFLICT_SECONDS)
        await self.deploy(manager)
        seconds = (wanted.look_at - self.context.now()).total_seconds()
        return Result.after(min(seconds, MOST_SECONDS))

    async def deploy(self, manager: ClusterManager) -> None:
        """Have the workload and the Service there, as they should be."""
        if not server_image(manager):
            return
        wanted = [(SERVICES, server_service(manager)), (DEPLOYMENTS, server_deployment(manager))]
        if wanted == self.deployed and self.objects.one(self.objects.service) is not None:
            return
        for resource, manifest in wanted:
            await self.client.apply(resource, manifest)
        self.deployed = wanted

    async def remove_server(self) -> None:
        """Remove the workload and the Service, if they are there; certificates stay."""
        self.deployed = []
        if self.objects.one(self.objects.service) is None:
            return
        key = Key(HUB_NAMESPACE, GRPC_SERVER)
        for resource in (DEPLOYMENTS, SERVICES):
            await remove(self.client, resource, key)
        log.info("gRPC server removed")

    async def write(self, made: PortCertificates) -> None:
        """Keep certificates, unless the Secret has changed since it was read."""
        ca = base64.b64encode(pem(made.authorities[0])).decode()
        data = {KEYS[name]: text for name, text in made.data().items()}
        await self.put(self.objects.signer, "Secret", SIGNER_SECRET, {**data, "tls.crt": ca})
        log.info(
            "gRPC certificates written",
            until=str(made.serving.not_valid_after_utc),
            authorities=len(made.authorities),
        )

    async def copy(self, made: PortCertificates) -> None:
        """Give agents the CA and the server its pair, in this order."""
        bundle = {BUNDLE_KEY: made.bundle.decode()}
        await self.put(self.objects.bundle, "ConfigMap", BUNDLE_CONFIG_MAP, bundle)
        pairs = {"tls.crt": made.certificate, "tls.key": made.key}
        serving = {name: base64.b64encode(each).decode() for name, each in pairs.items()}
        await self.put(self.objects.serving, "Secret", SERVING_SECRET, serving)

    async def put(self, informer: Informer, kind: str, name: str, data: dict[str, str]) -> None:
        """Write one object, unless it has changed since it was read."""
        found = self.objects.one(informer)
        if part(found or {}, "data") == data:
            return
        meta: Object = {"name": name, "namespace": HUB_NAMESPACE}
        if found is not None:
            meta["resourceVersion"] = found["metadata"]["resourceVersion"]
        manifest: Object = {"apiVersion": "v1", "kind": kind, "metadata": meta, "data": data}
        await self.client.apply(informer.resource, manifest)


CONTROLLER = HubController("grpccertificate", GrpcCertificateController, (), initial=(EVERYTHING,))
