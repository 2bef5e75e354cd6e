"""What one control plane is made of: its files, and the arguments of its servers.

Everything listens on loopback. An API server that must reach a Service or a pod asks the egress
proxy on a Unix socket, which the dev node serves, so no packet ever leaves the machine, and no
part of this needs root.
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from knfleet.api.meta import ClusterName, Object
from knfleet.dev import pki
from knfleet.dev.dev_folder import DevClusterState, DevFolder, write_private
from knfleet.dev.network import network_namespace
from knfleet.dev.network.holder import InnerSockets
from knfleet.dev.node import config
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.endpoint import Connection, Endpoint

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
NODE = "node"
NETWORK = "network"
OUTBOUND = "outbound"
"""What an isolated cluster has besides: who holds its network, and who leads out of it."""
COMPONENTS = (API_SERVER, CONTROLLER_MANAGER, NODE)
"""What each cluster has; etcd is there once for all."""

FIRST_LOOPBACK_NET = 64
"""Pods of the hub that are processes listen on 127.64.x.y, those of the next cluster on 127.65."""

SERVICE_RANGE = "198.18.0.0/16"
SERVICE_ADDRESS = "198.18.0.1"
"""Reserved for benchmarks, routed nowhere; API servers use the egress proxy."""

CONTROLLERS = (
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
    "ttl-after-finished-controller",
)


def process_name(cluster: str, component: str) -> str:
    return f"{cluster}.{component}"


def server_url(cluster: DevClusterState) -> str:
    """Where a cluster's API server listens."""
    return f"https://127.0.0.1:{cluster.port}"


def etcd_socket(folder: DevFolder) -> Path:
    """Where etcd listens for API servers."""
    return folder.sockets / "etcd:2379"


def egress_socket(folder: DevFolder, cluster: DevClusterState) -> Path:
    """Where a cluster's API server asks for the way to Services and pods."""
    return folder.sockets / f"egress-{cluster.index}"


def inner_sockets(folder: DevFolder, cluster: DevClusterState) -> InnerSockets | None:
    """Makes sockets in the network of an isolated cluster; None for any other."""
    if cluster.outbound is None:
        return None
    return InnerSockets(str(folder.sockets / f"network-{cluster.index}"))


def prepare(folder: DevFolder, cluster: DevClusterState) -> None:
    """Make a cluster's certificates and configuration files, unless they are there."""
    home, keys = folder.cluster(cluster.name), folder.pki(cluster.name)
    done = home / "prepared"
    keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Anew each time: the folder of sockets may be another one than the last time.
    write_private(home / "egress.json", egress_configuration(egress_socket(folder, cluster)))
    write_private(home / "node.json", config.dump(node_configuration(folder, cluster)))
    if done.exists():
        return
    authority = pki.CertificateAuthority.create(f"knfleet dev {cluster.name}")
    authority.pair.write(keys, "ca")
    pki.CertificateAuthority.create(f"knfleet dev {cluster.name} webhooks").pair.write(
        keys, "webhook-ca"
    )
    authority.server(
        API_SERVER,
        "127.0.0.1",
        "::1",
        SERVICE_ADDRESS,
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ).write(keys, "apiserver")
    private, public = pki.signing_key()
    write_private(keys / "sa.key", private)
    write_private(keys / "sa.pub", public)
    for user in ("admin", CONTROLLER_MANAGER, NODE):
        client = authority.client(f"knfleet-dev:{user}", "system:masters")
        access = pki.KubeconfigAccess(
            cluster.name, server_url(cluster), authority.pair.certificate, client
        )
        write_private(home / f"{user}.kubeconfig", pki.kubeconfig([access]))
        if user == "admin":
            client.write(keys, "admin")
    write_private(done, b"")


def access(folder: DevFolder, cluster: DevClusterState) -> pki.KubeconfigAccess:
    """The administrator's way into a cluster."""
    keys = folder.pki(cluster.name)
    client = pki.KeyPair((keys / "admin.crt").read_bytes(), (keys / "admin.key").read_bytes())
    return pki.KubeconfigAccess(
        cluster.name, server_url(cluster), (keys / "ca.crt").read_bytes(), client
    )


def connection(folder: DevFolder, cluster: DevClusterState) -> Connection:
    """The administrator's connection to a cluster."""
    admin = access(folder, cluster)
    credential = Credential(
        client_certificate=admin.client.certificate, client_key=admin.client.key
    )
    return Connection(
        ClusterName(cluster.name),
        Endpoint(admin.server, admin.ca, open_socket=inner_sockets(folder, cluster)),
        StaticCredential(credential),
    )


def egress_configuration(socket: Path) -> bytes:
    """How an API server reaches Services and pods: through the node's socket."""
    proxied = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(socket)}}}
    return msgspec.json.encode(
        {
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [
                {"name": "cluster", "connection": proxied},
                {"name": "controlplane", "connection": {"proxyProtocol": "Direct"}},
            ],
        }
    )


