"""`knfleet apply`: carry a plan out, if the world is still the one that it was made for."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.bundle import chosen_folder, directory_option
from knfleet.cli.fleet import cluster_options, connection_of
from knfleet.cli.plan import planner_for
from knfleet.cli.status import provider_option

if TYPE_CHECKING:
    from knfleet.api.meta import Object
    from knfleet.kube.client import Client


@click.command()
@cluster_options
@provider_option
@directory_option
@click.option(
    "--plan",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    help="What `knfleet plan --save` wrote.",
)
@click.option("--wait", is_flag=True, help="Until the custom resources are ready.")
def command(path: Path, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Carry out a plan: write the custom resources that it was made for.

    The plan is made once more; when a custom resource or anything on its target is not as it was,
    nothing is written. The operator does the rest.

    \b
    knfleet apply --plan plan.json --wait
    """
    from knfleet.overview.saved import load

    saved = load(path)
    folder = chosen_folder(options["directory"])
    connection = connection_of(kubeconfig, context)

    async def run() -> list[str]:
        from knfleet.kube.client import Client
        from knfleet.kube.client import Options as Behaviour
        from knfleet.overview.saved import checked, write
        from knfleet.overview.targets import providers_for

        providers = providers_for(options["provider_file"], kubeconfig, context)
        async with Client(connection, Behaviour(manager="knfleet-cli")) as hub:
            subjects = await checked(planner_for(hub, folder, providers), saved)
            stored = [await write(hub, each) for each in subjects]
            for each in stored:
                click.echo(f"{title(each)} written")
            return await settled(hub, stored, options["timeout"]) if options["wait"] else []

    if late := asyncio.run(run()):
        raise click.ClickException(f"not ready within {options['timeout']} s: {'; '.join(late)}")


async def settled(hub: "Client", stored: "list[Object]", seconds: int) -> list[str]:
    """Wait until custom resources are ready; what those say that are not."""
    from knfleet.overview.saved import ready

    said = await asyncio.gather(*(ready(hub, each, seconds=float(seconds)) for each in stored))
    for each, problem in zip(stored, said, strict=True):
        if not problem:
            click.echo(f"{title(each)} is ready")
    return [f"{title(each)}: {text}" for each, text in zip(stored, said, strict=True) if text]


def title(manifest: "Object") -> str:
    """A custom resource in words."""
    meta = manifest["metadata"]
    return f"{manifest['kind']} {meta['namespace']}/{meta['name']}"
