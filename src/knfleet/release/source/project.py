"""The Knative project's releases over HTTPS, put into the layout that we read.

Every repository publishes its manifests as files of a release; the table says which file belongs
where. Plugins are released per minor version, so their `.0` is taken.
"""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from knfleet.release.errors import FetchRefused, NotAvailable
from knfleet.release.layout import GUARD, GUARD_VERSIONS, INGRESS, SOURCES
from knfleet.release.parsed_cache import write_atomically
from knfleet.release.source.download import DownloadLimits, Downloads
from knfleet.release.version import ReleaseVersion, parse

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


class ProjectReleases(Struct, frozen=True):
    """Releases of the Knative project, by version."""

    versions: tuple[str, ...]
    cache: Path
    host: str = HOST
    limits: DownloadLimits = DownloadLimits()

    async def fetch(self) -> Path:
        """A folder with the wanted versions, downloading what is not there yet."""
        wanted = dict(self.wanted())
        downloads = Downloads(self.limits)
        slots = asyncio.Semaphore(AT_ONCE)
        optional = [self.get(downloads, slots, path, url) for path, url in wanted.items()]
        answers = await asyncio.gather(*optional, return_exceptions=True)
        for path, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, FetchRefused) and is_plugin(path):
                continue
            if isinstance(answer, BaseException):
                raise answer
        return self.cache

    def wanted(self) -> Iterator[tuple[str, str]]:
        """Path below the folder, and address, of every file."""
        if not self.versions:
            raise NotAvailable("name the versions, for example releases:1.22.1,1.23.0")
        for text in self.versions:
            version = parse(text)
            if version is None or version.parts != 3 or text.startswith("v"):
                raise NotAvailable(f"{text}: write a full version, such as 1.23.0")
            yield from self.files(COMPONENT_RELEASES, text, f"knative-v{text}")
            minor = version.minor_text
            yield from self.files(PLUGIN_RELEASES, minor, f"knative-v{minor}.0")
            yield from self.guard(version)

    def guard(self, version: ReleaseVersion) -> Iterator[tuple[str, str]]:
        """The security guard's files, where there is one for the version."""
        if guard := GUARD_VERSIONS.get(version.minor_text):
            yield from self.files((GUARD_RELEASE,), guard, f"v{guard}.0")

    def files(
        self, releases: Sequence[ReleaseFiles], version: str, tag: str
    ) -> Iterator[tuple[str, str]]:
        """Path and address of the files of some repositories."""
        for release in releases:
            folder = release.folder.replace("*", version)
            if release.numbered:
                folder = f"{release.folder}/{version}"
            for number, name in enumerate(release.files, 1):
                file = f"{number}-{name}.yaml" if release.numbered else f"{name}.yaml"
                url = f"{self.host}/{release.repository}/releases/download/{tag}/{name}.yaml"
                yield f"{folder}/{file}", url

    async def get(
        self, downloads: Downloads, slots: asyncio.Semaphore, path: str, url: str
    ) -> None:
        """Download one file, unless it is there."""
        target = self.cache / path
        if target.is_file():
            return
        async with slots:
            content = await downloads.get(url)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, content)

    def __str__(self) -> str:
        return f"releases:{','.join(self.versions)}"


def is_plugin(path: str) -> bool:
    """Whether a file belongs to a plugin, which not every minor version has."""
    return path.startswith((INGRESS, SOURCES, GUARD))
