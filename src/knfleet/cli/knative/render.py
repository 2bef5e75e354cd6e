"""`knfleet render`: what a custom resource would install, without any cluster."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from knfleet.api.schema import DecodeError
from knfleet.cli.knative.bundle import chosen_folder, directory_option
from knfleet.cli.output import explained
from knfleet.kube.errors import KubeError
from knfleet.release.errors import ReleaseError
from knfleet.render.errors import RenderError

if TYPE_CHECKING:
    from knfleet.api.knative.resources import Knative
    from knfleet.api.meta import Object
    from knfleet.render.pipeline import Rendered


@click.command()
@click.option(
    "-f",
    "--filename",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    required=True,
    help="File with KnativeServing or KnativeEventing objects; - reads standard input.",
)
@click.option("--version", "version", help="Render this version instead of spec.version.")
@directory_option
@explained(ReleaseError, RenderError, KubeError, DecodeError)
def command(filename: str, version: str | None, directory: Path | None) -> None:
    """Print the objects that a custom resource installs.

    No cluster is contacted, so what depends on one (owners, live values) is left out.
    """
    import asyncio

    from knfleet.kube.yaml import dump_all, load_all

    name = "standard input" if filename == "-" else filename
    with click.open_file(filename, "rb") as file:
        manifests = load_all(file.read(), source=name)
    resources = knatives(manifests, name, version)
    for rendered in asyncio.run(render_all(resources, chosen_folder(directory))):
        for warning in rendered.warnings:
            click.echo(f"Warning: {warning}", err=True)
        click.echo(f"---\n{dump_all(rendered.objects)}", nl=False)


def knatives(manifests: "list[Object]", name: str, version: str | None) -> "list[Knative]":
    """The custom resources in a file, with another version if one is wanted."""
    from knfleet.api.knative.resources import KnativeEventing, KnativeServing
    from knfleet.api.schema import decode

    kinds = {
        (type_.resource.api_version, type_.resource.kind): type_
        for type_ in (KnativeServing, KnativeEventing)
    }
    found: list[Knative] = []
    for manifest in manifests:
        type_ = kinds.get((manifest.get("apiVersion", ""), manifest.get("kind", "")))
        if type_ is None:
            continue
        if version is not None:
            manifest["spec"] = {**(manifest.get("spec") or {}), "version": version}
        found.append(decode(manifest, type_))
    if not found:
        raise ReleaseError(
            f"{name}: has no KnativeServing or KnativeEventing of operator.knative.dev/v1beta1"
        )
    return found


async def render_all(resources: "list[Knative]", folder: Path) -> "list[Rendered]":
    """The objects of each custom resource."""
    from knfleet.release.parsed_cache import ParsedCache
    from knfleet.release.releases import Releases
    from knfleet.release.source.sources import cache_folder
    from knfleet.release.upgrade_path import check_migration
    from knfleet.render.pipeline import RenderFacts, render

    releases = Releases(folder, cache=ParsedCache(cache_folder() / "manifests"))
    rendered: list[Rendered] = []
    for resource in resources:
        target = releases.target(resource)
        check_migration(resource.status.version, target, kind=resource.resource.kind)
        bundle = await releases.load(resource)
        rendered.append(render(bundle.objects(), resource, RenderFacts(version=bundle.version)))
    return rendered
