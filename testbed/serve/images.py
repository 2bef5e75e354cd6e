"""What the images are on this machine: which program a container runs, and its files."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from knfleet.dev.node.containers.container_command import CommandNotFound

REGISTRIES = ("gcr.io/knative-releases/", "docker.io/")


class Image(Struct, frozen=True):
    """An image: what it runs, and which files of this machine it consists of."""

    entrypoint: tuple[str, ...]
    files: Mapping[str, Path]
    """By their path in the container."""


class Images(Struct, frozen=True):
    """All images that there are, by repository, without the registries above."""

    images: Mapping[str, Image]

    def find(self, reference: str) -> Image:
        """The image of a container; raises `CommandNotFound` for one that is nowhere."""
        name = repository(reference)
        if name not in self.images:
            raise CommandNotFound(f"{reference}: no such image on this machine")
        return self.images[name]

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.json.encode(self.images, enc_hook=str))


def load(path: Path) -> Images:
    """The images that `Images.save` wrote."""

    def as_path(wanted: type, value: object) -> object:
        return wanted(value)

    found = msgspec.json.decode(path.read_bytes(), type=dict[str, Image], dec_hook=as_path)
    return Images(found)


def repository(reference: str) -> str:
    """The repository of a reference, without registry, tag and digest."""
    name = reference.partition("@")[0]
    head, slash, last = name.rpartition("/")
    name = head + slash + last.partition(":")[0]
    for registry in REGISTRIES:
        name = name.removeprefix(registry)
    return name