def node_configuration(folder: DevFolder, cluster: DevClusterState) -> config.NodeConfig:
    """The settings of the cluster's node."""
    home, keys = folder.cluster(cluster.name), folder.pki(cluster.name)
    return config.NodeConfig(
        cluster=cluster.name,
        kubeconfig=home / f"{NODE}.kubeconfig",
        api_server=server_url(cluster),
        api_server_ca=keys / "ca.crt",
        egress_socket=egress_socket(folder, cluster),
        pods_folder=home / "pods",
        loopback_net=FIRST_LOOPBACK_NET + cluster.index,
        webhook_ca_certificate=keys / "webhook-ca.crt",
        webhook_ca_key=keys / "webhook-ca.key",
        node=f"{cluster.name}-node",
    )


def environment() -> dict[str, str]:
    """What servers find in their environment: how often they collect garbage, unless it is set.

    Half as often as by default saves a sixth of what an installation costs on small machines.
    """
    return {"GOGC": os.environ.get("GOGC") or "200"}


def etcd_arguments(binary: Path, folder: DevFolder) -> list[str]:
    """One etcd for all clusters; without fsync, since a dev cluster may be lost with the power."""
    # The form host:port is checked; the file of that name appears in the working folder.
    clients, peers = "unix://etcd:2379", "unix://etcd:2380"
    return [
        str(binary),
        "--name=dev",
        f"--data-dir={folder.etcd}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=dev={peers}",
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
    ]


def api_server_arguments(binary: Path, folder: DevFolder, cluster: DevClusterState) -> list[str]:
    """RBAC on, admission as by default, everything on loopback."""
    home, keys = folder.cluster(cluster.name), folder.pki(cluster.name)
    return [
        str(binary),
        f"--etcd-servers=unix://{etcd_socket(folder)}",
        f"--etcd-prefix={cluster.prefix}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={cluster.port}",
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--cert-dir={keys}",
        f"--tls-cert-file={keys}/apiserver.crt",
        f"--tls-private-key-file={keys}/apiserver.key",
        f"--client-ca-file={keys}/ca.crt",
        "--authorization-mode=RBAC",
        "--enable-bootstrap-token-auth=true",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={keys}/sa.pub",
        f"--service-account-signing-key-file={keys}/sa.key",
        f"--egress-selector-config-file={home}/egress.json",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged=true",
        "--profiling=false",
        "--v=1",
    ]


def audit_log(folder: DevFolder, cluster: str) -> Path:
    """The audit log of an API server, if it has an audit policy."""
    return folder.cluster(cluster) / "audit.log"


def audit_arguments(folder: DevFolder, cluster: DevClusterState, policy: Object) -> list[str]:
    """Have an API server write down the requests that a policy chooses."""
    file = folder.cluster(cluster.name) / "audit-policy.json"
    write_private(file, msgspec.json.encode(policy))
    return [
        f"--audit-policy-file={file}",
        f"--audit-log-path={audit_log(folder, cluster.name)}",
        "--audit-log-maxsize=1024",
    ]


def webhook_arguments(folder: DevFolder, cluster: DevClusterState, address: str) -> list[str]:
    """Have an API server ask a webhook about tokens that are not its own."""
    name = "webhook"
    config: Object = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": address}}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    file = folder.cluster(cluster.name) / "token-webhook.json"
    write_private(file, msgspec.json.encode(config))
    return [
        f"--authentication-token-webhook-config-file={file}",
        "--authentication-token-webhook-version=v1",
        "--authentication-token-webhook-cache-ttl=1s",
    ]


def controller_manager_arguments(
    binary: Path, folder: DevFolder, cluster: DevClusterState
) -> list[str]:
    """The controllers without which workloads, namespaces, accounts and CSRs do not behave."""
    home, keys = folder.cluster(cluster.name), folder.pki(cluster.name)
    return [
        str(binary),
        f"--kubeconfig={home}/{CONTROLLER_MANAGER}.kubeconfig",
        "--leader-elect=false",
        "--secure-port=0",
        "--bind-address=127.0.0.1",
        f"--controllers={','.join(CONTROLLERS)}",
        f"--root-ca-file={keys}/ca.crt",
        f"--service-account-private-key-file={keys}/sa.key",
        f"--cluster-signing-cert-file={keys}/ca.crt",
        f"--cluster-signing-key-file={keys}/ca.key",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--profiling=false",
        "--v=1",
    ]


def node_arguments(folder: DevFolder, cluster: DevClusterState) -> list[str]:
    """The stand-in for kubelets and the service network."""
    home = folder.cluster(cluster.name)
    return [sys.executable, "-m", "knfleet.dev.node", "--config", f"{home}/node.json"]


def network_arguments(sockets: InnerSockets) -> list[str]:
    """The process that holds the network of an isolated cluster."""
    return [
        *network_namespace.making(),
        sys.executable,
        "-m",
        "knfleet.dev.network.holder",
        sockets.path,
    ]


def outbound_arguments(sockets: InnerSockets, ports: Iterable[int]) -> list[str]:
    """The process that leads out of the network of an isolated cluster."""
    program = [sys.executable, "-m", "knfleet.dev.network.outbound", sockets.path]
    return [*program, *map(str, ports)]
