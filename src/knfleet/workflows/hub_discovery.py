"""Finding a hub before its cluster is known there: address, authority, and whether a token is good.

The token is never sent to a server whose certificate was not verified. A hub publishes its
authorities to all clients; the pin in the join command says which of them are the right ones.
"""

import base64

from msgspec import Struct
from msgspec.structs import replace

from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import ClusterName, Object
from knfleet.apply.act.missing_rights import ACCESS_REVIEWS
from knfleet.apply.manifest_fields import part
from knfleet.kube.auth.credentials import Credential, StaticCredential, is_token
from knfleet.kube.auth.kubeconfig import parse
from knfleet.kube.auth.kubeconfig_entries import EntryOrigin
from knfleet.kube.auth.x509 import authorities
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.kube.errors import ApiError, ConfigError, KubeError, TlsFailed, Unauthorized
from knfleet.kube.yaml import dump_all
from knfleet.workflows.join_token import INFO, PUBLIC, pinned

HUB = ClusterName("hub")
BRIEF = ClientOptions(attempts=2, deadline_seconds=15, connect_seconds=8)
CA_REMEDY = "get the hub's CA from its administrator and give it with --ca-file"


class HubUnusable(Exception):
    """The hub cannot be used as it was named; the message says what to do."""


class HubReference(Struct, frozen=True):
    """How the user refers to a hub."""

    server: str
    token: str
    ca: bytes | None = None
    ca_hash: str = ""
    proxy_url: str = ""
    proxy_ca: bytes = b""
    internal: bool = False
    """Take the address that the hub itself publishes."""

    def __repr__(self) -> str:
        return f"HubReference({self.server!r})"


async def find(wanted: HubReference) -> Connection:
    """The way to a hub, verified, and with a token that may ask to join."""
    if not wanted.server.startswith("https://"):
        raise HubUnusable(f"--hub-apiserver {wanted.server}: it is not an https:// URL")
    if not is_token(wanted.token):
        raise HubUnusable("--hub-token: it is empty, or holds characters that no token has")
    try:
        endpoint = await located(wanted)
        connection = Connection(HUB, endpoint, StaticCredential(Credential(token=wanted.token)))
        await check_token(connection)
    except TlsFailed as error:
        raise HubUnusable(f"{error}; the CA is not the hub's: {CA_REMEDY}") from error
    except KubeError as error:
        remedy = "is it the address as seen from here, and is a firewall or proxy between?"
        raise HubUnusable(f"the hub cannot be reached: {error}; {remedy}") from error
    return connection


async def located(wanted: HubReference) -> Endpoint:
    """The address of the hub, and what to trust there: of a pinned hub what is pinned, no more."""
    endpoint = Endpoint(wanted.server.rstrip("/"), proxy_url=wanted.proxy_url or None)
    ca = wanted.ca
    if ca is not None and wanted.ca_hash:
        ca = checked(ca, wanted.ca_hash, "--ca-file")
    if ca is not None and not wanted.internal:
        return replace(endpoint, ca=ca + wanted.proxy_ca)
    if not wanted.internal and not wanted.ca_hash and await is_trusted(endpoint):
        return endpoint
    published = await read_info(endpoint, ca)
    if wanted.internal:
        endpoint = replace(endpoint, server=published.server)
    if ca is None and published.ca is None:
        raise HubUnusable(f"the hub publishes no CA; {CA_REMEDY}")
    if ca is None and wanted.ca_hash:
        ca = checked(published.ca or b"", wanted.ca_hash, endpoint.server)
    return replace(endpoint, ca=(ca or published.ca or b"") + wanted.proxy_ca)


def checked(ca: bytes, pins: str, whose: str) -> bytes:
    """The pinned authorities of a bundle; raises `HubUnusable` when there are none."""
    if not (found := pinned(ca, pins)):
        raise HubUnusable(
            f"the CA of {whose} is not that of --hub-ca-hash: either the command is of another"
            f" hub, or the connection is intercepted; {CA_REMEDY}"
        )
    return found


async def is_trusted(endpoint: Endpoint) -> bool:
    """Whether this machine trusts the server as it is."""
    try:
        async with Client(Connection(HUB, endpoint, StaticCredential()), BRIEF) as client:
            await client.raw("GET", "/version")
    except TlsFailed:
        return False
    except ApiError:
        return True
    return True


async def read_info(endpoint: Endpoint, ca: bytes | None) -> Endpoint:
    """What a hub publishes of itself, read without credentials; without a CA, from any server."""
    there = replace(endpoint, ca=ca, insecure=ca is None)
    try:
        async with Client(Connection(HUB, there, StaticCredential()), BRIEF) as client:
            found = await client.get(CONFIG_MAPS, INFO, PUBLIC)
        text: str = part(found, "data").get("kubeconfig", "")
        clusters = parse(text, EntryOrigin(f"ConfigMap {PUBLIC}/{INFO} of the hub")).clusters
        published = next(iter(clusters.values())).endpoint()
    except (ApiError, ConfigError, StopIteration) as error:
        raise HubUnusable(f"the hub does not publish its CA: {error}; {CA_REMEDY}") from error
    if not published.server.startswith("https://"):
        raise HubUnusable(f"the hub publishes {published.server}, which is not an https:// URL")
    return published


async def check_token(connection: Connection) -> None:
    """Raise `HubUnusable` when a token does not let its holder ask to join."""
    review: Object = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {
            "resourceAttributes": {
                "group": CLUSTERS.group,
                "resource": CLUSTERS.plural,
                "verb": "create",
            }
        },
    }
    async with Client(connection, BRIEF) as client:
        try:
            answer = await client.create(ACCESS_REVIEWS, review)
        except Unauthorized as error:
            raise HubUnusable(
                "the hub does not accept the token: it is wrong or has expired; get a new one by"
                " `knfleet get token` on the hub"
            ) from error
    if part(answer, "status").get("allowed") is False:
        raise HubUnusable(
            "the token does not allow to join clusters; get one by `knfleet get token` on the hub"
        )


def read_ca(content: bytes, name: str) -> bytes:
    """The certificates of a file; raises `HubUnusable`."""
    if not (found := authorities(content)):
        raise HubUnusable(f"{name}: there is no PEM certificate in it that can be read")
    return found


def bootstrap_kubeconfig(endpoint: Endpoint, token: str) -> bytes:
    """The kubeconfig by which the agent asks to join."""
    cluster: Object = {"server": endpoint.server}
    if endpoint.ca:
        cluster["certificate-authority-data"] = base64.b64encode(endpoint.ca).decode()
    if endpoint.proxy_url:
        cluster["proxy-url"] = endpoint.proxy_url
    config: Object = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "hub", "cluster": cluster}],
        "contexts": [
            {
                "name": "bootstrap",
                "context": {"cluster": "hub", "namespace": "default", "user": "bootstrap"},
            }
        ],
        "current-context": "bootstrap",
        "users": [{"name": "bootstrap", "user": {"token": token}}],
    }
    return dump_all([config]).encode()
