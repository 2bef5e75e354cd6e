"""From a custom resource to its bundle.

`Releases` knows a folder of release files and may download what a custom resource names besides.
Files are read and parsed off the event loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from knfleet.api.knative.overrides import ManifestSource
from knfleet.api.knative.resources import Component, Knative, KnativeServing
from knfleet.api.meta import Object
from knfleet.release.bundle import (
    Bundle,
    Manifests,
    check_component,
    check_content,
    check_core,
)
from knfleet.release.errors import BadManifest, FetchRefused, NotAvailable, ReleaseError
from knfleet.release.layout import Layout, check_complete, incomplete, manifest_files
from knfleet.release.lock import Lock, lock_beside
from knfleet.release.manifest import Manifest
from knfleet.release.manifest_reader import ManifestReader
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.source.download import SCHEMES, Downloads, shown
from knfleet.release.version import target_version

VERSION_VARIABLE = "${VERSION}"
MOST_ADDRESSES = 50
AT_ONCE = 4
MOST_MIB = 64
"""What the manifests of all addresses have together; a release with everything on has two."""


class Releases:
    """The releases in one folder, and what custom resources name besides."""

    def __init__(
        self,
        root: Path,
        *,
        cache: ParsedCache,
        downloads: Downloads | None = None,
        lock: Lock | None = None,
    ) -> None:
        self.layout = Layout(root)
        self.lock = lock or lock_beside(root)
        self.reader = ManifestReader(root, cache, self.lock)
        self.downloads = downloads or Downloads()

    def versions(self, component: Component) -> list[str]:
        """Versions of a component that are there, newest first."""
        return self.layout.releases(component)

    def target(self, knative: Knative) -> str:
        """The version that a custom resource asks for."""
        return target_version(
            knative.spec.version,
            self.versions(knative.component),
            own_manifests=bool(knative.spec.manifests),
        )

    async def load(self, knative: Knative) -> Bundle:
        """All manifests that a custom resource asks for; raises `ReleaseError`."""
        version = self.target(knative)
        main, path = await self.main(knative, version)
        additional, additional_path = await self.additional(knative, version)
        plugins, recorded = await asyncio.to_thread(self.plugins, knative, version)
        paths = [path, additional_path, ",".join(recorded)]
        bundle = Bundle(version, main, plugins, additional, tuple(filter(None, paths)))
        if knative.spec.manifests:
            check_core(bundle.manifests, knative.component)
        return bundle

    async def main(self, knative: Knative, version: str) -> tuple[Manifests, str]:
        """The component's own manifests, and where they were."""
        if knative.spec.manifests:
            path = joined(knative.spec.manifests, version)
            manifests = await self.read(path)
        else:
            try:
                folder = self.layout.component(knative.component, version)
                manifests = await asyncio.to_thread(self.release, folder)
            except ReleaseError as error:
                raise type(error)(
                    f"the manifests of the target version {knative.spec.version} are not "
                    f"available to this release: {error}"
                ) from error
            path = str(folder)
        check_content(manifests, version, shown_list(path))
        check_component(manifests, knative.component)
        return manifests, path

    async def additional(self, knative: Knative, version: str) -> tuple[Manifests, str]:
        """The manifests that the user adds, and where they were."""
        if not knative.spec.additional_manifests:
            return (), ""
        path = joined(knative.spec.additional_manifests, version)
        manifests = await self.read(path)
        check_content(manifests, version, shown_list(path))
        return manifests, path

    def plugins(self, knative: Knative, version: str) -> tuple[Manifests, list[str]]:
        """Ingress, guard or sources: their manifests, and the paths that status records.

        What is not there is no error for those who bring manifests of their own.
        """
        found: list[Manifest] = []
        recorded: list[str] = []
        for find, is_recorded in self.plugin_folders(knative, version):
            try:
                folder = find()
            except NotAvailable:
                if knative.spec.manifests:
                    continue
                raise
            found += self.folder(folder)
            if is_recorded:
                recorded.append(str(folder))
        return tuple(found), recorded

    def plugin_folders(
        self, knative: Knative, version: str
    ) -> list[tuple[Callable[[], Path], bool]]:
        """How to find the folder of each plugin, and whether status records it."""
        layout = self.layout
        if not isinstance(knative, KnativeServing):
            return [
                (lambda name=name: layout.source(version, name), True)
                for name in knative.spec.source.enabled()
            ]
        chosen: list[tuple[Callable[[], Path], bool]] = [
            (lambda name=name: layout.ingress(version, name), True)
            for name in knative.spec.ingress_plugins.enabled()
        ]
        if knative.spec.guarded:
            chosen.append((lambda: layout.guard(version), False))
        return chosen

    async def installed(self, knative: Knative) -> list[Object]:
        """The objects that the status says were installed; what is gone is left out.

        Without a word in the status those of the target version. Paths of another image, such as
        the Knative Operator's, are looked up in our own folder.
        """
        paths = [*knative.status.manifests]
        if not paths and not knative.status.version:
            try:
                return (await self.load(knative)).objects()
            except ReleaseError:
                return []
        if not paths:
            paths = [f"/{folder_name(knative)}/{knative.status.version}"]
        objects: list[Object] = []
        for path in ",".join(paths).split(","):
            try:
                manifests = await self.element(str(self.layout.relocated(path) or path))
            except ReleaseError:
                continue
            objects += [found for manifest in manifests for found in manifest.objects()]
        return objects

    async def read(self, path: str) -> Manifests:
        """The manifests of a comma-separated list of addresses, files and folders."""
        elements = [element.strip() for element in path.split(",") if element.strip()]
        if len(elements) > MOST_ADDRESSES:
            raise BadManifest(
                f"{len(elements)} addresses, more than {MOST_ADDRESSES}; join some of the files"
            )
        turns, size = asyncio.Semaphore(AT_ONCE), 0

        async def take(element: str) -> list[Manifest]:
            nonlocal size
            async with turns:
                found = await self.element(element)
                size += sum(manifest.size for manifest in found)
                if size > MOST_MIB * 1024 * 1024:
                    place = shown_list(element)
                    raise BadManifest(
                        f"{place}: with the addresses before it more than {MOST_MIB} MiB together"
                    )
            return found

        answers = await asyncio.gather(
            *(take(element) for element in elements), return_exceptions=True
        )
        found: list[Manifest] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            found += answer
        return tuple(found)

    async def element(self, text: str) -> list[Manifest]:
        """The manifests behind one address, file or folder."""
        scheme, has_scheme, _ = text.partition("://")
        if not has_scheme:
            return await asyncio.to_thread(self.folder, Path(text))
        if scheme.lower() not in SCHEMES:
            raise FetchRefused(f"{shown(text)}: give an http or https address, or a path")
        content = await self.downloads.get(text)
        return [await asyncio.to_thread(self.reader.content, content, shown(text))]

    def release(self, folder: Path) -> Manifests:
        """The manifests of a release's folder, which must be complete."""
        files = manifest_files(folder)
        check_complete(folder, files)
        self.check_locked(folder, files)
        return tuple(self.reader.file(file) for file in files)

    def folder(self, path: Path) -> list[Manifest]:
        """The manifests of a file or folder."""
        try:
            files = manifest_files(path)
        except OSError as error:
            raise NotAvailable(f"{path}: cannot be read: {error.strerror}") from error
        self.check_locked(path, files)
        return [self.reader.file(file) for file in files]

    def check_locked(self, folder: Path, files: Sequence[Path]) -> None:
        """Raise when the lock knows files of a folder that are not there."""
        if self.lock is None or not folder.is_relative_to(self.layout.root):
            return
        name = folder.relative_to(self.layout.root).as_posix()
        locked = {file for file in self.lock.files if file.rpartition("/")[0] == name}
        there = {file.relative_to(self.layout.root).as_posix() for file in files}
        if missing := sorted(locked - there):
            raise incomplete(folder, f"{', '.join(missing)} missing")


def joined(sources: Sequence[ManifestSource], version: str) -> str:
    """The addresses of a list, with the version put in, joined as status records them."""
    return ",".join(source.url.replace(VERSION_VARIABLE, version) for source in sources)


def shown_list(path: str) -> str:
    """A comma-separated list for messages."""
    return ",".join(shown(one) if "://" in one else one for one in path.split(","))


def folder_name(knative: Knative) -> str:
    """The folder of a custom resource's component."""
    return f"knative-{knative.component}"
