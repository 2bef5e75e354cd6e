"""The checksums that each release publishes beside its files, and who signed them.

They are kept beside the release files, so that both can be compared again without a network.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from knfleet.release.errors import BadManifest, NotAvailable, ReleaseError, Tampered
from knfleet.release.layout import COMPONENTS, Layout
from knfleet.release.lock import PUBLISHED, bundle_files
from knfleet.release.manifest import digest_of
from knfleet.release.source.project import (
    CERTIFICATE,
    CHECKSUMS,
    SIGNATURE,
    ReleaseAsset,
    release_assets,
)
from knfleet.release.source.signature_keys import PinnedKeys
from knfleet.release.version import parse

LINE = re.compile(r"(?P<digest>[0-9a-f]{64}) [ *](?:\./)?(?P<name>[\w.+-]+)")


class ReleaseProof(Struct, frozen=True):
    """What is known of the files of one release."""

    release: str
    """Repository and tag."""
    files: int
    has_checksums: bool = False
    is_signed: bool = False
    signer: str = ""
    """Who signed the checksums, when keys are pinned."""
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        files = f"{self.release}: {self.files} files"
        if not self.has_checksums:
            return f"{files}; no checksums of it in this folder"
        if self.signer:
            return f"{files} are in checksums.txt, signed by {self.signer}"
        signature = "whose signature was not checked" if self.is_signed else "which nobody signed"
        return f"{files} are in checksums.txt, {signature}"


def proofs(root: Path, keys: PinnedKeys | None = None) -> list[ReleaseProof]:
    """What the publishers say of the files in a folder, release by release.

    With pinned keys, each release must have checksums that are signed.
    """
    releases: dict[str, list[ReleaseAsset]] = defaultdict(list)
    known = known_assets(root)
    if keys and not known:
        raise NotAvailable(
            f"{root}: has no version of {' or '.join(COMPONENTS.values())} such as 1.23.0, by which"
            " the releases of its files are known; signatures are checked of folders that have one"
        )
    unknown: list[str] = []
    for file in bundle_files(root):
        path = file.relative_to(root).as_posix()
        if asset := known.get(path):
            releases[asset.release].append(asset)
        else:
            unknown.append(path)
    found = [proof(root, release, assets, keys) for release, assets in sorted(releases.items())]
    if unknown and keys:
        problems = tuple(f"{path} is no file of a release of Knative" for path in unknown)
        found.append(ReleaseProof("no release", len(unknown), problems=problems))
    return found


def known_assets(root: Path) -> Mapping[str, ReleaseAsset]:
    """The files of all releases that a folder may have, by path."""
    layout = Layout(root)
    versions = {
        version
        for section in COMPONENTS.values()
        for version in layout.versions(section)
        if (number := parse(version)) and number.parts == 3 and not version.startswith("v")
    }
    return {asset.path: asset for asset in release_assets(sorted(versions))} if versions else {}


def proof(
    root: Path, release: str, assets: list[ReleaseAsset], keys: PinnedKeys | None
) -> ReleaseProof:
    """What is known of one release."""
    folder = root / PUBLISHED / assets[0].folder
    where = f"checksums.txt of {release}"
    try:
        content = read(folder / CHECKSUMS)
        if content is None:
            missing = (
                f"no checksums of {release} in this folder, which pinned keys require: either it"
                " publishes none, or they were not copied with the files"
            )
            return ReleaseProof(release, len(assets), problems=(missing,) if keys else ())
        signature, certificate = read(folder / SIGNATURE), read(folder / CERTIFICATE)
        signer = ""
        if keys:
            if signature is None:
                raise Tampered(f"{where}: has no signature, which pinned keys require")
            signer = keys.signer(where, content, signature, certificate or b"")
        sums = checksums(where, content)
    except ReleaseError as error:
        return ReleaseProof(release, len(assets), has_checksums=True, problems=(str(error),))
    problems = (difference(root, asset, sums) for asset in assets)
    return ReleaseProof(
        release,
        len(assets),
        has_checksums=True,
        is_signed=signature is not None,
        signer=signer,
        problems=tuple(filter(None, problems)),
    )


def read(path: Path) -> bytes | None:
    """A file that may be missing."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def checksums(where: str, content: bytes) -> dict[str, str]:
    """The digests in a file as `sha256sum` writes it, by name."""
    found: dict[str, str] = {}
    for line in content.decode(errors="replace").splitlines():
        entry = LINE.fullmatch(line.strip())
        if entry is None:
            raise BadManifest(f"{where}: {line[:80]!r} is no line of sha256sum")
        if found.setdefault(entry["name"], entry["digest"]) != entry["digest"]:
            raise BadManifest(f"{where}: has two digests of {entry['name']}")
    return found


def difference(root: Path, asset: ReleaseAsset, sums: Mapping[str, str]) -> str:
    """What is wrong with a file; empty when nothing is."""
    wanted = sums.get(asset.name)
    if wanted is None:
        return f"{asset.path}: {asset.name} is not in checksums.txt of {asset.release}"
    found = digest_of((root / asset.path).read_bytes())
    if found == wanted:
        return ""
    return (
        f"{asset.path}: has the digest {found[:12]}…, but checksums.txt of {asset.release} says"
        f" {wanted[:12]}…; remove {root / asset.path} and get it again"
    )
