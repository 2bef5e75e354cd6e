"""Copies images from registries into a layout; what is there already is not fetched again."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from knfleet.kube.untrusted_json import decode_json
from knfleet.oci.errors import BadImage, BadReference, MissingImage
from knfleet.oci.image_manifest import (
    Descriptor,
    ImageManifest,
    Platform,
    check_digest,
    chosen_index,
    image_manifest,
    platforms,
)
from knfleet.oci.image_reference import ImageReference, RegistryPlace, registry_place
from knfleet.oci.layout_folder import IMAGE, NAME, WHOLE_INDEX, LayoutFolder
from knfleet.oci.registry_client import RegistryClient

AT_ONCE = 4
DEEPEST = 3
"""How many indexes may be inside of each other."""


class ImageMirrors(Struct, frozen=True):
    """From which registries images are pulled instead of those in their names."""

    places: Mapping[str, RegistryPlace] = {}

    def find(self, image: ImageReference) -> tuple[RegistryPlace, str]:
        """The registry and the repository of an image."""
        place = self.places.get(image.registry) or registry_place(image.registry)
        return place, place.repository(image.path)


def image_mirrors(texts: Sequence[str]) -> ImageMirrors:
    """Mirrors from texts such as gcr.io=registry.example.com/mirror; raises `BadReference`."""
    places: dict[str, RegistryPlace] = {}
    for text in texts:
        host, equals, place = text.partition("=")
        if not host or not equals:
            raise BadReference(f"{text}: a mirror is written as HOST=HOST[:PORT][/PREFIX]")
        places[host] = registry_place(place)
    return ImageMirrors(places)


class ImageDownload:
    """Saves images in a layout."""

    def __init__(
        self,
        client: RegistryClient,
        layout: LayoutFolder,
        mirrors: ImageMirrors = ImageMirrors(),  # noqa: B008  # it cannot change
        wanted: Sequence[Platform] = (),
    ) -> None:
        self.client, self.layout, self.mirrors, self.wanted = client, layout, mirrors, wanted
        self.turns = asyncio.Semaphore(AT_ONCE)
        self.fetched_bytes = 0
        self.checked: set[str] = set()
        """Blobs that were found whole, or fetched, by this object."""

    async def save(self, name: str, image: ImageReference) -> Descriptor:
        """Save an image with all its parts, and name it in the index; its entry."""
        place, repository = self.mirrors.find(image)
        content, media_type = await self.manifest(place, repository, image)
        what = str(image)
        found = image_manifest(what, content, media_type)
        annotations = {IMAGE: name, NAME: name}
        if found.is_index and self.wanted:
            whole, content = content, chosen_index(what, content, self.wanted)
            if content != whole:
                annotations[WHOLE_INDEX] = self.layout.add(whole)
                found = image_manifest(what, content)
        await self.parts(place, repository, found, what)
        if not found.is_index:
            self.check_platform(found, what)
        entry = Descriptor(
            media_type=found.media_type,
            digest=self.layout.add(content),
            size=len(content),
            annotations=annotations,
        )
        self.layout.name(entry)
        return entry

    async def manifest(
        self, place: RegistryPlace, repository: str, image: ImageReference
    ) -> tuple[bytes, str]:
        """A manifest and its type: from the layout when it is there under its digest."""
        if image.digest and (content := self.layout.content(image.digest)) is not None:
            return content, ""
        fetched = await self.client.manifest(place, repository, image.version)
        if fetched is None:
            at = "" if place.host == image.registry else f" (asked at {place})"
            raise MissingImage(f"{image}: there is no such image{at}; check its name, and --mirror")
        return fetched.content, fetched.media_type

    async def parts(
        self, place: RegistryPlace, repository: str, found: ImageManifest, what: str, depth: int = 0
    ) -> None:
        """Save what a manifest names: blobs, or the manifests of an index with theirs."""
        if depth > DEEPEST:
            raise BadImage(f"{what}: has more than {DEEPEST} indexes inside of each other")
        if not found.is_index:
            async with asyncio.TaskGroup() as tasks:
                for part in found.blobs:
                    tasks.create_task(self.blob(place, repository, part))
            return
        for part in found.manifests:
            image = ImageReference(place.host, repository, digest=part.digest)
            content, media_type = await self.manifest(place, repository, image)
            check_digest(str(image), content, part.digest)
            child = image_manifest(str(image), content, part.media_type or media_type)
            await self.parts(place, repository, child, what, depth + 1)
            self.layout.add(content)

    async def blob(self, place: RegistryPlace, repository: str, part: Descriptor) -> None:
        """Save a blob unless it is there."""
        async with self.turns:
            if part.digest in self.checked or await asyncio.to_thread(self.layout.has, part):
                self.checked.add(part.digest)
                return
            where = f"{place.host}/{repository}@{part.digest}"
            draft = self.layout.draft(part)

            def write(offset: int, content: bytes) -> None:
                draft.write(offset, content)
                self.fetched_bytes += len(content)

            if not await self.client.blob(place, repository, part.digest, draft.start, write):
                raise MissingImage(f"{where}: the registry lacks this part of the image")
            await asyncio.to_thread(self.layout.accept, draft, where)
            self.checked.add(part.digest)

    def check_platform(self, found: ImageManifest, what: str) -> None:
        """Refuse an image for one platform that is not among those that are wanted."""
        content = self.layout.content(found.config.digest) if found.config else None
        if not self.wanted or content is None:
            return
        with contextlib.suppress(msgspec.MsgspecError):
            built = decode_json(content, Platform)
            if built.os and not any(built.fits(each) for each in self.wanted):
                raise BadImage(f"{what}: is an image for {built}, not for {platforms(self.wanted)}")
