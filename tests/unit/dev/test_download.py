"""Official builds, from a loopback server with the same layout: checked, resumed, refused."""

import hashlib
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from knfleet.dev.binaries import official_builds
from knfleet.dev.binaries.locate import ETCD, KUBERNETES, TOOLS
from knfleet.dev.errors import DevError
from knfleet.dev.progress_reporter import SilentProgress
from testbed.fakes.sockets import loopback_socket


class Mirror:
    """What a site offers, and what was asked of it."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges: list[str] = []

    def offer(self) -> None:
        """All official files, with right digests."""
        for name in TOOLS:
            location, digests = (
                each.partition("/v")[2] for each in official_builds.locations(name)
            )
            content = archive(b"etcd program") if name == "etcd" else f"{name} program".encode()
            digest = hashlib.sha256(content).hexdigest()
            file = location.rpartition("/")[2]
            self.files[location] = content
            self.files[digests] = (
                f"{'0' * 64}  other.tar.gz\n{digest}  {file}\n" if name == "etcd" else digest
            ).encode()

    async def answer(self, request: web.Request) -> web.Response:
        """A file, or the rest of it."""
        content = self.files.get(request.path.removeprefix("/v"))
        if content is None:
            return web.Response(status=404)
        if asked := request.headers.get("Range"):
            self.ranges.append(asked)
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                return web.Response(status=416)
            return web.Response(status=206, body=content[start:])
        return web.Response(body=content)


def archive(program: bytes) -> bytes:
    """A release archive as etcd's."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in (("README.md", b"hello"), ("etcd", program), ("etcdctl", b"no")):
            member = tarfile.TarInfo(f"etcd-v{ETCD}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
async def mirror(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Mirror]:
    """A site on loopback."""
    mirror = Mirror()
    app = web.Application()
    app.router.add_get("/{path:.*}", mirror.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.SockSite(runner, loopback_socket()).start()
    port = runner.addresses[0][1]
    monkeypatch.setenv("KNFLEET_GROUND_MIRROR", f"http://127.0.0.1:{port}")
    mirror.offer()
    yield mirror
    await runner.cleanup()


async def test_all_tools_arrive_and_can_be_run(mirror: Mirror, tmp_path: Path) -> None:
    """Each is the published file, taken out of its archive, and executable."""
    await official_builds.download(tmp_path, list(TOOLS), SilentProgress())

    folder = tmp_path / "downloaded"
    assert sorted(each.name for each in folder.iterdir()) == sorted(TOOLS)
    assert (folder / "etcd").read_bytes() == b"etcd program"
    assert (folder / "kubectl").read_bytes() == b"kubectl program"
    assert all(each.stat().st_mode & 0o111 for each in folder.iterdir())


async def test_a_wrong_digest_is_refused_and_nothing_is_kept(
    mirror: Mirror, tmp_path: Path
) -> None:
    """A file that was tampered with never gets its name."""
    path = next(path for path in mirror.files if path.endswith("/kubectl"))
    mirror.files[path] += b"!"

    with pytest.raises(DevError, match=r"kubectl has sha256 .* published is"):
        await official_builds.download(tmp_path, ["kubectl"], SilentProgress())

    assert list((tmp_path / "downloaded").iterdir()) == []


async def test_an_interrupted_download_goes_on_where_it_ended(
    mirror: Mirror, tmp_path: Path
) -> None:
    """Only the rest is asked for."""
    folder = tmp_path / "downloaded"
    folder.mkdir()
    (folder / ".kubectl.part").write_bytes(b"kubectl")

    await official_builds.download(tmp_path, ["kubectl"], SilentProgress())

    assert mirror.ranges == ["bytes=7-"]
    assert (folder / "kubectl").read_bytes() == b"kubectl program"


async def test_a_complete_part_is_not_asked_for_again(mirror: Mirror, tmp_path: Path) -> None:
    """A run that ended between receiving and checking loses nothing."""
    folder = tmp_path / "downloaded"
    folder.mkdir()
    (folder / ".kubectl.part").write_bytes(b"kubectl program")

    await official_builds.download(tmp_path, ["kubectl"], SilentProgress())

    assert (folder / "kubectl").read_bytes() == b"kubectl program"


async def test_a_missing_file_is_named(mirror: Mirror, tmp_path: Path) -> None:
    """The message says what could not be had."""
    mirror.files.clear()

    with pytest.raises(DevError, match=rf"kubectl cannot be downloaded: 404.*v{KUBERNETES}"):
        await official_builds.download(tmp_path, ["kubectl"], SilentProgress())


async def test_an_archive_without_the_program_is_refused(mirror: Mirror, tmp_path: Path) -> None:
    """The digest is right, the content is not."""
    location, digests = (each.partition("/v")[2] for each in official_builds.locations("etcd"))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz"):
        pass
    mirror.files[location] = buffer.getvalue()
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    mirror.files[digests] = f"{digest}  {location.rpartition('/')[2]}".encode()

    with pytest.raises(DevError, match="has no etcd in it"):
        await official_builds.download(tmp_path, ["etcd"], SilentProgress())
