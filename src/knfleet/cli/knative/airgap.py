"""`knfleet airgap`: what clusters without the Internet need."""

from pathlib import Path

import click

from knfleet.cli.knative.bundle import chosen_folder, directory_option
from knfleet.cli.output import explained, table
from knfleet.release.errors import ReleaseError


@click.group()
def command() -> None:
    """Say what clusters without the Internet need."""


@command.command(name="list")
@click.option(
    "--release",
    "releases",
    multiple=True,
    metavar="VERSION",
    help="A release such as 1.23 or 1.23.0; more than once for more. All, when not given.",
)
@click.option(
    "--components",
    metavar="NAME,…",
    default="",
    help="serving, eventing, ingresses and event sources such as kourier or kafka. All, when not"
    " given.",
)
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

    from knfleet.operator.spoke_access.release_rights import NAMES, RightsChoice
    from knfleet.release.parsed_cache import ParsedCache
    from knfleet.release.releases import Releases
    from knfleet.release.source.sources import cache_folder
    from knfleet.view.images.release_images import release_images

    chosen = tuple(each.strip() for each in components.split(",") if each.strip())
    if unknown := sorted(set(chosen) - set(NAMES)):
        raise click.UsageError(
            f"--components {','.join(unknown)}: there is no such component; there are"
            f" {', '.join(NAMES)}"
        )
    files = Releases(chosen_folder(directory), cache=ParsedCache(cache_folder() / "manifests"))
    found = asyncio.run(release_images(files, RightsChoice(releases, chosen)))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    elif output == "table":
        rows = [[each.image, ", ".join(each.used_by)] for each in found]
        click.echo(table(["IMAGE", "USED BY"], rows))
    else:
        click.echo("\n".join(each.image for each in found))
