"""The gRPC server of a hub as `join` sees it: is it one, and does it accept the token."""

import asyncio
import contextlib
import importlib.util
import ssl
from urllib.parse import urlsplit

from knfleet.agent.grpc.grpc_config import GrpcConfig
from knfleet.agent.registration.drivers.registry import DRIVERS, GRPC
from knfleet.agent.registration.identity import Bootstrap, HubAddress
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.kube.errors import Forbidden, KubeError, NotFound, TlsFailed, Unauthorized
from knfleet.workflows.hub_discovery import HUB, HubReference

CONNECT_SECONDS = 5.0
TOKEN_REMEDY = "get a new one by `knfleet get token` on the hub"  # noqa: S105  no secret
CA_REMEDY = (
    "give --grpc-ca-file the key ca-bundle.crt of ConfigMap ca-bundle-configmap in namespace"
    " open-cluster-management-hub of the hub"
)


class GrpcUnusable(Exception):
    """The gRPC server cannot be used; the message says what to do."""


async def is_grpc(server: str) -> bool:
    """Whether a TLS server speaks nothing but gRPC: it does not agree to HTTP/1.1."""
    parts = urlsplit(server)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(
                parts.hostname, parts.port or 443, ssl=context
            )
    except ssl.SSLError as error:
        return "ALPN" in str(error).upper() or "NO_APPLICATION_PROTOCOL" in str(error).upper()
    except (OSError, TimeoutError, ValueError):
        return False
    chosen = writer.get_extra_info("ssl_object").selected_alpn_protocol()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return chosen is None


def unverified(wanted: HubReference, *, needs_ca: bool = False) -> Connection:
    """The hub as flags name it: agents that use gRPC do not reach its API server."""
    if not wanted.server.startswith("https://"):
        raise GrpcUnusable(f"--hub-apiserver {wanted.server}: it is not an https:// URL")
    if needs_ca and wanted.ca is None:
        raise GrpcUnusable(f"{wanted.server} is a gRPC server: {CA_REMEDY}, as --ca-file")
    endpoint = Endpoint(wanted.server.rstrip("/"), wanted.ca)
    return Connection(HUB, endpoint, StaticCredential(Credential(token=wanted.token)))


async def grpc_client(config: GrpcConfig, token: str, cluster: str) -> Client:
    """A client of the gRPC server, for who asks to join."""
    endpoint = Endpoint(f"https://{config.url}", config.ca)
    connection = Connection(HUB, endpoint, StaticCredential(Credential(token=token)))
    bootstrap = Bootstrap(HubAddress("hub", endpoint), connection, config)
    return await DRIVERS[GRPC].bootstrap_client(bootstrap, cluster)


async def find_grpc(config: GrpcConfig, token: str, cluster: str) -> None:
    """Check that a gRPC server answers and accepts a token; raises `GrpcUnusable`.

    Without the library on this machine nothing is checked: the agent has it.
    """
    if importlib.util.find_spec("grpc") is None:
        return
    async with await grpc_client(config, token, cluster) as client:
        try:
            await client.get(CLUSTERS, cluster)
        except NotFound:
            return
        except Unauthorized as error:
            raise GrpcUnusable(f"the gRPC server refuses the token; {TOKEN_REMEDY}") from error
        except Forbidden as error:
            raise GrpcUnusable(f"{error}; {TOKEN_REMEDY}") from error
        except TlsFailed as error:
            raise GrpcUnusable(f"{error}; {CA_REMEDY}") from error
        except KubeError as error:
            remedy = "does --grpc-server name its address as seen from here?"
            raise GrpcUnusable(f"the gRPC server cannot be reached: {error}; {remedy}") from error
