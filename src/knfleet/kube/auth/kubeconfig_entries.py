"""The entries of a kubeconfig: clusters, users and contexts, as they are written.

An entry knows where it stands, so that relative paths start from its own file and every complaint
names it.
"""

import base64
import binascii
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct, field

from knfleet.kube.auth.x509 import authorities
from knfleet.kube.endpoint import Endpoint
from knfleet.kube.errors import ConfigError

EXEC_EXTENSION = "client.authentication.k8s.io/exec"
PROXY_SCHEMES = ("http", "https")


class EntryOrigin(Struct, frozen=True):
    """Where an entry was written."""

    source: str
    folder: Path | None = None
    """Where relative paths start; None when the text must not name anything on this machine."""


class NamedExtension(Struct, frozen=True):
    """Something that a program keeps in an entry."""

    name: str = ""
    extension: Any = None


class ClusterBody(Struct, frozen=True, rename="kebab"):
    """What is written about a cluster."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    extensions: list[NamedExtension] = field(default_factory=list[NamedExtension])


class ExecEnvVar(Struct, frozen=True):
    """A variable for a plugin."""

    name: str = ""
    value: str = ""


class ExecBody(Struct, frozen=True, rename="camel"):
    """What is written about a user's plugin."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[ExecEnvVar, ...] = ()
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class UserBody(Struct, frozen=True, rename="kebab"):
    """What is written about a user."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = field(name="tokenFile", default="")
    as_: Any = field(name="as", default=None)
    as_uid: Any = None
    as_groups: Any = None
    as_user_extra: Any = None
    username: Any = None
    password: Any = None
    auth_provider: Any = None
    exec: ExecBody | None = None

    def __repr__(self) -> str:
        return "UserBody()"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class ContextBody(Struct, frozen=True):
    """What is written about a context."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedEntry(Struct, frozen=True):
    """A name, and where it stands."""

    name: str
    origin: EntryOrigin

    def error(self, at: str, problem: str) -> ConfigError:
        """What to raise about a field of this entry."""
        kind = type(self).__name__.removesuffix("Entry").lower()
        return ConfigError(f"{self.origin.source}: {kind} {self.name!r}: {at}: {problem}")

    def path(self, at: str, name: str) -> Path:
        """The file that a field names."""
        if self.origin.folder is None:
            raise self.error(at, f"a file must not be named here; put its content into {at}-data")
        return self.origin.folder / name

    def file(self, at: str, name: str) -> bytes:
        """The content of the file that a field names."""
        path = self.path(at, name)
        try:
            return path.read_bytes()
        except OSError as error:
            problem = error.strerror or type(error).__name__
            raise self.error(at, f"{path} cannot be read: {problem}") from error

    def data(self, at: str, text: str) -> bytes:
        """The content of a field that holds base64."""
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError):
            raise self.error(at, "the value is not base64; encode the file with base64") from None

    def either(self, at: str, name: str, data: str) -> bytes | Path | None:
        """A field that is a file or, with `-data` in its name, its content; not both."""
        if name and data:
            raise self.error(at, f"{at} and {at}-data are both set; remove one of them")
        if data:
            return self.data(f"{at}-data", data)
        return self.path(at, name) if name else None


class ContextEntry(NamedEntry, frozen=True):
    """Which user, on which cluster, in which namespace."""

    body: ContextBody


class UserEntry(NamedEntry, frozen=True):
    """Who we are."""

    body: UserBody


class ClusterEntry(NamedEntry, frozen=True):
    """Where an API server is."""

    body: ClusterBody

    def endpoint(self) -> Endpoint:
        """The address, with everything about it checked."""
        body = self.body
        return Endpoint(
            server=self.server().rstrip("/"),
            ca=self.ca(),
            proxy_url=self.proxy_url(),
            tls_server_name=body.tls_server_name or None,
            insecure=body.insecure_skip_tls_verify,
        )

    def exec_config(self) -> Any:
        """What the entry keeps for credential plugins."""
        found = [one.extension for one in self.body.extensions if one.name == EXEC_EXTENSION]
        return found[0] if found else None

    def server(self) -> str:
        """The server's URL, without a query."""
        if not self.body.server:
            raise self.error("server", "it is missing; write the URL of the API server")
        url = parsed(self.body.server)
        if url is None or url.scheme not in ("https", "http"):
            raise self.error("server", "it is not an https:// URL")
        if url.username is not None or url.password is not None:
            raise self.error("server", "it holds a user name or password; put a token into a user")
        if url.scheme == "http" and not is_loopback(url.hostname or ""):
            raise self.error("server", "http:// is accepted for this machine only; use https://")
        return url._replace(query="", fragment="").geturl()

    def ca(self) -> bytes | None:
        """The certificates that the server's own must come from."""
        at, body = "certificate-authority", self.body
        found = self.either(at, body.certificate_authority, body.certificate_authority_data)
        if found is None:
            return None
        if body.insecure_skip_tls_verify:
            problem = "specifying a root certificates file with the insecure flag is not allowed"
            raise self.error(at, f"{problem}; remove insecure-skip-tls-verify")
        if isinstance(found, Path):
            found = self.file(at, body.certificate_authority)
        else:
            at += "-data"
        if not (pem := authorities(found)):
            raise self.error(at, "there is no PEM certificate in it that can be read")
        return pem

    def proxy_url(self) -> str | None:
        """The proxy on the way to the server."""
        if not self.body.proxy_url:
            return None
        url = parsed(self.body.proxy_url)
        if url is None or url.scheme not in PROXY_SCHEMES:
            raise self.error("proxy-url", "it is not an http:// or https:// URL")
        return self.body.proxy_url


def parsed(text: str) -> SplitResult | None:
    """A URL with a host and a good port; None when it is none."""
    try:
        url = urlsplit(text)
        usable = bool(url.hostname) and url.port != 0
    except ValueError:
        return None
    return url if usable and not any(character.isspace() for character in text) else None


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
