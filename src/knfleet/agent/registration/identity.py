"""Who the agent is on the hub: what it keeps, where the hub is, and whether the two fit. Pure."""

import base64
from collections.abc import Mapping
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from knfleet.agent.grpc.grpc_config import GrpcConfig, read_config
from knfleet.agent.registration.cluster_names import AgentNames
from knfleet.api.meta import ClusterName, Object
from knfleet.kube.auth.kubeconfig import Kubeconfig, choose, connect, parse, pick
from knfleet.kube.auth.kubeconfig_entries import EntryOrigin
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.kube.errors import ConfigError
from knfleet.kube.yaml import dump_all

CLUSTER_NAME, AGENT_NAME, KUBECONFIG = "cluster-name", "agent-name", "kubeconfig"
KEY, CERTIFICATE = "tls.key", "tls.crt"
CONFIG = "config.yaml"
"""Only with certificates for gRPC: the configuration of a gRPC client."""
FILES = (CLUSTER_NAME, AGENT_NAME, KUBECONFIG, KEY, CERTIFICATE, CONFIG)
CONTEXT, USER, NAMESPACE = "default-context", "default-auth", "configuration"
HUB = ClusterName("hub")


class HubCredentials(Struct, frozen=True):
    """What the agent keeps between two runs; never printed."""

    cluster: str = ""
    agent: str = ""
    kubeconfig: bytes = b""
    key: bytes = b""
    certificate: bytes = b""
    config: bytes = b""

    @property
    def files(self) -> dict[str, bytes]:
        """The same as contents by name; what is empty is left out."""
        contents = (
            self.cluster.encode(),
            self.agent.encode(),
            self.kubeconfig,
            self.key,
            self.certificate,
            self.config,
        )
        pairs = zip(FILES, contents, strict=True)
        return {name: content for name, content in pairs if content}

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> Self:
        """What contents by name say; names that are not ours are passed over."""
        cluster, agent = (files.get(name, b"").decode(errors="replace") for name in FILES[:2])
        kubeconfig, key, certificate, config = (files.get(name, b"") for name in FILES[2:])
        return cls(cluster, agent, kubeconfig, key, certificate, config)

    def __repr__(self) -> str:
        return f"HubCredentials({self.cluster!r}, {self.agent!r})"


class HubAddress(Struct, frozen=True):
    """Where a hub is, and what a kubeconfig calls it."""

    entry: str
    endpoint: Endpoint


class Bootstrap(Struct, frozen=True):
    """How to reach a hub before it knows us."""

    address: HubAddress
    connection: Connection
    grpc: GrpcConfig | None = None
    """Where the hub's gRPC server is, if that was given."""


def read_bootstrap(text: bytes, origin: EntryOrigin) -> Bootstrap:
    """What a bootstrap kubeconfig says; raises `ConfigError`."""
    config = parse(text, origin)
    if config.is_empty:
        raise ConfigError(f"{origin.source}: nothing is configured in it")
    connection = connect(config)
    return Bootstrap(
        hub_address(config), Connection(HUB, connection.endpoint, connection.credentials)
    )


def hub_address(config: Kubeconfig) -> HubAddress:
    """The hub of a kubeconfig's current context."""
    context = choose(config, config.current_context, asked=False)
    cluster = pick(config.clusters, "cluster", context.body.cluster, context)
    return HubAddress(cluster.name, cluster.endpoint())


def stored_hub_address(credentials: HubCredentials) -> HubAddress | None:
    """The hub that the kept kubeconfig names; None when it names none."""
    try:
        return hub_address(parse(credentials.kubeconfig, EntryOrigin("the hub kubeconfig")))
    except ConfigError:
        return None


def hub_kubeconfig(address: HubAddress) -> bytes:
    """The kubeconfig for the certificate and key that lie beside it."""
    endpoint = address.endpoint
    cluster: Object = {"server": endpoint.server}
    if endpoint.ca is not None:
        cluster["certificate-authority-data"] = base64.b64encode(endpoint.ca).decode()
    if endpoint.insecure:
        cluster["insecure-skip-tls-verify"] = True
    if endpoint.proxy_url:
        cluster["proxy-url"] = endpoint.proxy_url
    if endpoint.tls_server_name:
        cluster["tls-server-name"] = endpoint.tls_server_name
    config: Object = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": address.entry, "cluster": cluster}],
        "contexts": [
            {
                "name": CONTEXT,
                "context": {"cluster": address.entry, "namespace": NAMESPACE, "user": USER},
            }
        ],
        "current-context": CONTEXT,
        "users": [
            {"name": USER, "user": {"client-certificate": CERTIFICATE, "client-key": KEY}},
        ],
    }
    return dump_all([config]).encode()


def choose_names(
    asked: AgentNames, credentials: HubCredentials, fallback: AgentNames
) -> AgentNames:
    """What was asked for, else what was kept, else something new."""
    return AgentNames(
        asked.cluster or credentials.cluster or fallback.cluster,
        asked.agent or credentials.agent or fallback.agent,
    )


def is_moved(credentials: HubCredentials, address: HubAddress) -> bool:
    """Whether the hub is not where the kept kubeconfig says."""
    return stored_hub_address(credentials) != address


def former_bootstrap(credentials: HubCredentials, bootstrap: Bootstrap) -> Bootstrap:
    """The way to the hub that kept credentials are for, as far as they say it."""
    grpc = bootstrap.grpc
    if credentials.config:
        grpc = read_config(credentials.config, "the kept configuration")
    return replace(
        bootstrap, address=stored_hub_address(credentials) or bootstrap.address, grpc=grpc
    )
