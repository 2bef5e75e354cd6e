"""The objects that a person wants on a cluster, from files, folders or standard input.

What a ManifestWork cannot have is refused here, with the file and the document that it is in.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from knfleet.api.core import BUILT_IN
from knfleet.api.meta import Object
from knfleet.api.work.manifestwork import WORKS
from knfleet.apply.manifest_fields import items, part
from knfleet.apply.refs import Ref
from knfleet.kube import yaml

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
FILE_BYTES = 64 * 1024 * 1024
"""More than a hundred works can have."""


class WorkFileError(Exception):
    """Something in a file cannot be delivered; the message says what, where, and what to do."""


class FileManifest(Struct, frozen=True):
    """An object, and where it comes from."""

    manifest: Object
    origin: str

    @property
    def ref(self) -> Ref:
        """Which object it is."""
        return Ref.of(self.manifest)


def read_manifests(sources: Sequence[str], *, recursive: bool = False) -> list[FileManifest]:
    """All objects of files, of folders and of standard input, in their order.

    Raises `WorkFileError` or `YamlError`.
    """
    found = [
        each
        for source in sources
        for name, text in texts(source, recursive=recursive)
        for each in manifests_of(text, name)
    ]
    if not found:
        raise WorkFileError(f"{', '.join(sources)}: there are no objects in it")
    for each in found:
        check(each)
    check_twice(found)
    return found


def texts(source: str, *, recursive: bool) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file that a source means."""
    if source == STDIN:
        yield "standard input", bounded(sys.stdin.buffer.read(FILE_BYTES + 1), "standard input")
        return
    path = Path(source)
    if not path.is_dir():
        if not path.exists():
            raise WorkFileError(f"{source}: there is no such file; URLs are not read")
        yield source, read(path)
        return
    pattern = "**/*" if recursive else "*"
    files = [each for each in sorted(path.glob(pattern)) if each.suffix in SUFFIXES]
    if not files:
        more = "" if recursive else "; --recursive also reads the folders in it"
        raise WorkFileError(f"{source}: there is no {', '.join(SUFFIXES)} file in it{more}")
    for each in files:
        yield str(each), read(each)


def read(path: Path) -> bytes:
    """The content of a file."""
    with path.open("rb") as file:
        return bounded(file.read(FILE_BYTES + 1), str(path))


def bounded(text: bytes, source: str) -> bytes:
    """The text; raises `WorkFileError` when it is too long."""
    if len(text) > FILE_BYTES:
        raise WorkFileError(f"{source}: more than {FILE_BYTES // 2**20} MiB")
    return text


def manifests_of(text: bytes, source: str) -> Iterator[FileManifest]:
    """The objects of a text; those of a List one by one."""
    for number, _, value in yaml.documents(text, source):
        origin = source if number == 1 else f"{source}, document {number}"
        if value is None:
            continue
        if not yaml.is_mapping(value):
            raise WorkFileError(f"{origin}: an object is expected")
        yield from flat(value, origin)


def flat(manifest: Object, origin: str) -> Iterator[FileManifest]:
    """An object, or the objects of a List."""
    if manifest.get("kind") != "List" or "items" not in manifest:
        yield FileManifest(manifest, origin)
        return
    for index, each in enumerate(items(manifest, "items")):
        place = f"{origin}, items[{index}]"
        if not yaml.is_mapping(each):
            raise WorkFileError(f"{place}: an object is expected")
        yield from flat(each, place)


def check(each: FileManifest) -> None:
    """Raise `WorkFileError` when an object lacks something."""
    meta = part(each.manifest, "metadata")
    for field in ("apiVersion", "kind"):
        if not isinstance(each.manifest.get(field), str) or not each.manifest[field]:
            raise WorkFileError(f"{each.origin}: {field} is missing")
    kind = each.manifest["kind"]
    if meta.get("generateName"):
        raise WorkFileError(
            f"{each.origin}: {kind}: generateName must not be set, for the agent could not find"
            " the object again; give it a name"
        )
    if not isinstance(meta.get("name"), str) or not meta["name"]:
        raise WorkFileError(f"{each.origin}: {kind}: metadata.name is missing")


def check_twice(found: Iterable[FileManifest]) -> None:
    """Raise `WorkFileError` when an object is there twice."""
    seen: dict[tuple[str, Ref], str] = {}
    for each in found:
        key = (each.manifest["apiVersion"], each.ref)
        if key in seen:
            raise WorkFileError(
                f"{each.ref} is given twice: by {seen[key]} and by {each.origin}; keep one"
            )
        seen[key] = each.origin


def notes(found: Iterable[FileManifest]) -> Iterator[str]:
    """What a person may not have meant, a sentence each."""
    for each in found:
        kind = each.manifest["kind"]
        resource = BUILT_IN.get((each.manifest["apiVersion"], kind))
        if resource is not None and resource.namespaced and not each.ref.namespace:
            yield f"{each.origin}: {each.ref} has no namespace; clusters refuse it so"
        if kind == WORKS.kind:
            yield (
                f"{each.origin}: {each.ref} is itself a ManifestWork; the cluster gets that, and"
                " not the objects in it"
            )
