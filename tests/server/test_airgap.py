"""Images of a release from one real registry, by a layout, into another one."""

import asyncio
import base64
import json
import re
import shutil
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.cli.main import knfleet
from knfleet.kube.yaml import dump_all, load_all
from knfleet.operator.spoke_access.release_rights import RightsChoice
from knfleet.release.layout import COMPONENTS
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.releases import Releases
from knfleet.view.images.image_list import images
from knfleet.view.images.release_images import release_images
from testbed.peers.ocm_grpc import grpc_files
from testbed.registries import (
    PASSWORD,
    USER,
    SmallImage,
    TestRegistry,
    publish,
    registry,
    small_image,
)
from tests.support.documents import Reader, surroundings
from tests.support.helm import CHART, ROOT, Helm, helm, helm_binary

__all__ = ["helm", "helm_binary"]

PAGE = ROOT / "docs" / "air-gap.md"
USUAL = ("serving", "kourier", "eventing")
PINNED = re.compile(r"gcr\.io/[^\s\"@]+@sha256:[0-9a-f]{64}")
SECTIONS = (*COMPONENTS.values(), "ingress")


class PublicSide(Struct, frozen=True):
    """Release files, and a registry that has their images."""

    files: Path
    images: dict[str, SmallImage]
    """By the names in the release files."""
    registry: TestRegistry

    @property
    def mirrors(self) -> list[str]:
        """Options with which the registry stands for those in the Internet."""
        hosts = ("gcr.io", "docker.io")
        return [each for host in hosts for each in ("--mirror", f"{host}={self.registry.host}")]

    def save(self, target: Path, *more: str) -> list[str]:
        """The command that saves what is usual."""
        usual = ("--release", "1.23", "--components", ",".join(USUAL), "--dir", str(self.files))
        return ["airgap", "save", "--to", str(target), *usual, *self.mirrors, *more]


async def typed(*arguments: str) -> Result:
    """A command of ours, beside the test's own event loop."""
    return await asyncio.to_thread(CliRunner().invoke, knfleet, arguments)


