"""Registries that misbehave: nothing of theirs counts before its digest was checked."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from knfleet.oci.errors import BadImage, BadReference, ImageError, RegistryFailed, RegistryRefused
from knfleet.oci.image_download import ImageDownload
from knfleet.oci.image_manifest import digest_of, image_manifest, platform
from knfleet.oci.image_reference import image_reference, registry_place
from knfleet.oci.layout_folder import LayoutFolder
from knfleet.oci.registry_client import RegistryClient
from knfleet.oci.registry_login import registry_logins
from testbed.registries import SmallImage, small_image
from tests.support.loopback import on_loopback

Change = Callable[[web.Request, bytes], web.StreamResponse | None]
SECRET = "correct horse battery"  # the password of a login file


def answer(request: web.Request, content: bytes, media_type: str = "") -> web.Response:
    """A part of an image, or what of it is asked for."""
    begin = int(request.headers.get("Range", "bytes=0-")[6:-1])
    headers = {"Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}"}
    kind = media_type or "application/octet-stream"
    if not begin:
        return web.Response(body=content, content_type=kind)
    return web.Response(status=206, body=content[begin:], headers=headers)


class Half(web.StreamResponse):
    """An answer that ends in its middle."""


async def broken_off(request: web.Request, content: bytes) -> web.StreamResponse:
    """Send half of an answer, and close the connection."""
    response = web.StreamResponse(headers={"Content-Length": str(len(content))})
    await response.prepare(request)
    await response.write(content[: len(content) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


async def saved(
    tmp_path: Path,
    image: SmallImage,
    change: Change = lambda _, __: None,
    *,
    logins: Path | None = None,
    platforms: tuple[str, ...] = (),
) -> tuple[LayoutFolder, list[web.Request]]:
    """Save an image from a registry whose answers may be changed."""
    manifests = {digest_of(content): (kind, content) for kind, content in image.manifests}
    manifests["v1"] = image.manifests[-1]
    seen: list[web.Request] = []

    async def registry(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        version = request.path.rpartition("/")[2]
        kind, content = manifests.get(version) or ("", image.blobs.get(version, b""))
        changed = change(request, content)
        if isinstance(changed, Half):
            return await broken_off(request, content)
        return changed or answer(request, content, kind)

    async with on_loopback(tmp_path / "ports", registry) as url:
        client = RegistryClient(registry_logins(logins), wait_seconds=0)
        with LayoutFolder(tmp_path / "layout").opened() as layout:
            async with client:
                host = url.removeprefix("http://")
                download = ImageDownload(
                    client, layout, wanted=tuple(platform(each) for each in platforms)
                )
                reference = image_reference(f"{host}/app:v1")
                await download.save("example.com/app:v1", reference)
    return layout, seen


async def failure(
    tmp_path: Path,
    image: SmallImage,
    change: Change = lambda _, __: None,
    *,
    logins: Path | None = None,
    platforms: tuple[str, ...] = (),
) -> ImageError:
    """The error with which saving fails; parts that are fetched at once fail in a group."""
    caught: list[ImageError] = []
    try:
        await saved(tmp_path, image, change, logins=logins, platforms=platforms)
    except* ImageError as group:
        caught += (each for each in group.exceptions if isinstance(each, ImageError))
    assert caught
    return caught[0]


async def test_a_blob_with_another_content_is_refused(tmp_path: Path) -> None:
    """And nothing of it stays, nor is the image in the index."""
    image = small_image("app")
    wrong = list(image.blobs)[1]

    def change(request: web.Request, content: bytes) -> web.StreamResponse | None:
        return web.Response(body=b"x" * len(content)) if wrong in request.path else None

    error = await failure(tmp_path, image, change)

    assert isinstance(error, BadImage)
    assert wrong in str(error)
    assert not (tmp_path / "layout/blobs/sha256" / wrong[7:]).exists()
    assert not (tmp_path / "layout/index.json").exists()


async def test_more_bytes_than_a_manifest_names_are_refused(tmp_path: Path) -> None:
    """A registry cannot fill the disk."""
    image = small_image("app")

    def change(request: web.Request, content: bytes) -> web.StreamResponse | None:
        return web.Response(body=content * 1000) if "/blobs/" in request.path else None

    error = await failure(tmp_path, image, change)

    assert "more than the" in str(error)


async def test_a_blob_that_breaks_off_is_continued(tmp_path: Path) -> None:
    """From where it ended, instead of from its beginning."""
    image = small_image("app", layer_bytes=1_000_000)
    large = next(each for each, content in image.blobs.items() if len(content) > 1000)
    asked: list[str] = []

    def change(request: web.Request, content: bytes) -> web.StreamResponse | None:
        if large not in request.path:
            return None
        asked.append(request.headers.get("Range", ""))
        return None if len(asked) > 1 else Half()

    layout, _ = await saved(tmp_path, image, change)

    assert asked[0] == ""
    assert asked[1].startswith("bytes=")
    assert layout.content(large) == image.blobs[large]


async def test_a_login_goes_to_no_other_host(tmp_path: Path) -> None:
    """Not along a redirect, and not to an address without encryption."""
    image = small_image("app")
    logins = tmp_path / "config.json"

    def challenged(request: web.Request, content: bytes) -> web.StreamResponse | None:
        challenge = 'Bearer realm="http://example.invalid/token",service="s"'
        return web.Response(status=401, headers={"WWW-Authenticate": challenge})

    def redirected(request: web.Request, content: bytes) -> web.StreamResponse | None:
        return web.Response(status=307, headers={"Location": "http://example.invalid/blob"})

    pair = base64.b64encode(f"me:{SECRET}".encode()).decode()
    logins.write_text(json.dumps({"auths": {"127.0.0.1": {"auth": pair}}}))
    errors = [
        await failure(tmp_path / name, image, change, logins=logins)
        for name, change in (("realm", challenged), ("redirect", redirected))
    ]

    assert all(isinstance(each, RegistryRefused) for each in errors)
    assert not any(SECRET in str(each) or pair in str(each) for each in errors)


async def test_a_registry_that_fails_is_asked_again_and_then_given_up(tmp_path: Path) -> None:
    """With a message that says so."""
    asked: list[str] = []

    def change(request: web.Request, content: bytes) -> web.StreamResponse | None:
        asked.append(request.path)
        return web.Response(status=503)

    error = await failure(tmp_path, small_image("app"), change)

    assert isinstance(error, RegistryFailed)
    assert len(asked) == 4


async def test_only_chosen_platforms_are_fetched(tmp_path: Path) -> None:
    """By an index that is a part of the image's own; what is not there is named."""
    layout, seen = await saved(tmp_path, small_image("app"), platforms=("linux/arm64",))

    (entry,) = layout.index.manifests
    index = image_manifest("index", layout.content(entry.digest) or b"")
    assert [str(each.platform) for each in index.manifests] == ["linux/arm64"]
    assert len([each for each in seen if "/manifests/" in each.path]) == 2
    error = await failure(tmp_path / "none", small_image("app"), platforms=("linux/s390x",))
    assert "linux/amd64, linux/arm64" in str(error)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("envoy", "docker.io/library/envoy:latest"),
        ("envoyproxy/envoy:v1", "docker.io/envoyproxy/envoy:v1"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
        (f"gcr.io/a/b@sha256:{'0' * 64}", f"gcr.io/a/b@sha256:{'0' * 64}"),
    ],
)
def test_names_of_images_mean_what_they_mean_to_runtimes(text: str, meant: str) -> None:
    assert str(image_reference(text)) == meant


@pytest.mark.parametrize("text", ["", "UPPER/case", "a/b@sha256:12", "a/../b", "a b", "a:b c"])
def test_other_texts_name_no_image(text: str) -> None:
    with pytest.raises(BadReference):
        image_reference(text)


def test_plain_http_is_for_loopback_only() -> None:
    assert registry_place("127.0.0.1:5000/p").base == "http://127.0.0.1:5000"
    assert registry_place("https://127.0.0.1:5000").base == "https://127.0.0.1:5000"
    assert registry_place("registry.example.com/p").base == "https://registry.example.com"
    with pytest.raises(BadReference, match="loopback"):
        registry_place("http://registry.example.com")


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b"[" * 100_000,
        b'{"schemaVersion":1}',
        json.dumps(
            {"schemaVersion": 2, "config": {"digest": "sha256:../../etc", "size": 1}}
        ).encode(),
        json.dumps(
            {"schemaVersion": 2, "config": {"digest": f"sha256:{'0' * 64}", "size": -1}}
        ).encode(),
    ],
)
def test_manifests_that_cannot_be_used_are_refused(content: bytes) -> None:
    with pytest.raises(BadImage, match="app"):
        image_manifest("app", content)
