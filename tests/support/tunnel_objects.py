"""What a hub with a tunnel needs on its cluster, and how its consumers see a profile."""

import base64

from knfleet.api.cluster.tunnel import TUNNEL_SERVICE
from knfleet.api.core import SECRETS
from knfleet.api.inventory import PROFILES
from knfleet.api.meta import ClusterName, Object
from knfleet.api.operator import OPERATOR_NAMESPACE
from knfleet.apply.manifest_fields import items
from knfleet.hub.tunnel.tunnel_server import TunnelOptions
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.runtime.http.listen_address import ListenAddress
from testbed.fakes.sockets import free_port
from testbed.waiting import until

NAME = f"{TUNNEL_SERVICE}.{OPERATOR_NAMESPACE}.svc"


def tunnel_options() -> TunnelOptions:
    """A tunnel on loopback."""
    agents, consumers = free_port(), free_port()
    return TunnelOptions(
        agents=ListenAddress("127.0.0.1", agents),
        consumers=ListenAddress("127.0.0.1", consumers),
        endpoint=f"127.0.0.1:{agents}",
        front=f"https://localhost:{consumers}",
        server_name=NAME,
        namespace=OPERATOR_NAMESPACE,
    )


async def access_provider(hub: Client, cluster: str = "c1") -> Object | None:
    """The access provider in the profile of a cluster beside the hub; None while there is none."""
    found = await hub.list(PROFILES, OPERATOR_NAMESPACE, fields=f"metadata.name={cluster}")
    providers = [each for one in found.items for each in items(one, "status", "accessProviders")]
    return providers[0]["cluster"] if providers else None


async def consumer(hub: Client, cluster: str = "c1") -> Connection:
    """What a consumer of a profile connects with: its access provider, and the token beside it."""
    provider = await access_provider(hub, cluster)
    assert provider is not None
    tokens: list[str] = []

    async def has_token() -> bool:
        found = await hub.list(SECRETS, OPERATOR_NAMESPACE, fields=f"metadata.name={cluster}")
        tokens.extend(base64.b64decode(each["data"]["token"]).decode() for each in found.items)
        return bool(tokens)

    await until(has_token, "the token is beside the profile")
    token = tokens[-1]
    endpoint = Endpoint(
        provider["server"],
        ca=base64.b64decode(provider["certificate-authority-data"]),
        proxy_url=provider.get("proxy-url"),
    )
    return Connection(ClusterName(cluster), endpoint, StaticCredential(Credential(token=token)))
