"""Keeps the webhook server's certificates in a Secret, and its CA where API servers look for it.

The leader writes; every replica serves what the Secret holds. A configuration or definition counts
as ours when its webhook is our Service, so that others need only be watched to be supplied.
"""

import base64
from collections.abc import Iterable, Sequence

from msgspec import Struct

from knfleet.api.core import CRDS, SECRETS, VALIDATING_WEBHOOKS
from knfleet.api.meta import Key, Object, Request, Resource
from knfleet.api.operator import WEBHOOK_SERVICE
from knfleet.apply.manifest_fields import items, part
from knfleet.hub.certificates.certificate_secret import write_certificates
from knfleet.hub.certificates.port_certificates import (
    PortCertificates,
    renewal,
    service_names,
)
from knfleet.hub.context import HubContext, cluster_request
from knfleet.hub.hub_controller import HubController, Watch
from knfleet.hub.webhook.rights import RULES
from knfleet.hub.webhook.webhook_objects import CONFIGURATIONS, DEFINITIONS, SECRET
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.kube.errors import Conflict, NotFound
from knfleet.runtime.controller import Result
from knfleet.runtime.logs import log

CONFLICT_SECONDS = 0.2
SYNC_SECONDS = 0.5
EVERYTHING = cluster_request(SECRET)
"""The one request: certificates and configurations belong together."""


class CABundleField(Struct, frozen=True):
    """A place in an object where a CA belongs."""

    path: str
    """JSON pointer of the client configuration."""
    bundle: str
    """What is there now."""


def certificate_secrets(context: HubContext) -> Informer:
    """The informer of the Secret, which controller and server share."""
    return context.informers.shared(
        SECRETS,
        context.configuration.namespace,
        fields=f"metadata.name={SECRET}",
        required=False,
    )


def definition_informer(context: HubContext, resource: Resource, name: str) -> Informer:
    """The informer of one object that names webhooks."""
    return context.informers.shared(
        resource, fields=f"metadata.name={name}", trim=without_schemas, required=False
    )


class WebhookCertificateController:
    """Reconciles the Secret, and every object whose webhook is our Service."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.client = context.client
        configuration = context.configuration
        self.key = Key(configuration.namespace, SECRET)
        names = service_names(WEBHOOK_SERVICE, configuration.namespace)
        self.names = (*names, *configuration.webhook_names)
        self.secrets = certificate_secrets(context)
        self.called = [
            definition_informer(context, resource, name)
            for resource, names in (
                (VALIDATING_WEBHOOKS, CONFIGURATIONS),
                (CRDS, DEFINITIONS),
            )
            for name in names
        ]
        """Objects that name webhooks."""

    def watches(self) -> Sequence[Watch]:
        """The Secret, and the objects that name webhooks."""
        informers = (self.secrets, *self.called)
        return [Watch(each.on_change, self.by_change) for each in informers]

    def by_change(self, _change: StoreChange) -> Iterable[Request]:
        """The Secret or a configuration changed."""
        yield EVERYTHING

    async def reconcile(self, request: Request) -> Result:
        """Make the certificates right, then the configurations."""
        if not self.secrets.synced.is_set():
            return Result.after(SYNC_SECONDS)
        found = self.secrets.get(self.key)
        kept = PortCertificates.of(found)
        wanted = renewal(kept, self.names, self.context.now())
        try:
            if wanted.certificates != kept:
                await write_certificates(self.client, self.key, found, wanted.certificates)
            for informer in self.called:
                for manifest in informer.items():
                    await self.inject(informer.resource, manifest, wanted.certificates.bundle)
        except Conflict:
            return Result.after(CONFLICT_SECONDS)
        return Result.after((wanted.look_at - self.context.now()).total_seconds())

    async def inject(self, resource: Resource, manifest: Object, bundle: bytes) -> None:
        """Put the CA into an object that calls our Service, where another is or none."""
        wanted = base64.b64encode(bundle).decode()
        service = Key(self.key.namespace, WEBHOOK_SERVICE)
        paths = [each.path for each in targets(manifest, service) if each.bundle != wanted]
        if not paths:
            return
        version = manifest["metadata"]["resourceVersion"]
        patch: list[Object] = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            *({"op": "add", "path": f"{path}/caBundle", "value": wanted} for path in paths),
        ]
        try:
            await self.client.patch(resource, Key.of(manifest), patch)
        except NotFound:
            return
        log.info("webhook CA injected", kind=resource.kind, name=manifest["metadata"]["name"])


def without_schemas(manifest: Object) -> Object:
    """What is kept of an object that names webhooks: definitions are large."""
    spec = {"conversion": part(manifest, "spec", "conversion")}
    kept = {key: value for key, value in manifest.items() if key in ("metadata", "webhooks")}
    return without_managed_fields({**kept, "spec": spec})


def targets(manifest: Object, service: Key) -> Sequence[CABundleField]:
    """Where an object calls a Service: webhooks of admission, or the conversion of a definition."""
    found = [
        (f"/webhooks/{index}/clientConfig", part(each, "clientConfig"))
        for index, each in enumerate(items(manifest, "webhooks"))
    ]
    conversion = part(manifest, "spec", "conversion", "webhook", "clientConfig")
    found.append(("/spec/conversion/webhook/clientConfig", conversion))
    return [
        CABundleField(path, str(config.get("caBundle", "")))
        for path, config in found
        if is_called(part(config, "service"), service)
    ]


def is_called(named: Object, service: Key) -> bool:
    """Whether a client configuration names a Service."""
    return (named.get("namespace"), named.get("name")) == (service.namespace, service.name)


CONTROLLER = HubController(
    "webhookcertificate", WebhookCertificateController, RULES, initial=(EVERYTHING,)
)
