"""What ClusterProfiles say about the tunnel, and whether a cluster needs it."""

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable

import msgspec

from knfleet.api.meta import ClusterName
from knfleet.hub.profiles.cluster_profile import ClusterAccess
from knfleet.hub.profiles.tunnel_access import TunnelRoute
from knfleet.hub.tunnel.front.routing_key import routing_key
from knfleet.hub.tunnel.holder_lease import TunnelHolder
from knfleet.hub.tunnel.tunnel_server import TunnelServer
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.kube.errors import ApiError, KubeError
from knfleet.runtime.logs import log

PROBE_SECONDS = 5.0
REMEMBERED_SECONDS = 600.0
PROBE_OPTIONS = ClientOptions(attempts=1, concurrency=1)


Probe = Callable[[ClusterAccess], Awaitable[bool]]


class TunnelPublication:
    """Routes for profiles, and the test whether a cluster is reached without one."""

    def __init__(self, server: TunnelServer, probe: Probe | None = None) -> None:
        self.server = server
        self.probe: Probe = probe or answers
        self.probed: dict[bytes, tuple[float, bool]] = {}
        """By the digest of all that decides: when it was tried, and whether it answered."""

    def on_change(self, handler: Callable[[StoreChange], None]) -> None:
        """Call a function when routes of all clusters have changed."""
        self.server.secret.on_change(handler)
        self.server.key_secret.on_change(handler)

    def on_holder_change(self, handler: Callable[[StoreChange], None]) -> None:
        """Call a function when the tunnel of a cluster has opened or closed, on any replica."""
        self.server.records.leases.on_change(handler)

    def holder(self, cluster: str) -> TunnelHolder | None:
        """Which replica has the tunnel of a cluster, and since when."""
        return self.server.records.find(cluster)

    def route(self, cluster: str, namespace: str) -> TunnelRoute | None:
        """The route for a namespace's consumers of a cluster; None while there is none."""
        keys, found = self.server.keys(), self.server.certificates
        if keys is None or found is None:
            return None
        key = routing_key(keys.current, cluster, namespace)
        return TunnelRoute(self.server.options.front, cluster, key, found.bundle)

    async def is_direct(self, access: ClusterAccess) -> bool:
        """Whether an API server answers without the tunnel: tried without credentials."""
        now = asyncio.get_running_loop().time()
        name = digest(access)
        at, answered = self.probed.get(name, (0.0, False))
        if not at or now - at > REMEMBERED_SECONDS:
            answered = await self.probe(access)
            if len(self.probed) > 10_000:
                self.probed.clear()
            self.probed[name] = (now, answered)
        return answered


def digest(access: ClusterAccess) -> bytes:
    """What tells ways to a cluster apart.

    An agent chooses all of it: its choice decides nothing about a cluster with the same server, and
    is not kept, for CAs may be large.
    """
    parts = (access.server, access.authorities, access.proxy_url, access.tls_server_name)
    return hashlib.sha256(msgspec.json.encode(parts)).digest()


async def answers(access: ClusterAccess) -> bool:
    """Whether an API server gives any answer at all, with a certificate that is trusted."""
    endpoint = Endpoint(
        access.server,
        ca=base64.b64decode(access.authorities) or None,
        proxy_url=access.proxy_url or None,
        tls_server_name=access.tls_server_name or None,
    )
    nobody = StaticCredential(Credential())
    try:
        async with Client(
            Connection(ClusterName("probe"), endpoint, nobody), PROBE_OPTIONS
        ) as client:
            await client.version(deadline=PROBE_SECONDS)
    except ApiError:
        return True
    except KubeError as error:
        log.info("cluster not reached directly", server=access.server, error=str(error))
        return False
    return True
