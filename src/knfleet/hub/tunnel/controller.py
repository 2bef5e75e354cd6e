"""Keeps what the tunnel needs on the hub: certificates of its ports, the secret behind routing
keys, and the ConfigMap that tells agents where to connect and which CAs to trust."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime

from knfleet.api.cluster.tunnel import (
    AUTHORITIES,
    BY_LOAD_BALANCER,
    ENDPOINT,
    KEY_SECRET,
    SERVER_NAME,
    TUNNEL_CONFIG,
    TUNNEL_SECRET,
    TUNNEL_SERVICE,
)
from knfleet.api.core import CONFIG_MAPS, SECRETS, SERVICES
from knfleet.api.meta import HUB, Key, Object, Request
from knfleet.hub.certificates.certificate_secret import write_certificates
from knfleet.hub.certificates.port_certificates import PortCertificates, renewal
from knfleet.hub.context import HubContext
from knfleet.hub.hub_controller import HubController, Watch
from knfleet.hub.tunnel.key_secret import LIFETIME, RoutingSecrets, key_secret, rotated
from knfleet.hub.tunnel.rights import RULES
from knfleet.hub.tunnel.tunnel_endpoint import balanced_endpoint
from knfleet.hub.tunnel.tunnel_server import TunnelOptions
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.errors import Conflict, NotFound
from knfleet.runtime.controller import Result
from knfleet.runtime.logs import log

PENDING_SECONDS = 10.0
"""How often to look whether the load balancer has an address."""
BALANCER_SECONDS = 300.0
"""How often to look whether it has another one."""
CONFLICT_SECONDS = 0.2
REQUEST = Request(HUB, Key("", TUNNEL_CONFIG))


class TunnelController:
    """Reconciles the tunnel's objects; there is one request."""

    def __init__(self, context: HubContext) -> None:
        assert context.tunnel is not None
        self.context = context
        self.server = context.tunnel.server
        self.written: RoutingSecrets | None = None
        """What we last wrote: the watch may not have shown it yet."""
        self.published: Object = {}
        """What was last written to the ConfigMap."""

    def watches(self) -> Sequence[Watch]:
        """The tunnel's own Secrets."""
        return [
            Watch(each.on_change, self.by_change)
            for each in (self.server.secret, self.server.key_secret)
        ]

    def by_change(self, _change: StoreChange) -> Iterable[Request]:
        """One of the objects changed."""
        yield REQUEST

    async def reconcile(self, request: Request) -> Result:
        """Make the Secrets right, then the ConfigMap."""
        await asyncio.gather(*(each.synced.wait() for each in self.server.watched))
        keys = await self.keep_keys()
        try:
            renew_at, bundle = await self.keep_certificates()
        except Conflict:
            return Result.after(CONFLICT_SECONDS)
        endpoint = await self.endpoint()
        if endpoint:
            await self.publish(config_map(self.server.options, endpoint, bundle))
        if not endpoint or self.server.options.endpoint == BY_LOAD_BALANCER:
            return Result.after(BALANCER_SECONDS if endpoint else PENDING_SECONDS)
        due = min(keys.made + LIFETIME, renew_at)
        return Result.after((due - self.context.now()).total_seconds())

    async def keep_keys(self) -> RoutingSecrets:
        """The secrets behind routing keys, which are replaced when it is time."""
        wanted = rotated(newest(self.server.keys(), self.written), self.context.now())
        if wanted != self.server.keys():
            namespace = self.server.options.namespace
            await self.context.client.apply(SECRETS, key_secret(wanted, namespace))
            self.written = wanted
            log.info("routing keys changed", secret=f"{namespace}/{KEY_SECRET}")
        return wanted

    async def keep_certificates(self) -> tuple[datetime, bytes]:
        """When the certificates of the ports are due again, and the CAs by which to verify them."""
        options = self.server.options
        key = Key(options.namespace, TUNNEL_SECRET)
        found = self.server.secret.get(key)
        kept = PortCertificates.of(found)
        wanted = renewal(kept, options.names, self.context.now())
        if wanted.certificates != kept:
            await write_certificates(self.context.client, key, found, wanted.certificates)
        return wanted.look_at, wanted.certificates.bundle

    async def publish(self, manifest: Object) -> None:
        """Tell agents, unless they were told the same."""
        if manifest != self.published:
            await self.context.client.apply(CONFIG_MAPS, manifest)
            self.published = manifest

    async def endpoint(self) -> str:
        """How agents reach the tunnel; empty while the load balancer has no address."""
        options = self.server.options
        if options.endpoint != BY_LOAD_BALANCER:
            return options.endpoint
        try:
            service = await self.context.client.get(SERVICES, TUNNEL_SERVICE, options.namespace)
        except NotFound:
            return ""
        return balanced_endpoint(service)


def newest(*kept: RoutingSecrets | None) -> RoutingSecrets | None:
    """The secrets that were made last."""
    return max((each for each in kept if each is not None), key=made_at, default=None)


def made_at(kept: RoutingSecrets) -> datetime:
    """When secrets were made."""
    return kept.made


def config_map(options: TunnelOptions, endpoint: str, authorities: bytes) -> Object:
    """What agents read."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": TUNNEL_CONFIG, "namespace": options.namespace},
        "data": {
            ENDPOINT: endpoint,
            SERVER_NAME: options.server_name,
            AUTHORITIES: authorities.decode(errors="replace"),
        },
    }


CONTROLLER = HubController("tunnel", TunnelController, RULES, (REQUEST,))
