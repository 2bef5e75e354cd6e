"""The cluster that this process runs in, as its ServiceAccount; and which cluster is meant at all.

A pod finds the API server's address in its environment, and the token, the CA and its namespace in
a folder. The token changes there every hour or so and is read again.
"""

import os
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path

from msgspec import structs

from knfleet.api.meta import HUB
from knfleet.kube.auth import kubeconfig
from knfleet.kube.auth.credentials import TokenFile
from knfleet.kube.auth.pod_path import service_account
from knfleet.kube.auth.x509 import authorities
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.kube.errors import ConfigError

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


def in_cluster(environ: Mapping[str, str] = os.environ) -> Connection:
    """The connection of a pod to its own cluster; raises `ConfigError` outside of one."""
    if missing := [name for name in (HOST, PORT) if not environ.get(name)]:
        raise ConfigError(f"not in a cluster: {' and '.join(missing)} not set in the environment")
    folder = service_account(environ)
    if not (folder / "token").is_file():
        raise ConfigError(
            f"in a cluster, but there is no token at {folder / 'token'}; "
            "give the pod a ServiceAccount and do not set automountServiceAccountToken to false"
        )
    namespace = text_of(folder / "namespace")
    return Connection(
        cluster=HUB,
        endpoint=Endpoint(server=address(environ[HOST], environ[PORT]), ca=ca_of(folder)),
        credentials=TokenFile(folder / "token"),
        namespace=namespace or "default",
    )


def default_connection(context: str | None = None) -> Connection:
    """The cluster to work on: a kubeconfig's if one is named or there, else the one we run in."""
    if context or not kubeconfig.read().is_empty:
        return structs.replace(kubeconfig.load(context=context), cluster=HUB)
    try:
        return in_cluster()
    except ConfigError as error:
        looked = kubeconfig.listed(map(str, kubeconfig.default_paths()))
        problem = f"no cluster: nothing is configured in a kubeconfig ({looked}), and {error}"
        raise ConfigError(f"{problem}; set KUBECONFIG") from error


def address(host: str, port: str) -> str:
    """The URL of the API server."""
    if not (port.isdecimal() and 0 < int(port) < 65536):
        raise ConfigError(f"{PORT} is not the number of a port")
    try:
        bracketed = ip_address(host).version == 6
    except ValueError:
        bracketed = False
    return f"https://[{host}]:{port}" if bracketed else f"https://{host}:{port}"


def ca_of(folder: Path) -> bytes:
    """The cluster's own certificate authority."""
    path = folder / "ca.crt"
    try:
        found = authorities(path.read_bytes())
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise ConfigError(
            f"in a cluster, but the CA at {path} cannot be read: {problem}"
        ) from error
    if not found:
        raise ConfigError(f"in a cluster, but there is no PEM certificate in {path}")
    return found


def text_of(path: Path) -> str:
    """A small file's text; empty when there is none."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
