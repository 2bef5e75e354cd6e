"""Names of images and registries, as users and manifests write them.

`envoyproxy/envoy:v1` means what it means to a container runtime: names without a registry are
those of Docker Hub. A registry on this machine's loopback is spoken to by plain HTTP unless it is
written with https://; any other registry by HTTPS only.
"""

import re
from ipaddress import ip_address

from msgspec import Struct

from knfleet.oci.errors import BadReference

DOCKER_HUB = "docker.io"
API_HOSTS = {DOCKER_HUB: "registry-1.docker.io", "index.docker.io": "registry-1.docker.io"}
"""Registries whose API has another host than their images' names."""
PATH = re.compile(
    r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
)
TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?"
)
LONGEST = 400


class ImageReference(Struct, frozen=True, order=True):
    """An image in a registry, by tag, by digest or by both."""

    registry: str
    """Host, and port if there is one."""
    path: str
    tag: str = ""
    digest: str = ""

    @property
    def version(self) -> str:
        """What a registry is asked for: the digest where there is one."""
        return self.digest or self.tag

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{self.path}{tag}{digest}"


class RegistryPlace(Struct, frozen=True):
    """A registry, or a folder of repositories in it, and how it is spoken to."""

    host: str
    prefix: str = ""
    scheme: str = "https"

    @property
    def base(self) -> str:
        """The address of the registry's API."""
        return f"{self.scheme}://{API_HOSTS.get(self.host, self.host)}"

    def repository(self, path: str) -> str:
        """The repository of a path below this place."""
        return f"{self.prefix}/{path}" if self.prefix else path

    def __str__(self) -> str:
        return self.repository(self.host) if not self.prefix else f"{self.host}/{self.prefix}"


def image_reference(text: str) -> ImageReference:
    """The image that a text names; raises `BadReference`."""
    if len(text) > LONGEST:
        raise BadReference(f"{text[:60]}…: is longer than the name of any image")
    name, at, digest = text.partition("@")
    if at and not DIGEST.fullmatch(digest):
        raise BadReference(f"{text}: after @ comes sha256: and 64 hexadecimal digits")
    head, slash, rest = name.partition("/")
    if slash and (any(mark in head for mark in ".:[") or head == "localhost"):
        registry, path = head, rest
    else:
        registry, path = DOCKER_HUB, name
    path, colon, tag = path.partition(":")
    if registry == DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    if colon and not TAG.fullmatch(tag):
        raise BadReference(f"{text}: {tag!r} is no tag of an image")
    if not HOST.fullmatch(registry) or not PATH.fullmatch(path):
        raise BadReference(
            f"{text}: is no name of an image; write REGISTRY/PATH:TAG or REGISTRY/PATH@sha256:…"
        )
    return ImageReference(registry, path, tag if tag or at else "latest", digest)


def registry_place(text: str) -> RegistryPlace:
    """The registry that a text names; raises `BadReference`."""
    scheme, has_scheme, rest = text.partition("://")
    host, _, prefix = (rest if has_scheme else text).partition("/")
    prefix = prefix.rstrip("/")
    if has_scheme and scheme not in ("http", "https"):
        raise BadReference(f"{text}: a registry is written as HOST[:PORT][/PREFIX]")
    if not HOST.fullmatch(host) or (prefix and not PATH.fullmatch(prefix)):
        raise BadReference(
            f"{text.rpartition('@')[2]}: is no registry; write HOST[:PORT][/PREFIX], in lower case"
            " behind the host"
        )
    if has_scheme and scheme == "http" and not is_loopback(host):
        raise BadReference(
            f"{text}: plain HTTP is spoken on this machine's loopback only; serve the registry by"
            " HTTPS, and give its certificate authority with --ca-file"
        )
    if not has_scheme:
        scheme = "http" if is_loopback(host) else "https"
    return RegistryPlace(host, prefix, scheme)


def is_loopback(host: str) -> bool:
    """Whether a host, with or without a port, is this machine's loopback."""
    name = (
        host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    )
    if name.lower() == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
