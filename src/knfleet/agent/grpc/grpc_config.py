"""The configuration of a gRPC client, as agents of Open Cluster Management write it. Pure."""

import base64
import binascii
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from knfleet.kube.errors import ConfigError
from knfleet.kube.yaml import YamlError, dump_all, load_all

DEFAULT_PORT = 443


class GrpcConfig(Struct, frozen=True):
    """Where a gRPC server is, and how to log in there; never printed."""

    url: str
    """Host and port."""
    ca: bytes = b""
    token: str = ""

    def __repr__(self) -> str:
        return f"GrpcConfig({self.url!r})"

    def with_token(self) -> bytes:
        """The file by which an agent begins."""
        content = {
            "url": self.url,
            "caData": base64.b64encode(self.ca).decode(),
            "token": self.token,
        }
        return dump_all([content]).encode()

    def written(self, folder: str = "") -> bytes:
        """The file beside certificate and key, for programs that read it."""
        prefix = f"{folder.rstrip('/')}/" if folder else ""
        content = {
            "url": self.url,
            "caData": base64.b64encode(self.ca).decode(),
            "clientCertFile": f"{prefix}tls.crt",
            "clientKeyFile": f"{prefix}tls.key",
        }
        return dump_all([{name: value for name, value in content.items() if value}]).encode()


class ConfigFile(Struct, frozen=True, rename="camel"):
    """What is read of such a file."""

    url: str = ""
    ca_data: str = ""
    ca_file: str = ""
    token: str = ""
    token_file: str = ""


def read_config(text: bytes, where: str) -> GrpcConfig:
    """What a file says; raises `ConfigError`."""
    try:
        documents: list[Any] = load_all(text)
        found = msgspec.convert(documents[0] if documents else {}, ConfigFile)
        ca = base64.b64decode(found.ca_data, validate=True)
    except (msgspec.ValidationError, YamlError, binascii.Error, ValueError) as error:
        raise ConfigError(f"{where}: not a configuration of a gRPC client: {error}") from error
    if not found.url:
        raise ConfigError(f"{where}: it has no url")
    if found.ca_file or found.token_file:
        raise ConfigError(f"{where}: caFile and tokenFile are not read; use caData and token")
    return GrpcConfig(target_of(found.url, where), ca, found.token)


def target_of(url: str, where: str) -> str:
    """Host and port of a gRPC server, also when it is written as an https:// URL."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError as error:
        raise ConfigError(f"{where}: {url}: {error}") from error
    if not parts.hostname or parts.scheme not in ("", "https") or parts.path not in ("", "/"):
        raise ConfigError(f"{where}: {url}: write the host and port of the gRPC server")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{port}"
