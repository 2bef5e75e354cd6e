"""A real registry of images on loopback, and small images for it."""

import contextlib
import hashlib
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from aiohttp import ClientSession
from msgspec import Struct

from knfleet.dev.progress_reporter import SilentProgress
from knfleet.kube.yaml import dump_all
from testbed.go_build import built
from testbed.peers.leashed import leashed, reserved_port
from testbed.waiting import until

PACKAGE = "github.com/distribution/distribution/v3/cmd/registry"
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
PLATFORMS = ("amd64", "arm64")
USER, PASSWORD = "pusher", "correct horse"
PASSWORD_HASH = "$2b$04$YsUcWb8Ivsm2WTN1Wp3G/uI070Px.HVpbNJee/KI3meyLQID0So7e"
"""What `htpasswd -B` makes of the password."""


class TestRegistry(Struct, frozen=True):
    """A registry that runs."""

    __test__ = False

    host: str
    folder: Path
    """Its storage."""
    scheme: str = "http"

    def blob_file(self, digest: str) -> Path:
        """Where it keeps the bytes of a blob or manifest."""
        bare = digest.removeprefix("sha256:")
        return self.folder / f"docker/registry/v2/blobs/sha256/{bare[:2]}/{bare}/data"


class SmallImage(Struct, frozen=True):
    """An image of a few bytes for two platforms: its blobs, and its manifests from the inside."""

    blobs: dict[str, bytes]
    manifests: Sequence[tuple[str, bytes]]
    """Media types and contents; the index is the last."""

    @property
    def digest(self) -> str:
        return digest_of(self.manifests[-1][1])


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def small_image(name: str, *, layer_bytes: int = 64) -> SmallImage:
    """The image of a name: one layer of its own for each platform, and one that all share."""
    shared = b"shared by all" * 10
    blobs = {digest_of(shared): shared}
    manifests: list[tuple[str, bytes]] = []
    entries: list[dict[str, Any]] = []
    for architecture in PLATFORMS:
        own = f"{name} for {architecture}".encode().ljust(layer_bytes, b".")
        config = json.dumps({"os": "linux", "architecture": architecture, "n": name}).encode()
        blobs |= {digest_of(each): each for each in (own, config)}
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": described(config, CONFIG),
                "layers": [described(each, LAYER) for each in (shared, own)],
            }
        ).encode()
        manifests.append((MANIFEST, manifest))
        platform = {"os": "linux", "architecture": architecture}
        entries.append({**described(manifest, MANIFEST), "platform": platform})
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})
    return SmallImage(blobs, [*manifests, (INDEX, index.encode())])


def described(content: bytes, media_type: str) -> dict[str, Any]:
    """A descriptor."""
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}


async def publish(registry: TestRegistry, path: str, image: SmallImage, tag: str = "") -> None:
    """Put an image into a registry, without any of our code."""
    base = f"http://{registry.host}/v2/{path}"
    async with ClientSession(raise_for_status=True) as session:
        for digest, content in image.blobs.items():
            async with session.post(f"{base}/blobs/uploads/") as response:
                address = response.headers["Location"]
            joint = "&" if "?" in address else "?"
            await session.put(f"{address}{joint}digest={digest}", data=content)
        for media_type, content in image.manifests:
            is_tagged = tag and content is image.manifests[-1][1]
            version = tag if is_tagged else digest_of(content)
            headers = {"Content-Type": media_type}
            await session.put(f"{base}/manifests/{version}", data=content, headers=headers)


@contextlib.asynccontextmanager
async def registry(
    folder: Path, *, certificate: tuple[Path, Path] | None = None, login: bool = False
) -> AsyncGenerator[TestRegistry]:
    """A registry runs, by TLS or with a login if that is wanted."""
    binary = await built("registry", PACKAGE, "registry", SilentProgress())
    storage = folder / "storage"
    storage.mkdir(parents=True)
    port = reserved_port(folder / "port")
    http: dict[str, Any] = {"addr": f"127.0.0.1:{port}", "secret": "only for tests"}
    if certificate:
        http["tls"] = {"certificate": str(certificate[0]), "key": str(certificate[1])}
    config: dict[str, Any] = {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(storage)}, "delete": {"enabled": True}},
        "http": http,
    }
    if login:
        (folder / "htpasswd").write_text(f"{USER}:{PASSWORD_HASH}\n")
        config["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}
    (folder / "config.yaml").write_text(dump_all([config]))
    log = folder / "registry.log"
    command = (str(binary), "serve", str(folder / "config.yaml"))
    async with leashed(command, log=log, home=folder):
        scheme = "https" if certificate else "http"

        async def answers() -> bool:
            with contextlib.suppress(OSError):
                async with (
                    ClientSession() as session,
                    session.get(f"{scheme}://127.0.0.1:{port}/v2/", ssl=False),
                ):
                    return True
            return False

        await until(answers, f"the registry answers; see {log}")
        yield TestRegistry(f"127.0.0.1:{port}", storage, scheme)
