"""Checks a layout without a network: every part of every image, by size and digest."""

from collections.abc import Collection, Iterator

from msgspec import Struct

from knfleet.oci.errors import ImageError
from knfleet.oci.image_manifest import Descriptor, chosen_index, image_manifest
from knfleet.oci.layout_folder import IMAGE, WHOLE_INDEX
from knfleet.oci.layout_reader import ImageLayout


class LayoutReport(Struct, frozen=True):
    """What a layout holds, and what is wrong with it."""

    images: int
    blobs: int
    size: int
    problems: list[str]


def layout_report(layout: ImageLayout, expected: Collection[str] = ()) -> LayoutReport:
    """Check all images of a layout, and that those which are expected are there."""
    names = {each.annotations.get(IMAGE, "") for each in layout.index.manifests}
    problems = [f"{name} is missing" for name in sorted(set(expected) - names)]
    seen: dict[str, int] = {}
    for entry in layout.index.manifests:
        name = entry.annotations.get(IMAGE, "") or entry.digest
        problems += [f"{name}: {each}" for each in entry_problems(layout, entry, seen)]
    return LayoutReport(len(names), len(seen), sum(seen.values()), problems)


def entry_problems(layout: ImageLayout, entry: Descriptor, seen: dict[str, int]) -> Iterator[str]:
    """What is wrong with an image."""
    named = entry.annotations.get(IMAGE, "").partition("@")[2]
    whole = entry.annotations.get(WHOLE_INDEX, "")
    if named and named != (whole or entry.digest):
        yield f"is {whole or entry.digest}, another image than its name says"
    if whole:
        yield from reduction_problems(layout, entry, whole)
    yield from manifest_problems(layout, entry, seen)


def reduction_problems(layout: ImageLayout, entry: Descriptor, whole: str) -> Iterator[str]:
    """Whether an index is the whole one, reduced to some platforms and not changed otherwise."""
    try:
        reduced = image_manifest(entry.digest, layout.manifest_content(entry.digest))
        wanted = [each.platform for each in reduced.manifests if each.platform]
        expected = chosen_index(whole, layout.manifest_content(whole), wanted)
    except ImageError as error:
        yield str(error)
        return
    if expected != layout.manifest_content(entry.digest):
        yield f"the index {entry.digest} is not a part of {whole}"


def manifest_problems(
    layout: ImageLayout, part: Descriptor, seen: dict[str, int], depth: int = 0
) -> Iterator[str]:
    """What is wrong with a manifest and with what it names."""
    if part.digest in seen or depth > 4:
        return
    seen[part.digest] = part.size
    try:
        content = layout.manifest_content(part.digest)
        manifest = image_manifest(part.digest, content, part.media_type)
    except ImageError as error:
        yield str(error)
        return
    for each in manifest.manifests:
        yield from manifest_problems(layout, each, seen, depth + 1)
    for blob in manifest.blobs:
        if blob.digest not in seen:
            seen[blob.digest] = blob.size
            yield from blob_problems(layout, blob)


def blob_problems(layout: ImageLayout, part: Descriptor) -> Iterator[str]:
    """What is wrong with a blob."""
    size = layout.size(part.digest)
    if size is None:
        yield f"the blob {part.digest} is missing"
    elif size != part.size:
        yield f"the blob {part.digest} has {size} bytes, not {part.size}"
    elif (found := layout.found_digest(part.digest)) != part.digest:
        yield f"the blob {part.digest} has the digest {found}"
