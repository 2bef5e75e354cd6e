"""How a plugin reads a Secret: from the cluster it runs in, else from the one of a kubeconfig.

In a pod, where it counts, this is one request by the standard library. Only with a kubeconfig are
the parts of `knfleet.kube` loaded that understand one.
"""

import base64
import http.client
import json
import os
import socket
import ssl
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from knfleet.kube.auth.pod_path import service_account
from knfleet.plugins import permission
from knfleet.plugins.execcredential import (
    Json,
    PluginEnvironment,
    PluginError,
    PluginRequest,
    mapping,
)

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
CONTEXT_VARIABLE = "KNFLEET_HUB_CONTEXT"
"""Names the context of the kubeconfig, where it is not to be the current one."""
TIMEOUT_SECONDS = 10.0
LARGEST_ANSWER = 4 * 2**20
"""A Secret has at most one mebibyte, which base64 and metadata make longer."""


FAILURES = (OSError, http.client.HTTPException)


class SecretForbidden(PluginError):
    """The plugin may not read a Secret."""


class HubApi(NamedTuple):
    """The API server that has the Secrets."""

    server: str
    trust: ssl.SSLContext
    server_name: str
    """The name that the server's certificate is for."""
    token: str
    namespace: str
    """Where Secrets are by default."""

    def secret(self, namespace: str, name: str) -> dict[str, bytes] | None:
        """The data of a Secret; None when there is no such Secret."""
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/secrets/{quote(name, safe='')}"
        code, body = self.get(path)
        what = f"failed to get secret {namespace}/{name}"
        if code == 404:
            return None
        if code != 200:
            message = str(mapping(parsed(body)).get("message") or f"the API server answered {code}")
            raise (SecretForbidden if code == 403 else PluginError)(f"{what}: {message}")
        data = mapping(mapping(parsed(body)).get("data"))
        try:
            return {key: base64.b64decode(str(value)) for key, value in data.items()}
        except ValueError:
            raise PluginError(f"{what}: its data is not base64") from None

    def get(self, path: str) -> tuple[int, bytes]:
        """The status code and body of one answer."""
        line = self.line()
        try:
            self.dial(line)
            return self.ask(line, path)
        except FAILURES as error:
            raise self.unanswered(error) from error
        finally:
            line.close()

    def line(self) -> http.client.HTTPConnection:
        """A connection that is still to be made."""
        address = urlsplit(self.server)
        host, port = address.hostname or "", address.port or 443
        line = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        # What it would open by itself has no TLS.
        line.auto_open = 0
        return line

    def dial(self, line: http.client.HTTPConnection) -> None:
        """Make a connection."""
        line.sock = socket.create_connection((line.host, line.port), TIMEOUT_SECONDS)
        line.sock = self.trust.wrap_socket(line.sock, server_hostname=self.server_name or line.host)

    def ask(self, line: http.client.HTTPConnection, path: str) -> tuple[int, bytes]:
        """The status code and body of an answer on a connection."""
        prefix = urlsplit(self.server).path.rstrip("/")
        line.request("GET", prefix + path, headers=self.headers())
        response = line.getresponse()
        return response.status, response.read(LARGEST_ANSWER)

    def unanswered(self, error: Exception) -> PluginError:
        """What to say when there is no answer."""
        problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return PluginError(f"no answer from {self.server}: {problem}")

    def headers(self) -> dict[str, str]:
        """What every request says; a connection that shows a certificate needs no token."""
        common = {"Accept": "application/json", "User-Agent": "knfleet-plugin"}
        return common | {"Authorization": f"Bearer {self.token}"} if self.token else common


def find(environ: Mapping[str, str] = os.environ) -> HubApi:
    """The cluster of the pod that this is, else the current one of the kubeconfig."""
    folder = service_account(environ)
    host, port = environ.get(HOST), environ.get(PORT)
    if host and port and (folder / "token").is_file():
        return of_the_pod(folder, f"[{host}]" if ":" in host else host, port, environ)
    return of_a_kubeconfig(environ)


def of_the_pod(folder: Path, host: str, port: str, environ: Mapping[str, str]) -> HubApi:
    """The cluster that this runs in, as the ServiceAccount that it runs as."""
    try:
        token = (folder / "token").read_text(encoding="ascii").strip()
        trust = ssl.create_default_context(cadata=(folder / "ca.crt").read_text(encoding="ascii"))
        # A cluster's CA bundle may hold intermediate certificates only, as client-go allows.
        trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or "it holds something else"
        raise PluginError(f"cannot read the pod's own account in {folder}: {problem}") from error
    namespace = environ.get("POD_NAMESPACE") or file_text(folder / "namespace") or "default"
    return HubApi(f"https://{host}:{port}", trust, "", token, namespace)


def file_text(path: Path) -> str:
    """A small file's text; empty when there is none."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def of_a_kubeconfig(environ: Mapping[str, str]) -> HubApi:
    """The cluster of the context that is named, else of the current one."""
    import asyncio

    from knfleet.kube.auth import kubeconfig
    from knfleet.kube.auth.tls import new_context
    from knfleet.kube.errors import KubeError

    try:
        connection = kubeconfig.load(context=environ.get(CONTEXT_VARIABLE), environ=environ)
        credential = asyncio.run(connection.credentials.fetch())
        endpoint = connection.endpoint
        if endpoint.proxy_url or not endpoint.server.startswith("https://"):
            raise PluginError("proxy-url and http:// are not supported here; use https:// directly")
        return HubApi(
            endpoint.server,
            new_context(endpoint, credential),
            endpoint.tls_server_name or "",
            credential.token or "",
            connection.namespace,
        )
    except KubeError as error:
        raise PluginError(f"neither in a cluster, nor with a kubeconfig: {error}") from error


def parsed(body: bytes) -> Json:
    """An answer's JSON; empty when it is something else."""
    try:
        return mapping(json.loads(body))
    except ValueError:
        return {}


def value(
    question: PluginRequest, here: PluginEnvironment, names: Sequence[str], key: str
) -> tuple[str, str]:
    """The text in the first Secret of these names that is there, and where that is."""
    cluster = here.hub()
    spaces = permission.namespaces(question, here.environ, cluster.namespace)
    refused: SecretForbidden | None = None
    for namespace, name in product(spaces, names):
        try:
            data = cluster.secret(namespace, name)
        except SecretForbidden as error:
            refused = refused or error
            continue
        if data is not None:
            return text_in(data, f"{namespace}/{name}", key), f"secret {namespace}/{name}"
    if refused is not None:
        raise refused
    places = [f"{namespace}/{name}" for namespace, name in product(spaces, names)]
    other = f", nor {', '.join(places[1:])}" if places[1:] else ""
    text = f'failed to get secret {places[0]}: secrets "{names[0]}" not found{other}'
    if cluster.namespace in spaces or question.text("namespace"):
        raise PluginError(f"{text}; create it with the key {key!r}")
    consent = permission.consent(cluster.namespace)
    raise PluginError(f"{text}; create it with the key {key!r}, or {consent} to use one there")


def text_in(data: Mapping[str, bytes], secret: str, key: str) -> str:
    """The text under a key of a Secret's data; raises when there is none."""
    if not (found := data.get(key)):
        there = ", ".join(sorted(data)) or "none"
        raise PluginError(f'secret {secret} missing "{key}" key; its keys are: {there}')
    try:
        return found.decode("utf-8")
    except UnicodeDecodeError:
        raise PluginError(f'secret {secret}: "{key}" is not text') from None
