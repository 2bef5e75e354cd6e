"""`knfleet airgap save`, `push`, `verify` and `registry`: images to where there is no Internet."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from knfleet.cli.knative.airgap_options import (
    ca_option,
    chosen_components,
    components_option,
    layout_argument,
    login_option,
    place_option,
    releases_option,
)
from knfleet.cli.knative.bundle import chosen_folder, directory_option
from knfleet.cli.output import explained, progress
from knfleet.oci.errors import ImageError
from knfleet.release.errors import ReleaseError

if TYPE_CHECKING:
    from knfleet.oci.layout_reader import ImageLayout
    from knfleet.oci.registry_client import RegistryClient


@asynccontextmanager
async def registries(login: Path | None, ca_file: Path | None) -> AsyncGenerator["RegistryClient"]:
    """A client of registries; several errors at once are told as the first."""
    from knfleet.oci.registry_client import RegistryClient
    from knfleet.oci.registry_login import registry_logins

    async with RegistryClient(registry_logins(login), ca_file=ca_file) as client:
        yield client


@click.command()
@click.option(
    "--to",
    "target",
    required=True,
    type=click.Path(path_type=Path),
    help="A folder, or a file that ends with .tar. A folder that an interrupted save left is"
    " continued.",
)
@releases_option
@components_option
@directory_option
@click.option(
    "--image",
    "more",
    multiple=True,
    metavar="IMAGE",
    help="One more image, such as knfleet's own and those of credential plugins; more than once"
    " for more.",
)
@click.option(
    "--chart",
    "charts",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A chart that `helm package` made; more than once for more.",
)
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    metavar="OS/ARCH",
    help="Only images for this platform, such as linux/amd64; more than once for more. All, when"
    " not given.",
)
@click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    metavar="HOST=REGISTRY",
    help="Pull images of a registry from another one, such as gcr.io=registry.example.com/mirror.",
)
@login_option
@ca_option
@explained(ReleaseError, ImageError, OSError)
def save(  # noqa: PLR0913, PLR0917 - each is an option
    target: Path,
    releases: tuple[str, ...],
    components: str,
    directory: Path | None,
    more: tuple[str, ...],
    charts: tuple[Path, ...],
    platforms: tuple[str, ...],
    mirrors: tuple[str, ...],
    login: Path | None,
    ca_file: Path | None,
) -> None:
    """Save all images and files of releases in an OCI image layout.

    \b
    knfleet airgap save --release 1.23 --components serving,kourier --to knative.tar
    """
    from knfleet.oci.image_download import image_mirrors
    from knfleet.oci.image_manifest import platform
    from knfleet.operator.spoke_access.release_rights import RightsChoice
    from knfleet.release.parsed_cache import ParsedCache
    from knfleet.release.releases import Releases
    from knfleet.release.source.sources import cache_folder
    from knfleet.view.images.release_images import release_images
    from knfleet.workflows.airgap.image_save import SavedImages, SaveRequest
    from knfleet.workflows.airgap.image_save import save as save_images
    from knfleet.workflows.airgap.release_archive import SavedChoice

    chosen = chosen_components(components)
    folder = chosen_folder(directory)
    files = Releases(folder, cache=ParsedCache(cache_folder() / "manifests"))

    async def run() -> SavedImages:
        found = await release_images(files, RightsChoice(releases, chosen))
        request = SaveRequest(
            target,
            [*(each.image for each in found), *more],
            folder,
            SavedChoice(releases, chosen),
            charts,
            image_mirrors(mirrors),
            tuple(platform(each) for each in platforms),
        )
        with progress() as reporter:
            async with registries(login, ca_file) as client:
                return await save_images(
                    client, request, reporter.report if reporter else click.echo
                )

    saved = asyncio.run(run())
    what = "index.json" if target.is_dir() else target.name
    click.echo(f"{saved.images} images, release files and {len(charts)} charts are in {target}")
    click.echo(f"{what} has the digest {saved.checksum}")


@click.command()
@layout_argument
@place_option("--to", required=True, help="Registry, and a folder in it: HOST[:PORT][/PREFIX].")
@click.option(
    "--full",
    is_flag=True,
    help="Read what the registry has already, and send again what its digest does not fit.",
)
@login_option
@ca_option
@explained(ReleaseError, ImageError, OSError)
def push(layout: Path, place: str, full: bool, login: Path | None, ca_file: Path | None) -> None:
    """Put saved images into a private registry, and print the setting that uses them.

    \b
    knfleet airgap push knative.tar --to registry.example.com/knative
    """
    from knfleet.oci.image_reference import registry_place
    from knfleet.oci.layout_reader import image_layout
    from knfleet.oci.registry_copy import RegistryUpload, placed_images

    chosen = registry_place(place)

    async def run(opened: "ImageLayout") -> int:
        images = placed_images(opened, chosen)
        with progress() as reporter:
            async with registries(login, ca_file) as client:
                upload = RegistryUpload(client, opened, chosen, full=full)
                for number, image in enumerate(images, 1):
                    await upload.push(image)
                    if reporter:
                        reporter.report(f"{number}/{len(images)} {image.address(chosen)}")
                if reporter:
                    reporter.report(f"{upload.sent_bytes / 1e6:.1f} MB sent to {chosen}")
        return len(images)

    with image_layout(layout) as opened:
        asyncio.run(run(opened))
        click.echo(settings_text(opened, place))


@click.command()
@layout_argument
@place_option("--to", required=True, help="Registry, and a folder in it: HOST[:PORT][/PREFIX].")
@explained(ReleaseError, ImageError, OSError)
def registry(layout: Path, place: str) -> None:
    """Print spec.registry of custom resources that use a private registry.

    \b
    knfleet airgap registry knative.tar --to registry.example.com/knative
    """
    from knfleet.oci.layout_reader import image_layout

    with image_layout(layout) as opened:
        click.echo(settings_text(opened, place))


def settings_text(layout: "ImageLayout", place: str) -> str:
    """The settings for all releases of a layout, as YAML."""
    from knfleet.kube.yaml import dump_all
    from knfleet.oci.image_reference import registry_place
    from knfleet.oci.registry_copy import placed_images
    from knfleet.operator.spoke_access.release_rights import RightsChoice
    from knfleet.release.parsed_cache import ParsedCache
    from knfleet.release.releases import Releases
    from knfleet.release.source.sources import cache_folder
    from knfleet.view.images.registry_setting import registry_settings, setting_manifest
    from knfleet.workflows.airgap.release_archive import saved_choice, saved_release_files

    chosen = registry_place(place)
    addresses = {each.name: each.address(chosen) for each in placed_images(layout, chosen)}
    choice = saved_choice(layout)
    files = Releases(saved_release_files(layout), cache=ParsedCache(cache_folder() / "manifests"))
    rights = RightsChoice(choice.releases, choice.components)
    settings = asyncio.run(registry_settings(files, rights, addresses))
    return dump_all([setting_manifest(each) for each in settings]).rstrip()


@click.command()
@layout_argument
@releases_option
@components_option
@place_option(
    "--in", required=False, help="Compare a registry with the layout: HOST[:PORT][/PREFIX]."
)
@click.option(
    "--full", is_flag=True, help="Read all bytes in the registry and check their digests, too."
)
@click.option(
    "--digest",
    metavar="SHA256",
    help="The digest of index.json or of the tar file that `save` printed.",
)
@login_option
@ca_option
@explained(ReleaseError, ImageError, OSError)
def verify(
    layout: Path,
    releases: tuple[str, ...],
    components: str,
    place: str | None,
    full: bool,
    digest: str | None,
    login: Path | None,
    ca_file: Path | None,
) -> None:
    """Say what is missing or damaged, in a layout or in a registry.

    \b
    knfleet airgap verify knative.tar
    knfleet airgap verify knative.tar --in registry.example.com/knative
    """
    from knfleet.oci.image_reference import registry_place
    from knfleet.oci.layout_check import layout_report
    from knfleet.oci.layout_folder import INDEX_FILE, file_digest
    from knfleet.oci.layout_reader import image_layout
    from knfleet.oci.registry_copy import RegistryCheck, placed_images

    async def compared(opened: "ImageLayout", host: str) -> list[str]:
        chosen = registry_place(host)
        async with registries(login, ca_file) as client:
            check = RegistryCheck(client, opened, chosen, full=full)
            return [
                problem
                for image in placed_images(opened, chosen)
                for problem in await check.problems(image)
            ]

    if digest:
        found = file_digest(layout / INDEX_FILE if layout.is_dir() else layout)
        if found.removeprefix("sha256:") != digest.removeprefix("sha256:"):
            raise click.ClickException(f"{layout}: has the digest {found}, not {digest}")
    with image_layout(layout) as opened:
        report = layout_report(opened, expected_images(opened, releases, components))
        problems = report.problems or (asyncio.run(compared(opened, place)) if place else [])
        for problem in problems:
            click.echo(problem, err=True)
        if problems:
            where = place if place and not report.problems else layout
            hint = (
                "run `knfleet airgap push --full` again, which sends what is missing or damaged,"
                " and names what the registry keeps although it is damaged"
                if where == place
                else "run `knfleet airgap save` again, which keeps what is whole"
            )
            raise click.ClickException(f"{len(problems)} problems in {where}; {hint}")
        where = f"{layout} and {place}" if place else str(layout)
        click.echo(
            f"{report.images} images and artifacts in {where} are complete:"
            f" {report.blobs} blobs, {report.size / 1e6:.1f} MB"
        )


def expected_images(layout: "ImageLayout", releases: tuple[str, ...], components: str) -> list[str]:
    """The images that the layout must have: those of the releases that it was made for."""
    from knfleet.operator.spoke_access.release_rights import RightsChoice
    from knfleet.release.parsed_cache import ParsedCache
    from knfleet.release.releases import Releases
    from knfleet.release.source.sources import cache_folder
    from knfleet.view.images.release_images import release_images
    from knfleet.workflows.airgap.release_archive import saved_choice, saved_release_files

    choice = saved_choice(layout)
    files = Releases(saved_release_files(layout), cache=ParsedCache(cache_folder() / "manifests"))
    wanted = RightsChoice(
        releases or choice.releases, chosen_components(components) or choice.components
    )
    return [each.image for each in asyncio.run(release_images(files, wanted))]