async def done(*arguments: str) -> str:
    """The output of a command that must succeed."""
    result = await typed(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def small_release(bundle_root: Path, target: Path) -> dict[str, SmallImage]:
    """Copy release 1.23, whose images are replaced by small ones of the same names."""
    made: dict[str, SmallImage] = {}

    def replaced(found: re.Match[str]) -> str:
        image = small_image(found[0])
        name = f"{found[0].partition('@')[0]}@{image.digest}"
        made[name] = image
        return name

    for section in SECTIONS:
        for file in (bundle_root / section).glob("1.23*/**/*.yaml"):
            path = target / file.relative_to(bundle_root)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(PINNED.sub(replaced, file.read_text()))
    return made


@pytest.fixture
async def public(bundle_root: Path, tmp_path: Path) -> AsyncGenerator[PublicSide]:
    """What the Internet has."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed, so that a registry cannot be built")
    files = tmp_path / "releases"
    made = small_release(bundle_root, files)
    found = await release_images(
        Releases(files, cache=ParsedCache(tmp_path)), RightsChoice(("1.23",), USUAL)
    )
    async with registry(tmp_path / "public") as running:
        for name in (each.image for each in found):
            image = made.get(name) or made.setdefault(name, small_image(name))
            path, _, version = name.partition("/")[2].partition("@")
            path, _, tag = path.partition(":")
            await publish(running, path, image, tag if not version else "")
        images = {each.image: made[each.image] for each in found}
        yield PublicSide(files, images, running)


def login(host: str, folder: Path) -> Path:
    """What container tools write at a login."""
    pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    path = folder / "config.json"
    path.write_text(json.dumps({"auths": {host: {"auth": pair}}}))
    return path


def private_images(text: str) -> set[str]:
    """All images that printed settings name."""
    return {
        image for each in load_all(text) for image in each["spec"]["registry"]["override"].values()
    }


async def test_all_images_of_a_release_get_into_a_private_registry(
    public: PublicSide, tmp_path: Path
) -> None:
    """Saved, pushed with a login, verified; and the setting that is printed reaches all of them."""
    saved = tmp_path / "knative.tar"
    async with registry(tmp_path / "private", login=True) as private:
        place, user = f"{private.host}/mirror", login(private.host, tmp_path)

        await done(*public.save(saved))
        refused = await typed("airgap", "push", str(saved), "--to", place)
        await done("airgap", "verify", str(saved))
        before = await typed(
            "airgap", "verify", str(saved), "--in", place, "--docker-config", str(user)
        )
        printed = await done(
            "airgap", "push", str(saved), "--to", place, "--docker-config", str(user)
        )
        await done(
            *("airgap", "verify", str(saved), "--in", place, "--full"),
            *("--docker-config", str(user)),
        )

        assert (refused.exit_code, "requires a login" in refused.output) == (1, True)
        assert before.exit_code == 1
        assert "is missing" in before.output
        assert len(public.images) == 34
        assert {each.partition("@")[2] for each in private_images(printed)} == {
            image.digest for image in public.images.values()
        }
        assert all(each.startswith(f"{place}/") for each in private_images(printed))
        assert all(private.blob_file(each.digest).exists() for each in public.images.values())
        assert PASSWORD not in refused.output + before.output + printed


@pytest.mark.full
async def test_custom_resources_with_the_printed_setting_use_the_private_registry_alone(
    public: PublicSide, tmp_path: Path
) -> None:
    """Every image of every object that they install: 34 of 34."""
    saved = tmp_path / "layout"
    await done(*public.save(saved, "--platform", "linux/amd64"))

    settings = list(load_all(await done("airgap", "registry", str(saved), "--to", "127.0.0.1:1/m")))
    rendered = [await rendered_images(each, public.files, tmp_path) for each in settings]

    assert [each["kind"] for each in settings] == ["KnativeServing", "KnativeEventing"]
    used = set[str]().union(*rendered)
    assert len(used) == 34
    assert all(each.startswith("127.0.0.1:1/m/") for each in used)


async def rendered_images(setting: Object, files: Path, tmp_path: Path) -> set[str]:
    """The images of the objects that `knfleet render` prints for a custom resource."""
    if setting["kind"] == "KnativeServing":
        setting["spec"]["ingress"] = {"kourier": {"enabled": True}}
    else:
        setting["spec"]["config"] = {"features": {"transport-encryption": "permissive"}}
    path = tmp_path / "resource.yaml"
    path.write_text(dump_all([setting]))
    text = await done("render", "-f", str(path), "--dir", str(files))
    return set(images(load_all(text)))


@pytest.mark.full
async def test_a_save_continues_where_it_was_interrupted(
    public: PublicSide, tmp_path: Path
) -> None:
    """What is whole is not fetched again, what was damaged meanwhile is."""
    saved = tmp_path / "layout"
    await done(*public.save(saved))
    index = (saved / "index.json").read_bytes()
    image = next(iter(public.images.values()))
    lost, damaged = [saved / "blobs/sha256" / each[7:] for each in list(image.blobs)[1:3]]
    lost.unlink()
    damaged.write_bytes(b"x" * damaged.stat().st_size)

    found = await typed("airgap", "verify", str(saved))
    again = await typed(*public.save(saved))
    await done("airgap", "verify", str(saved))

    assert found.exit_code == 1
    assert f"the blob sha256:{lost.name} is missing" in found.output
    assert f"the blob sha256:{damaged.name} has the digest" in found.output
    assert again.exit_code == 0
    assert (saved / "index.json").read_bytes() == index
    sizes = [float(each) for each in re.findall(r": (\d+\.\d) MB", again.output)]
    assert sizes == [0.0] * 34


@pytest.mark.full
async def test_an_archive_has_the_same_bytes_each_time(public: PublicSide, tmp_path: Path) -> None:
    """So that two people who saved a release can compare; with one byte changed it is refused."""
    first, second = tmp_path / "first.tar", tmp_path / "second.tar"
    printed = await done(*public.save(first))
    await done(*public.save(second))
    digest = printed.split()[-1]
    content = bytearray(second.read_bytes())
    content[len(content) // 2] ^= 1
    assert first.read_bytes() == second.read_bytes()
    second.write_bytes(content)

    await done("airgap", "verify", str(first), "--digest", digest)
    changed = await typed("airgap", "verify", str(second), "--digest", digest)
    by_parts = await typed("airgap", "verify", str(second))

    assert (changed.exit_code, by_parts.exit_code) == (1, 1)
    assert "has the digest" in changed.output


@pytest.mark.full
async def test_what_a_registry_lost_is_pushed_again_and_what_it_damaged_is_found(
    public: PublicSide, tmp_path: Path
) -> None:
    """By TLS with a certificate authority of its own, which must be given."""
    saved = tmp_path / "layout"
    await done(*public.save(saved))
    files = grpc_files(tmp_path / "tls")
    pair = (files.folder / "tls.crt", files.folder / "tls.key")
    async with registry(tmp_path / "private", certificate=pair) as private:
        # The certificate is for the name, not for the address.
        host = f"https://localhost:{private.host.rpartition(':')[2]}"
        trusted = ("--ca-file", str(files.folder / "ca.crt"))
        unknown = await typed("airgap", "push", str(saved), "--to", host)
        await done("airgap", "push", str(saved), "--to", host, *trusted)
        image = next(iter(public.images.values()))
        damaged = list(image.blobs)[1]
        size = len(image.blobs[damaged])
        private.blob_file(damaged).write_bytes(b"x" * size)

        quick = await typed("airgap", "verify", str(saved), "--in", host, *trusted)
        full = await typed("airgap", "verify", str(saved), "--in", host, *trusted, "--full")

        assert (unknown.exit_code, "--ca-file" in unknown.output) == (1, True)
        assert quick.exit_code == 0
        assert full.exit_code == 1
        assert f"@{damaged} has another content than its digest says" in full.output


@pytest.mark.full
async def test_what_a_registry_damaged_is_pushed_again(public: PublicSide, tmp_path: Path) -> None:
    """A registry that keeps what it has is named; once that is deleted it takes the right one."""
    saved = tmp_path / "layout"
    await done(*public.save(saved))
    async with registry(tmp_path / "private") as private:
        push = ("airgap", "push", str(saved), "--to", private.host)
        await done(*push)
        image = next(iter(public.images.values()))
        same_size, shorter = [private.blob_file(each) for each in list(image.blobs)[1:3]]
        same_size.write_bytes(b"x" * same_size.stat().st_size)

        quick = await typed(*push)
        kept = await typed(*push, "--full")
        same_size.unlink()
        await done(*push, "--full")
        shorter.write_bytes(b"x")
        without_full = await typed(*push)
        shorter.unlink()
        await done(*push)
        await done("airgap", "verify", str(saved), "--in", private.host, "--full")

        words = "and the registry keeps it although it was sent again"
        assert quick.exit_code == 0
        assert (kept.exit_code, words in kept.output) == (1, True)
        assert f"@sha256:{same_size.parent.name} has another content" in kept.output
        assert (without_full.exit_code, words in without_full.output) == (1, True)


@pytest.mark.full
async def test_an_image_that_is_not_there_is_named(public: PublicSide, tmp_path: Path) -> None:
    """With the registry that was asked instead of the one in its name."""
    missing = await typed(
        *public.save(tmp_path / "layout", "--image", "gcr.io/knative-releases/none:v1")
    )

    assert missing.exit_code == 1
    where = f"asked at {public.registry.host}"
    assert f"gcr.io/knative-releases/none:v1: there is no such image ({where})" in missing.output


@pytest.mark.full
async def test_the_page_about_the_air_gap_can_be_followed(
    public: PublicSide, tmp_path: Path
) -> None:
    """Two registries stand for the Internet and for the other side."""
    desk = tmp_path / "desk"
    desk.mkdir()
    async with registry(tmp_path / "private") as private:
        own = {
            "KO_DATA_PATH": str(public.files),
            "MIRROR": public.registry.host,
            "PRIVATE": f"{private.host}/knative",
        }
        reader = Reader(desk, surroundings(desk, Path(sys.executable), **own))

        assert await reader.follow(PAGE) == 5

    assert (desk / "bundle" / "bundle.lock").is_file()


@pytest.mark.full
async def test_a_saved_chart_is_one_that_helm_pulls(
    public: PublicSide, helm: Helm, tmp_path: Path
) -> None:
    """From the private registry, as Helm itself would have put it there."""
    await helm.done("package", str(CHART), "--destination", str(tmp_path))
    (packed,) = tmp_path.glob("knfleet-*.tgz")
    saved = tmp_path / "layout"
    await done(*public.save(saved, "--chart", str(packed)))
    async with registry(tmp_path / "private") as private:
        await done("airgap", "push", str(saved), "--to", f"{private.host}/m")
        pulled = tmp_path / "pulled"
        pulled.mkdir()

        await helm.done(
            *("pull", f"oci://{private.host}/m/charts/knfleet", "--plain-http"),
            *("--destination", str(pulled)),
        )

        assert (pulled / packed.name).read_bytes() == packed.read_bytes()
