"""The Knative project's releases over HTTPS, put into the layout that we read.

Every repository publishes its manifests as files of a release; the table says which file belongs
where. Plugins are released per minor version, so their `.0` is taken.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from knfleet.release.errors import FetchRefused, NotAvailable
from knfleet.release.layout import GUARD, GUARD_VERSIONS, INGRESS, SOURCES
from knfleet.release.lock import PUBLISHED
from knfleet.release.manifest import digest_of
from knfleet.release.parsed_cache import write_atomically
from knfleet.release.source.download import DownloadLimits, Downloads
from knfleet.release.version import parse

HOST = "https://github.com"
AT_ONCE = 4


class ReleaseFiles(Struct, frozen=True):
    """The files of one repository that belong into one folder."""

    repository: str
    files: tuple[str, ...]
    folder: str
    numbered: bool = False


COMPONENT_RELEASES = (
    ReleaseFiles(
        "knative/serving",
        ("serving-crds", "serving-core", "serving-hpa", "serving-post-install-jobs"),
        "knative-serving",
        numbered=True,
    ),
    ReleaseFiles(
        "knative/eventing",
        (
            "eventing-crds",
            "eventing-core",
            "eventing-tls-networking",
            "in-memory-channel",
            "mt-channel-broker",
            "eventing-post-install",
        ),
        "knative-eventing",
        numbered=True,
    ),
)

PLUGIN_RELEASES = (
    ReleaseFiles("knative-extensions/net-istio", ("net-istio",), f"{INGRESS}/*/istio"),
    ReleaseFiles("knative-extensions/net-contour", ("net-contour",), f"{INGRESS}/*/contour"),
    ReleaseFiles("knative-extensions/net-kourier", ("kourier",), f"{INGRESS}/*/kourier"),
    ReleaseFiles(
        "knative-extensions/net-gateway-api", ("net-gateway-api",), f"{INGRESS}/*/gateway-api"
    ),
    ReleaseFiles("knative-extensions/eventing-ceph", ("ceph",), f"{SOURCES}/*/ceph"),
    ReleaseFiles("knative-extensions/eventing-github", ("github",), f"{SOURCES}/*/github"),
    ReleaseFiles("knative-extensions/eventing-gitlab", ("gitlab",), f"{SOURCES}/*/gitlab"),
    ReleaseFiles(
        "knative-extensions/eventing-kafka-broker",
        ("eventing-kafka-controller", "eventing-kafka-source", "eventing-kafka-post-install"),
        f"{SOURCES}/*/kafka",
    ),
    ReleaseFiles(
        "knative-extensions/eventing-rabbitmq", ("rabbitmq-source",), f"{SOURCES}/*/rabbitmq"
    ),
    ReleaseFiles("knative-extensions/eventing-redis", ("redis-source",), f"{SOURCES}/*/redis"),
)

GUARD_RELEASE = ReleaseFiles(
    "knative-extensions/security-guard",
    ("gate-account", "guard-service", "guardian-crd", "queue-proxy", "service-account"),
    f"{GUARD}/*",
)


CHECKSUMS, SIGNATURE, CERTIFICATE = "checksums.txt", "checksums.txt.sig", "checksums.txt.pem"
NAMES = (CHECKSUMS, SIGNATURE, CERTIFICATE)


class ReleaseAsset(Struct, frozen=True):
    """A file of a release, and where it belongs."""

    path: str
    """Below the folder of release files."""
    repository: str
    tag: str
    name: str

    @property
    def release(self) -> str:
        return f"{self.repository} {self.tag}"

    @property
    def folder(self) -> str:
        """Where the checksums of its release are, below their folder."""
        return f"{self.repository}/{self.tag}"

    def url(self, host: str, name: str = "") -> str:
        """The address of the file, or of another one of the same release."""
        return f"{host}/{self.repository}/releases/download/{self.tag}/{name or self.name}"


def release_assets(versions: Sequence[str]) -> Iterator[ReleaseAsset]:
    """Every file of some versions, with those of plugins."""
    if not versions:
        raise NotAvailable("name the versions, for example releases:1.22.1,1.23.0")
    for text in versions:
        version = parse(text)
        if version is None or version.parts != 3 or text.startswith("v"):
            raise NotAvailable(f"{text}: write a full version, such as 1.23.0")
        yield from assets(COMPONENT_RELEASES, text, f"knative-v{text}")
        minor = version.minor_text
        yield from assets(PLUGIN_RELEASES, minor, f"knative-v{minor}.0")
        if guard := GUARD_VERSIONS.get(minor):
            yield from assets((GUARD_RELEASE,), guard, f"v{guard}.0")


def assets(releases: Sequence[ReleaseFiles], version: str, tag: str) -> Iterator[ReleaseAsset]:
    """The files of some repositories."""
    for release in releases:
        folder = release.folder.replace("*", version)
        if release.numbered:
            folder = f"{release.folder}/{version}"
        for number, name in enumerate(release.files, 1):
            file = f"{number}-{name}.yaml" if release.numbered else f"{name}.yaml"
            yield ReleaseAsset(f"{folder}/{file}", release.repository, tag, f"{name}.yaml")


class ProjectReleases(Struct, frozen=True):
    """Releases of the Knative project, by version.

    Each choice of files from one host has a folder of its own in the cache, so that what is locked,
    checked and copied are the files that were asked for, and no others.
    """

    versions: tuple[str, ...]
    cache: Path
    host: str = HOST
    limits: DownloadLimits = DownloadLimits()

    async def fetch(self) -> Path:
        """A folder with the wanted versions, downloading what is not there yet."""
        wanted = {asset.path: asset for asset in release_assets(self.versions)}
        folder = self.cache / choice_digest(asset.url(self.host) for asset in wanted.values())
        files = AssetDownloads(folder, Downloads(self.limits))
        optional = [files.get(path, asset.url(self.host)) for path, asset in wanted.items()]
        answers = await asyncio.gather(*optional, return_exceptions=True)
        for path, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, FetchRefused) and is_plugin(path):
                continue
            if isinstance(answer, BaseException):
                raise answer
        there = [asset for path, asset in wanted.items() if (folder / path).is_file()]
        releases = {asset.release: asset for asset in there}
        said = [self.published(files, asset, name) for asset in releases.values() for name in NAMES]
        for answer in await asyncio.gather(*said, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
        return folder

    async def published(self, files: "AssetDownloads", asset: ReleaseAsset, name: str) -> None:
        """Download what a release says of its files, if it does."""
        path = f"{PUBLISHED}/{asset.folder}/{name}"
        with contextlib.suppress(FetchRefused):
            await files.get(path, asset.url(self.host, name))

    def __str__(self) -> str:
        text = f"releases:{','.join(self.versions)}"
        return text if self.host == HOST else f"{text} from {without_account(self.host)}"


class AssetDownloads:
    """Downloads into one folder, a few at once."""

    def __init__(self, folder: Path, downloads: Downloads) -> None:
        self.folder = folder
        self.downloads = downloads
        self.slots = asyncio.Semaphore(AT_ONCE)

    async def get(self, path: str, url: str) -> None:
        """Download one file, unless it is there."""
        target = self.folder / path
        if target.is_file():
            return
        async with self.slots:
            content = await self.downloads.get(url)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, content)


def choice_digest(addresses: Iterable[str]) -> str:
    """A name for the folder of some files."""
    return digest_of("\n".join(sorted(addresses)).encode())


def without_account(host: str) -> str:
    """An address without the user and password in it."""
    scheme, separator, rest = host.rpartition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}{separator}{place.rpartition('@')[2]}{slash}{path}"


def is_plugin(path: str) -> bool:
    """Whether a file belongs to a plugin, which not every minor version has."""
    return path.startswith((INGRESS, SOURCES, GUARD))
