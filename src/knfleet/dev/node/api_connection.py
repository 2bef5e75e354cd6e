"""The node's own way to its API server, from the kubeconfig that was written for it.

That file is JSON and carries everything inside, so it is read here without a YAML parser and
without looking into the certificates: `kube.kubeconfig` loads libraries for both, a fifth of what
this process needs otherwise, and there is one such process for each cluster.
"""

import base64
from pathlib import Path

import msgspec
from msgspec import Struct

from knfleet.api.meta import ClusterName
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.endpoint import Connection, Endpoint


class KubeconfigCluster(Struct, rename="kebab"):
    """Where the API server is."""

    server: str
    certificate_authority_data: str


class KubeconfigUser(Struct, rename="kebab"):
    """Who the node is."""

    client_certificate_data: str
    client_key_data: str


class NamedKubeconfigCluster(Struct):
    """An entry of `clusters`."""

    cluster: KubeconfigCluster


class NamedKubeconfigUser(Struct):
    """An entry of `users`."""

    user: KubeconfigUser


class NodeKubeconfig(Struct):
    """The file; the first cluster and user count."""

    clusters: list[NamedKubeconfigCluster]
    users: list[NamedKubeconfigUser]


def read_connection(path: Path, cluster: str) -> Connection:
    """The connection that a kubeconfig in JSON describes."""
    file = msgspec.json.decode(path.read_bytes(), type=NodeKubeconfig)
    server, user = file.clusters[0].cluster, file.users[0].user
    credential = Credential(
        client_certificate=base64.b64decode(user.client_certificate_data),
        client_key=base64.b64decode(user.client_key_data),
    )
    ca = base64.b64decode(server.certificate_authority_data)
    return Connection(
        ClusterName(cluster), Endpoint(server.server, ca), StaticCredential(credential)
    )
