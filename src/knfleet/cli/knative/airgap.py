"""`knfleet airgap`: what clusters without the Internet need."""

from pathlib import Path

import click

from knfleet.cli.knative.airgap_images import push, registry, save, verify
from knfleet.cli.knative.airgap_options import (
    chosen_components,
    components_option,
    releases_option,
)
from knfleet.cli.knative.bundle import chosen_folder, directory_option
from knfleet.cli.output import explained, table
from knfleet.release.errors import ReleaseError


@click.group()
def command() -> None:
    """List, save, push and verify what clusters without the Internet need."""


@command.command(name="list")
@releases_option
@components_option
@directory_option
@click.option(
    "-o",
    "output",
    type=click.Choice(["name", "table", "json"]),
    default="name",
    help="The images alone, with the objects that need them, or all of it as JSON.",
)
@explained(ReleaseError)
def list_command(
    releases: tuple[str, ...], components: str, directory: Path | None, output: str
) -> None:
    """Print all images that releases of Knative need.

    Also those that only a variable, a ConfigMap, an init container or a Job names, and that are
    pulled later: those of event sources and of Knative Services.

    \b
    knfleet airgap list --release 1.23 --components serving,kourier,eventing
    """
    import asyncio

    import msgspec

    from knfleet.operator.spoke_access.release_rights import RightsChoice
    from knfleet.release.parsed_cache import ParsedCache
    from knfleet.release.releases import Releases
    from knfleet.release.source.sources import cache_folder
    from knfleet.view.images.release_images import release_images

    chosen = chosen_components(components)
    files = Releases(chosen_folder(directory), cache=ParsedCache(cache_folder() / "manifests"))
    found = asyncio.run(release_images(files, RightsChoice(releases, chosen)))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    elif output == "table":
        rows = [[each.image, ", ".join(each.used_by)] for each in found]
        click.echo(table(["IMAGE", "USED BY"], rows))
    else:
        click.echo("\n".join(each.image for each in found))


for each in (push, registry, save, verify):
    command.add_command(each)
