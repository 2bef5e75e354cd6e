"""Takes the official builds, each checked against the digest published beside it.

`KNFLEET_GROUND_MIRROR` names another place with the same layout: a mirror behind a firewall, or
the loopback server of a test.
"""

import asyncio
import hashlib
import io
import os
import platform
import tarfile
from pathlib import Path

import aiohttp

from knfleet.dev.binaries.locate import ETCD, KUBERNETES
from knfleet.dev.errors import DevError
from knfleet.dev.progress_reporter import ProgressReporter

KUBERNETES_SITE = "https://dl.k8s.io"
ETCD_SITE = "https://github.com/etcd-io/etcd/releases/download"
LIMIT_BYTES = 400 * 2**20
SYSTEM = platform.system().lower()
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def locations(name: str) -> tuple[str, str]:
    """The addresses of a file and of its digest."""
    mirror = os.environ.get("KNFLEET_GROUND_MIRROR", "").rstrip("/")
    if name == "etcd":
        site = f"{mirror or ETCD_SITE}/v{ETCD}"
        return f"{site}/etcd-v{ETCD}-{SYSTEM}-{MACHINE}.tar.gz", f"{site}/SHA256SUMS"
    file = f"{mirror or KUBERNETES_SITE}/v{KUBERNETES}/bin/{SYSTEM}/{MACHINE}/{name}"
    return file, f"{file}.sha256"


async def download(folder: Path, names: list[str], progress: ProgressReporter) -> None:
    """Download binaries into the cache."""
    target = folder / "downloaded"
    target.mkdir(parents=True, exist_ok=True)
    timeout = aiohttp.ClientTimeout(total=1800, sock_connect=20, sock_read=60)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
        for name in names:
            try:
                await fetch(session, name, target, progress)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                reason = str(error) or type(error).__name__
                raise DevError(f"{name} cannot be downloaded: {reason}") from error
            progress.report(f"downloaded {name}")


async def fetch(
    session: aiohttp.ClientSession, name: str, target: Path, progress: ProgressReporter
) -> None:
    """Download one binary, going on with a part that an earlier run left."""
    location, digests = locations(name)
    async with session.get(digests, raise_for_status=True) as answer:
        expected = digest_of(location.rpartition("/")[2], await answer.text())
    part = target / f".{name}.part"
    await receive(session, location, part, progress)
    actual = await asyncio.to_thread(digest_file, part)
    if actual != expected:
        part.unlink()
        raise DevError(
            f"{location} has sha256 {actual}, published is {expected}; run again, and if it"
            " persists, do not trust that source"
        )
    await asyncio.to_thread(install, part, target / name)


async def receive(
    session: aiohttp.ClientSession, location: str, part: Path, progress: ProgressReporter
) -> None:
    """Append to the part file until it is complete."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={have}-"} if have else {}
    async with session.get(location, headers=headers) as answer:
        if answer.status == 416:  # nothing is missing
            return
        answer.raise_for_status()
        if answer.status != 206:
            have = 0
        total = have + (answer.content_length or 0)
        with part.open("ab" if have else "wb") as file:
            async for chunk in answer.content.iter_chunked(2**20):
                have += len(chunk)
                if have > LIMIT_BYTES:
                    raise DevError(f"{location} is larger than {LIMIT_BYTES >> 20} MB")
                file.write(chunk)
                progress.advance(f"downloading {part.name[1:-5]}", have, max(have, total))


def digest_of(file: str, published: str) -> str:
    """The digest of a file in a published text: alone, or in a list of digests and names."""
    for line in published.splitlines():
        words = line.split()
        if len(words) == 1 or (len(words) == 2 and words[1].lstrip("*") == file):
            return words[0].lower()
    raise DevError(f"no digest is published for {file}")


def digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def install(part: Path, target: Path) -> None:
    """Put a checked file in its place, taken out of its archive if it came in one."""
    draft = part.with_suffix(".draft")
    if target.name == "etcd":
        draft.write_bytes(extract(part, "etcd"))
        part.unlink()
    else:
        part.replace(draft)
    draft.chmod(0o755)
    draft.replace(target)


def extract(archive: Path, name: str) -> bytes:
    """One file of an archive, looked up by its last path component."""
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and member.name.rpartition("/")[2] == name:
                return (tar.extractfile(member) or io.BytesIO()).read()
    raise DevError(f"{archive.name} has no {name} in it")
