"""Manifests of images and indexes, read with care: they come from outside.

A manifest is kept as the bytes that its digest belongs to; what is read of it here is only which
parts it has.
"""

import hashlib
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from knfleet.kube.untrusted_json import decode_json
from knfleet.oci.errors import BadImage, BadReference
from knfleet.oci.image_reference import DIGEST

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEXES = (OCI_INDEX, DOCKER_INDEX)
MANIFESTS = (OCI_MANIFEST, DOCKER_MANIFEST)
EMPTY_CONFIG = "application/vnd.oci.empty.v1+json"
ALGORITHM = "sha256:"
MOST_BYTES = 4 * 1024 * 1024
"""Of a manifest; registries have the same limit."""
MOST_PARTS = 1000
MOST_BLOB_BYTES = 20 * 1024 * 1024 * 1024


class Platform(Struct, frozen=True, omit_defaults=True, order=True):
    """The machine that an image is for."""

    architecture: str = ""
    os: str = ""
    variant: str = ""

    def fits(self, wanted: "Platform") -> bool:
        """Whether this is a platform that was asked for, whose variant may be left open."""
        return (self.os, self.architecture) == (wanted.os, wanted.architecture) and (
            not wanted.variant or self.variant == wanted.variant
        )

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


class Descriptor(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of an image: what it is, its digest, and how large it is."""

    media_type: str = ""
    digest: str = ""
    size: int = 0
    platform: Platform | None = None
    annotations: dict[str, str] = {}
    artifact_type: str = ""


class ImageManifest(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A manifest or an index, as far as copying needs it."""

    schema_version: int = 0
    media_type: str = ""
    artifact_type: str = ""
    config: Descriptor | None = None
    layers: tuple[Descriptor, ...] = ()
    manifests: tuple[Descriptor, ...] = ()
    annotations: dict[str, str] = {}

    @property
    def is_index(self) -> bool:
        return self.media_type in INDEXES

    @property
    def blobs(self) -> tuple[Descriptor, ...]:
        """Configuration and layers, each once."""
        found = [self.config, *self.layers] if self.config else self.layers
        return tuple({each.digest: each for each in found if each}.values())


def digest_of(content: bytes) -> str:
    return ALGORITHM + hashlib.sha256(content).hexdigest()


def check_digest(what: str, content: bytes, digest: str) -> None:
    """Raise `BadImage` unless some bytes are those that a digest names."""
    if (found := digest_of(content)) != digest:
        raise BadImage(f"{what}: the content has the digest {found}, not {digest}; get it again")


def image_manifest(what: str, content: bytes, media_type: str = "") -> ImageManifest:
    """What a manifest says of its parts; raises `BadImage` if it says nothing that can be used."""
    if len(content) > MOST_BYTES:
        raise BadImage(f"{what}: the manifest is larger than {MOST_BYTES >> 20} MiB")
    try:
        found = decode_json(content, ImageManifest)
    except msgspec.MsgspecError as error:
        raise BadImage(f"{what}: is no manifest of an image: {error}") from None
    named = found.media_type or media_type or guessed(found)
    if found.schema_version != 2 or named not in (*INDEXES, *MANIFESTS):
        raise BadImage(
            f"{what}: the manifest has schema {found.schema_version} and type {named or 'none'};"
            " images need a manifest of OCI or of Docker's schema 2"
        )
    found = msgspec.structs.replace(found, media_type=named)
    if found.is_index == (found.config is not None):
        raise BadImage(f"{what}: the manifest mixes those of an image and of an index")
    parts = found.manifests if found.is_index else found.blobs
    if len(parts) > MOST_PARTS:
        raise BadImage(f"{what}: the manifest has more than {MOST_PARTS} parts")
    for part in parts:
        check_descriptor(what, part)
    return found


def guessed(manifest: ImageManifest) -> str:
    """The type of an OCI manifest that leaves it out."""
    return OCI_MANIFEST if manifest.config else OCI_INDEX if manifest.manifests else ""


def check_descriptor(what: str, part: Descriptor) -> None:
    """Refuse a part whose digest or size nothing can be."""
    if not DIGEST.fullmatch(part.digest):
        raise BadImage(f"{what}: {part.digest[:80]!r} is no digest that can be checked (sha256)")
    if not 0 <= part.size <= MOST_BLOB_BYTES:
        raise BadImage(
            f"{what}: {part.digest} has {part.size} bytes; from 0 to {MOST_BLOB_BYTES >> 30} GiB"
            " can be copied"
        )


def platform(text: str) -> Platform:
    """The platform that a text such as linux/arm64/v8 names; raises `BadReference`."""
    names = text.split("/")
    if not 2 <= len(names) <= 3 or not all(names):
        raise BadReference(f"{text}: is no platform; write OS/ARCHITECTURE, such as linux/amd64")
    return Platform(names[1], names[0], names[2] if len(names) == 3 else "")


def chosen_index(what: str, content: bytes, wanted: Sequence[Platform]) -> bytes:
    """The index reduced to some platforms: the same bytes each time, so that it can be checked."""
    index = image_manifest(what, content)
    there = [each for each in index.manifests if each.platform is not None]
    for each in wanted:
        if not any(part.platform and part.platform.fits(each) for part in there):
            raise BadImage(
                f"{what}: has no image for {each}; it has those for"
                f" {platforms(part.platform for part in there)}"
            )
    kept = [
        each
        for each in there
        if each.platform and any(each.platform.fits(platform) for platform in wanted)
    ]
    if len(kept) == len(index.manifests):
        return content
    reduced = ImageManifest(schema_version=2, media_type=index.media_type, manifests=tuple(kept))
    return msgspec.json.encode(reduced, order="sorted")


def platforms(found: Iterable[Platform | None]) -> str:
    """Platforms for messages."""
    return ", ".join(sorted({str(each) for each in found if each})) or "none"
