"""Where images of a layout go in a registry: puts them there, and compares what is there."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterator

from msgspec import Struct

from knfleet.oci.errors import BadImage, BadReference, ImageError
from knfleet.oci.image_manifest import Descriptor, ImageManifest, image_manifest
from knfleet.oci.image_reference import ImageReference, RegistryPlace, image_reference
from knfleet.oci.layout_folder import IMAGE
from knfleet.oci.layout_reader import ImageLayout
from knfleet.oci.registry_client import RegistryClient

AT_ONCE = 4


class PlacedImage(Struct, frozen=True):
    """An image of a layout, and where it is in a registry."""

    name: str
    """As the release names it."""
    repository: str
    tag: str
    entry: Descriptor

    def address(self, place: RegistryPlace) -> str:
        """What a cluster pulls."""
        return f"{place.host}/{self.repository}@{self.entry.digest}"


def placed_images(layout: ImageLayout, place: RegistryPlace) -> list[PlacedImage]:
    """All images of a layout with their places: the path of their name below that of the place.

    Images without a tag get one, because many registries remove what has none.
    """
    found: list[PlacedImage] = []
    taken: dict[tuple[str, str], PlacedImage] = {}
    for entry in layout.index.manifests:
        name = entry.annotations.get(IMAGE, "")
        image: ImageReference = image_reference(name)
        tag = image.tag or f"knfleet-{entry.digest.removeprefix('sha256:')[:12]}"
        placed = PlacedImage(name, place.repository(image.path), tag, entry)
        other = taken.setdefault((placed.repository, tag), placed)
        if other.entry.digest != entry.digest:
            raise BadReference(
                f"{other.name} and {name} would have the same name in {place}; push them to"
                " different prefixes, from two layouts"
            )
        found.append(placed)
    return found


def manifests(layout: ImageLayout, digest: str) -> Iterator[tuple[str, bytes, ImageManifest]]:
    """Digest, bytes and content of a manifest and those inside of it, the innermost first."""
    content = layout.manifest_content(digest)
    found = image_manifest(digest, content)
    for part in found.manifests:
        yield from manifests(layout, part.digest)
    yield digest, content, found


class RegistryUpload:
    """Puts images of a layout into a registry; what is there already is not sent again.

    What is there but damaged is sent again, and read again, for a registry may keep what it has.
    """

    def __init__(
        self,
        client: RegistryClient,
        layout: ImageLayout,
        place: RegistryPlace,
        *,
        full: bool = False,
    ) -> None:
        self.client, self.layout, self.place = client, layout, place
        self.full = full
        """Whether blobs that are there are read, beside their size."""
        self.homes: dict[str, str] = {}
        """A repository that has a blob, by digest: registries take it over from there."""
        self.sent_bytes = 0

    async def push(self, image: PlacedImage) -> None:
        """Put an image with all its parts: blobs, manifests, and the tag at last."""
        for digest, content, manifest in manifests(self.layout, image.entry.digest):
            turns = asyncio.Semaphore(AT_ONCE)
            async with asyncio.TaskGroup() as tasks:
                for part in manifest.blobs:
                    tasks.create_task(self.blob(image, part, turns))
            version = digest if digest != image.entry.digest else image.tag
            await self.client.put_manifest(
                self.place, image.repository, version, content, manifest.media_type
            )

    async def blob(self, image: PlacedImage, part: Descriptor, turns: asyncio.Semaphore) -> None:
        """Put a blob unless the repository has it."""
        async with turns:
            origin = self.homes.get(part.digest, "")
            if origin == image.repository:
                return
            there = await self.client.has_blob(self.place, image.repository, part.digest)
            is_damaged = there is not None and (
                there != part.size or (self.full and not await self.is_whole(image, part))
            )
            if there is None or is_damaged:

                async def body() -> AsyncIterator[bytes]:
                    for chunk in self.layout.chunks(part.digest):
                        yield chunk

                if await self.client.put_blob(
                    self.place, image.repository, part.digest, part.size, body, origin
                ):
                    self.sent_bytes += part.size
            if is_damaged and not await self.is_whole(image, part):
                raise BadImage(
                    f"{self.place.host}/{image.repository}@{part.digest} has another content than"
                    " its digest says, and the registry keeps it although it was sent again;"
                    " delete this blob from the storage of the registry, and push again"
                )
            self.homes[part.digest] = image.repository

    async def is_whole(self, image: PlacedImage, part: Descriptor) -> bool:
        """Whether a blob in the registry has the content that its digest says."""
        found = await content_digest(self.client, self.place, image.repository, part)
        return found == part.digest


async def content_digest(
    client: RegistryClient, place: RegistryPlace, repository: str, part: Descriptor
) -> str:
    """The digest of what a registry sends as a blob, as far as the blob's size."""
    digest = hashlib.sha256()
    read = 0

    def write(offset: int, content: bytes) -> None:
        nonlocal read
        if offset != read:
            raise TooMuch
        read += len(content)
        if read > part.size:
            raise TooMuch
        digest.update(content)

    with contextlib.suppress(TooMuch):
        await client.blob(place, repository, part.digest, lambda: read, write)
    return f"sha256:{digest.hexdigest()}"


class RegistryCheck:
    """Compares a registry with a layout."""

    def __init__(
        self, client: RegistryClient, layout: ImageLayout, place: RegistryPlace, *, full: bool
    ) -> None:
        self.client, self.layout, self.place, self.full = client, layout, place, full

    async def problems(self, image: PlacedImage) -> list[str]:
        """What of an image is missing in the registry or is another one there."""
        name = f"{self.place.host}/{image.repository}"
        tagged = await self.client.manifest(self.place, image.repository, image.tag)
        found: list[str] = []
        if tagged is None:
            found.append(f"{name}:{image.tag} is missing")
        elif tagged.digest != image.entry.digest:
            found.append(
                f"{name}:{image.tag} has the digest {tagged.digest}, not {image.entry.digest}"
            )
        for digest, _, manifest in manifests(self.layout, image.entry.digest):
            found += await self.manifest_problems(image, digest)
            for part in manifest.blobs:
                found += await self.blob_problems(image, part)
        return found

    async def manifest_problems(self, image: PlacedImage, digest: str) -> list[str]:
        """Whether a manifest is there."""
        name = f"{self.place.host}/{image.repository}@{digest}"
        try:
            if await self.client.manifest(self.place, image.repository, digest) is None:
                return [f"{name} is missing"]
        except ImageError as error:
            return [str(error)]
        return []

    async def blob_problems(self, image: PlacedImage, part: Descriptor) -> list[str]:
        """Whether a blob is there, with its size; with its digest if all bytes are read."""
        name = f"{self.place.host}/{image.repository}@{part.digest}"
        size = await self.client.has_blob(self.place, image.repository, part.digest)
        if size is None:
            return [f"{name} is missing"]
        if size not in (part.size, -1):
            return [f"{name} has {size} bytes, not {part.size}"]
        if not self.full:
            return []
        if await content_digest(self.client, self.place, image.repository, part) != part.digest:
            return [f"{name} has another content than its digest says"]
        return []


class TooMuch(Exception):
    """A registry sends more than a blob has."""
