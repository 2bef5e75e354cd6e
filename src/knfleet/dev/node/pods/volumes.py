"""The files of a real pod's volumes.

`contents` is pure: which files a volume holds, given ConfigMaps, Secrets and tokens. `publish`
writes them as the kubelet does: into a new folder, to which the link `..data` is then switched, so
that a reader sees either all old files or all new ones.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.dev.node.containers.container_environment import (
    ReferenceMissing,
    ReferenceReader,
    RuntimeFields,
    field_value,
    resource_value,
)
from knfleet.dev.node.pods.pod_manifests import rows, table

DEFAULT_MODE = 0o644
SECRET_MODE = 0o600
TOKEN_EXPIRATION_SECONDS = 3600


class UnsupportedVolume(Exception):
    """The dev node has no such volume; the pod cannot run here."""


class VolumeFile(Struct, frozen=True):
    """One file of a volume."""

    content: bytes
    mode: int = DEFAULT_MODE

    def __repr__(self) -> str:
        return f"VolumeFile({len(self.content)} bytes, {self.mode:o})"


Files = dict[str, VolumeFile]
"""Files by their path inside the volume."""


class TokenProjection(Struct, frozen=True):
    """A ServiceAccount token that a volume wants."""

    audience: str = ""
    expiration_seconds: int = TOKEN_EXPIRATION_SECONDS


class VolumeSources(Struct, frozen=True):
    """Where volumes get their contents from."""

    pod: Object
    facts: RuntimeFields
    store: ReferenceReader
    token: Callable[[TokenProjection], bytes | None]
    """A token that is good now, or nothing when none was had yet."""


def contents(volume: Object, sources: VolumeSources) -> Files | None:
    """The files of a volume; None for one that only the pod writes to (an emptyDir).

    Raises `ReferenceMissing` for something missing, and `UnsupportedVolume`.
    """
    if "emptyDir" in volume:
        return None
    if "projected" in volume:
        return projected(volume["projected"], sources)
    for kind in ("configMap", "secret", "downwardAPI"):
        if kind in volume:
            source: Object = volume[kind] or {}
            mode = source.get("defaultMode", DEFAULT_MODE)
            return SOURCES[kind](source, sources, mode)
    kind = next((key for key in volume if key != "name"), "emptyDir")
    raise UnsupportedVolume(f'volume "{volume["name"]}": the dev node has no {kind} volumes')


def projected(source: Object, sources: VolumeSources) -> Files:
    """The files of all sources of a projected volume; later ones win."""
    mode = source.get("defaultMode", DEFAULT_MODE)
    files: Files = {}
    for part in rows(source.get("sources")):
        for kind, content in part.items():
            if kind not in SOURCES:
                raise UnsupportedVolume(f"the dev node has no {kind} in projected volumes")
            files.update(SOURCES[kind](content, sources, mode))
    return files


def config_map_files(source: Object, sources: VolumeSources, mode: int) -> Files:
    """The files of a ConfigMap."""
    found = sources.store.config_map(source["name"])
    return chosen(source, found, mode, f'configmap "{source["name"]}"')


def secret_files(source: Object, sources: VolumeSources, mode: int) -> Files:
    """The files of a Secret; no other user of the machine can read them."""
    name = source.get("secretName") or source["name"]
    files = chosen(source, sources.store.secret(name), mode, f'secret "{name}"')
    return {path: VolumeFile(file.content, file.mode & SECRET_MODE) for path, file in files.items()}


def chosen(source: Object, found: Mapping[str, bytes] | None, mode: int, what: str) -> Files:
    """The keys that a source asks for, at the paths that it gives them."""
    optional = bool(source.get("optional"))
    if found is None:
        if optional:
            return {}
        raise ReferenceMissing(f"{what} not found")
    if not source.get("items"):
        return {key: VolumeFile(content, mode) for key, content in found.items()}
    files: Files = {}
    for part in rows(source["items"]):
        if part["key"] in found:
            files[inside(part["path"])] = VolumeFile(found[part["key"]], part.get("mode", mode))
        elif not optional:
            raise ReferenceMissing(f"{what} has no key {part['key']}")
    return files


def downward_files(source: Object, sources: VolumeSources, mode: int) -> Files:
    """The files of a downward API source."""
    files: Files = {}
    for part in rows(source.get("items")):
        if "fieldRef" in part:
            text = field_value(part["fieldRef"]["fieldPath"], sources.pod, sources.facts)
        else:
            text = resource_value(part["resourceFieldRef"], {}, sources.pod)
        files[inside(part["path"])] = VolumeFile(text.encode(), part.get("mode", mode))
    return files


def token_files(source: Object, sources: VolumeSources, mode: int) -> Files:
    """The file of a ServiceAccount token; only its owner may read it, whatever the volume says."""
    content = sources.token(token_projection(source))
    if content is None:
        raise ReferenceMissing("the ServiceAccount token was not issued yet")
    return {inside(source["path"]): VolumeFile(content, mode & SECRET_MODE)}


def token_projection(source: Object) -> TokenProjection:
    """The token that a projected source wants."""
    seconds = source.get("expirationSeconds") or TOKEN_EXPIRATION_SECONDS
    return TokenProjection(source.get("audience") or "", seconds)


def token_projections(pod: Object) -> set[TokenProjection]:
    """Every token that the pod's volumes want."""
    return {
        token_projection(part["serviceAccountToken"])
        for volume in rows(pod["spec"].get("volumes"))
        for part in rows(table(volume.get("projected")).get("sources"))
        if "serviceAccountToken" in part
    }


SOURCES: dict[str, Callable[[Object, VolumeSources, int], Files]] = {
    "configMap": config_map_files,
    "secret": secret_files,
    "downwardAPI": downward_files,
    "serviceAccountToken": token_files,
}


def inside(path: str) -> str:
    """The path, if it stays inside the volume."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise UnsupportedVolume(f"{path!r} does not stay inside its volume")
    return str(pure)


def publish(folder: Path, files: Files) -> bool:
    """Make a volume's folder show exactly these files; says whether anything changed."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "..data"
    if data.exists() and published(data.resolve()) == files:
        return False
    fresh = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    for path, file in files.items():
        write(fresh / path, file)
    fresh.chmod(0o755)
    stale = data.resolve() if data.is_symlink() else None
    switch(data, fresh.name)
    show(folder, {PurePosixPath(path).parts[0] for path in files})
    if stale is not None:
        shutil.rmtree(stale, ignore_errors=True)
    return True


def published(folder: Path) -> Files:
    """The files that a published folder holds."""
    return {
        str(path.relative_to(folder)): VolumeFile(path.read_bytes(), path.stat().st_mode & 0o777)
        for path in folder.rglob("*")
        if path.is_file()
    }


def write(path: Path, file: VolumeFile) -> None:
    """Write a new file that never has a wider mode than it should."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(file.content)
        os.fchmod(stream.fileno(), file.mode)


def switch(link: Path, target: str) -> None:
    """Point a link somewhere else in one step."""
    fresh = link.with_name(f"{link.name}_tmp")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)


def show(folder: Path, names: set[str]) -> None:
    """Link the names at the top of a volume to the data, and drop links whose data is gone."""
    for name in names:
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(f"..data/{name}")
    for link in folder.iterdir():
        mine = link.is_symlink() and str(link.readlink()).startswith("..data/")
        if mine and link.name not in names:
            link.unlink()
