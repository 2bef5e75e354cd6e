"""Where release files come from: folders, archives, Go modules, releases over HTTPS."""

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from knfleet.kube.yaml import dump_all
from knfleet.release.errors import BadManifest, FetchFailed, FetchRefused, NotAvailable
from knfleet.release.lock import LOCK, Lock, differences, make_lock, read_lock
from knfleet.release.source.project import ProjectReleases
from knfleet.release.source.pull import pull
from knfleet.release.source.sources import (
    ArchiveSource,
    FolderSource,
    GoModuleSource,
    default_folder,
    source,
)
from tests.unit.release.test_downloads import serving as answering
from tests.unit.release.tree import config_map, tree, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with release files."""
    return tree(tmp_path / "ko")


# Folders and archives


async def test_a_folder_is_used_in_place(root: Path):
    assert await FolderSource(root).fetch() == root


async def test_a_folder_without_release_files_is_refused(tmp_path: Path):
    with pytest.raises(NotAvailable, match="holds no release files"):
        await FolderSource(tmp_path).fetch()
    with pytest.raises(NotAvailable, match="there is no such folder"):
        await FolderSource(tmp_path / "none").fetch()


def pack(root: Path, target: Path, prefix: str = "project-1.0/data") -> Path:
    """Pack a folder with a prefix before every path, as archives of projects have it."""
    if target.suffix == ".zip":
        with zipfile.ZipFile(target, "w") as packed:
            for file in root.rglob("*.yaml"):
                packed.write(file, f"{prefix}/{file.relative_to(root)}")
    else:
        with tarfile.open(target, "w:gz") as packed:
            packed.add(root, prefix)
    return target


@pytest.mark.parametrize("name", ["bundle.tar.gz", "bundle.zip"])
async def test_an_archive_is_unpacked_once_and_locked(root: Path, tmp_path: Path, name: str):
    packed = ArchiveSource(pack(root, tmp_path / name), tmp_path / "cache")

    folder = await packed.fetch()

    assert make_lock(folder).files == make_lock(root).files
    assert differences(read_lock(folder / LOCK), folder) == []
    assert await packed.fetch() == folder


@pytest.mark.parametrize("name", ["bundle.tar.gz", "bundle.zip"])
async def test_half_an_archive_is_refused(root: Path, tmp_path: Path, name: str):
    whole = pack(root, tmp_path / name)
    content = whole.read_bytes()
    whole.write_bytes(content[: len(content) // 2])

    with pytest.raises(BadManifest, match="is not a whole"):
        await ArchiveSource(whole, tmp_path / "cache").fetch()

    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "../../knative-serving/1.0.0/1-evil.yaml",
        "/knative-serving/1.0.0/1-evil.yaml",
        "knative-serving/../../1-evil.yaml",
    ],
)
async def test_paths_that_lead_elsewhere_are_not_taken(root: Path, tmp_path: Path, name: str):
    packed = pack(root, tmp_path / "bundle.zip", "a")
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr(name, "evil: true")

    folder = await ArchiveSource(packed, tmp_path / "cache").fetch()

    assert make_lock(folder).files == make_lock(root).files
    assert list(tmp_path.rglob("1-evil.yaml")) == []


def tar_with_link(target: Path, kind: bytes) -> Path:
    """An archive whose manifest is a link."""
    with tarfile.open(target, "w:gz") as packed:
        member = tarfile.TarInfo("knative-serving/1.0.0/1-link.yaml")
        member.type, member.linkname = kind, "/etc/hostname"
        packed.addfile(member)
    return target


def zip_with_link(target: Path) -> Path:
    """An archive whose manifest is a link."""
    member = zipfile.ZipInfo("knative-serving/1.0.0/1-link.yaml")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(target, "w") as packed:
        packed.writestr(member, "/etc/hostname")
    return target


async def test_links_are_not_taken(tmp_path: Path):
    made = [
        tar_with_link(tmp_path / "soft.tar.gz", tarfile.SYMTYPE),
        tar_with_link(tmp_path / "hard.tar.gz", tarfile.LNKTYPE),
        zip_with_link(tmp_path / "soft.zip"),
    ]
    for packed in made:
        with pytest.raises(BadManifest, match="has no release files"):
            await ArchiveSource(packed, tmp_path / "cache").fetch()


async def test_an_archive_that_grows_without_end_is_refused(tmp_path: Path):
    for name in ("bomb.zip", "bomb.tar.gz"):
        large = tmp_path / name.replace(".", "-") / "knative-serving" / "1.0.0" / "1-large.yaml"
        large.parent.mkdir(parents=True)
        large.write_bytes(b"#" * 2_000_000)
        packed = pack(large.parents[2], tmp_path / name)

        with pytest.raises(BadManifest, match="holds more than"):
            await ArchiveSource(packed, tmp_path / "cache", most_bytes=1_000_000).fetch()


async def test_the_folder_with_most_release_files_is_taken(root: Path, tmp_path: Path):
    packed = tmp_path / "bundle.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        content = b"kind: Example"
        member = tarfile.TarInfo("project/tests/knative-serving/9.9.9/1-fake.yaml")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
        archive.add(root, "project/data")

    folder = await ArchiveSource(packed, tmp_path / "cache").fetch()

    assert make_lock(folder).files == make_lock(root).files


# Go modules


def go(folder: Path, script: str) -> str:
    """A `go` command of our own."""
    program = folder / "go"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


async def test_a_module_is_downloaded_by_the_go_command(tmp_path: Path):
    root = tree(tmp_path / "module" / "cmd" / "operator" / "kodata")
    answer = msgspec.json.encode({"Dir": str(tmp_path / "module"), "Sum": "h1:x"}).decode()
    script = f'[ "$*" = "mod download -json example.test/m@v1.2.3" ] && echo \'{answer}\''

    module = GoModuleSource("example.test/m", "v1.2.3", command=go(tmp_path, script))

    assert await module.fetch() == root


@pytest.mark.parametrize(
    ("script", "error", "message"),
    [
        ("""echo '{"Error": "unknown revision v9"}'; exit 1""", NotAvailable, "unknown revision"),
        ("echo 'proxy is down' >&2; exit 1", FetchFailed, "proxy is down"),
        ("""echo '{"Dir": "/nowhere"}'""", NotAvailable, "there is no such folder"),
        ("exec sleep 60", FetchFailed, r"not downloaded within 0\.3 s"),
    ],
)
async def test_a_module_that_cannot_be_had_is_told(
    tmp_path: Path, script: str, error: type[Exception], message: str
):
    module = GoModuleSource(command=go(tmp_path, script), seconds=0.3 if "sleep" in script else 30)

    with pytest.raises(error, match=message):
        await module.fetch()


async def test_without_go_the_way_on_is_told(tmp_path: Path):
    with pytest.raises(NotAvailable, match="install Go, or get the release files from"):
        await GoModuleSource(command=str(tmp_path / "no-go")).fetch()


# Releases over HTTPS


async def test_releases_are_downloaded_into_the_layout(tmp_path: Path):
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path)
        if "security-guard" in request.path or "eventing-ceph" in request.path:
            raise web.HTTPNotFound
        return web.Response(text=f"# {request.path}\n")

    async with answering(handler) as server:
        wanted = ProjectReleases(("1.23.0",), tmp_path, host=server)
        root = await wanted.fetch()
        first = len(asked)
        await wanted.fetch()

    expected = "/knative/serving/releases/download/knative-v1.23.0/serving-core.yaml"
    core = root / "knative-serving" / "1.23.0" / "2-serving-core.yaml"
    assert core.read_text() == f"# {expected}\n"
    kourier = root / "ingress" / "1.23" / "kourier" / "kourier.yaml"
    assert "net-kourier/releases/download/knative-v1.23.0/kourier.yaml" in kourier.read_text()
    assert len(list((root / "knative-eventing" / "1.23.0").iterdir())) == 6
    assert not (root / "eventing-source" / "1.23" / "ceph").exists()
    assert len(asked) == first + 6, "only what was not there is asked for again"


async def test_files_of_each_host_are_kept_apart_and_the_lock_names_the_host(tmp_path: Path):
    def answer(text: str):
        async def handler(request: web.Request) -> web.Response:
            if "checksums" in request.path:
                raise web.HTTPNotFound
            return web.Response(text=dump_all([config_map(text)]))

        return handler

    locks: list[Lock] = []
    for text in ("first", "second"):
        async with answering(answer(text)) as server:
            wanted = ProjectReleases(("1.23.0",), tmp_path / "cache", host=f"{server}/{text}")
            locks.append(await pull(wanted, tmp_path / text))
    core = "knative-serving/1.23.0/2-serving-core.yaml"

    assert "name: first" in (tmp_path / "first" / core).read_text()
    assert "name: second" in (tmp_path / "second" / core).read_text()
    assert locks[1].source == f"releases:1.23.0 from {server}/second"
    private = ProjectReleases(("1.23.0",), tmp_path, host="https://me:word@mirror.example.com/a")
    assert str(private) == "releases:1.23.0 from https://mirror.example.com/a"


async def test_a_component_that_is_not_there_is_an_error(tmp_path: Path):
    async def handler(request: web.Request) -> web.Response:
        if "/knative/serving/" in request.path:
            raise web.HTTPNotFound
        return web.Response(text="# fine\n")

    async with answering(handler) as server:
        with pytest.raises(FetchRefused, match=r"serving-crds\.yaml: there is no such file"):
            await ProjectReleases(("1.99.0",), tmp_path, host=server).fetch()


@pytest.mark.parametrize("versions", [(), ("1.23",), ("v1.23.0",), ("../x",)])
async def test_versions_must_be_full(tmp_path: Path, versions: tuple[str, ...]):
    with pytest.raises(NotAvailable, match=r"1\.23\.0"):
        await ProjectReleases(versions, tmp_path).fetch()


# Names of sources


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("go", "go:knative.dev/operator@v0.50.0"),
        ("go:example.test/m@v1", "go:example.test/m@v1"),
        ("releases:1.22.1,1.23.0", "releases:1.22.1,1.23.0"),
        ("some/bundle.tar.gz", "bundle.tar.gz"),
        ("some/folder", "some/folder"),
    ],
)
def test_a_source_is_named_by_a_text(text: str, expected: str):
    assert str(source(text)) == expected


@pytest.mark.parametrize("text", ["go:example.test/m", "go:-x@v1", "https://example.test/a.zip"])
def test_a_text_that_names_no_source_is_told(text: str):
    with pytest.raises(NotAvailable):
        source(text)


def test_the_configured_folder_wins(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KO_DATA_PATH", str(root))

    assert default_folder() == root


def test_without_release_files_the_way_to_them_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("KO_DATA_PATH", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    with pytest.raises(NotAvailable, match="knfleet bundle pull"):
        default_folder()


def test_a_pulled_bundle_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("KO_DATA_PATH", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    write(tmp_path / "knfleet" / "bundle" / "ingress" / "1.0" / "a.yaml", config_map("a"))

    assert default_folder() == tmp_path / "knfleet" / "bundle"


async def test_an_archive_cut_anywhere_is_refused(root: Path, tmp_path: Path):
    """Also where one file ends and the next has not begun."""
    whole = pack(root, tmp_path / "bundle.tar.gz")
    content = whole.read_bytes()
    for share in range(1, 12):
        whole.write_bytes(content[: len(content) * share // 12])

        with pytest.raises(BadManifest):
            await ArchiveSource(whole, tmp_path / "cache").fetch()
