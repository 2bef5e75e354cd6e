"""`knfleet apply`: carry a plan out, if the world is still the one that it was made for."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.fleet.fleet_options import cluster_options, connection_of
from knfleet.cli.knative.bundle import chosen_folder, directory_option
from knfleet.cli.knative.plan import planner_for
from knfleet.cli.knative.status import provider_option
from knfleet.cli.knative.wait import Waiter
from knfleet.cli.output import progress

if TYPE_CHECKING:
    from knfleet.api.meta import Object
    from knfleet.kube.client.verbs import Client
    from knfleet.view.wait_goals import WaitProgress


@click.command()
@cluster_options
@provider_option
@directory_option
@click.option(
    "--plan",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    help="File written by `knfleet plan --save`.",
)
@click.option("--wait", is_flag=True, help="Wait until the custom resources are ready.")
def command(path: Path, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Apply a plan: write the custom resources that it was made for.

    The plan is computed again; when a custom resource or an object on its target has changed,
    nothing is written. The operator does the rest.

    \b
    knfleet apply --plan plan.json --wait
    """
    from knfleet.view.plan.plan_file import load

    saved = load(path)
    folder = chosen_folder(options["directory"])
    connection = connection_of(kubeconfig, context)

    async def run() -> "WaitProgress | None":
        from knfleet.kube.client.verbs import Client
        from knfleet.kube.client.verbs import ClientOptions as Behaviour
        from knfleet.view.plan.plan_file import checked, write
        from knfleet.view.target_access import providers_for

        providers = providers_for(options["provider_file"], kubeconfig, context)
        async with Client(connection, Behaviour(manager="knfleet-cli")) as hub:
            subjects = await checked(planner_for(hub, folder, providers), saved)
            names: list[str] = []
            for each in subjects:
                names.append(name_of(await write(hub, each)))
                click.echo(f"{names[-1]} written")
            return (
                await wait_until_ready(hub, names, options["timeout"]) if options["wait"] else None
            )

    last = asyncio.run(run())
    for name in last.done if last is not None else ():
        click.echo(f"{name} is ready")
    if last is not None and not last.is_over:
        raise click.ClickException(f"not within {options['timeout']} s: {last}")


async def wait_until_ready(hub: "Client", names: list[str], seconds: float) -> "WaitProgress":
    """Wait until custom resources are ready, and tell how far they are."""
    from knfleet.view.wait_goals import WaitGoal

    with progress() as shown:
        return await Waiter(hub, WaitGoal("ready"), seconds, shown).wait(tuple(names))


def name_of(manifest: "Object") -> str:
    """A custom resource, as other commands take it."""
    meta = manifest["metadata"]
    return f"{manifest['kind']}/{meta['namespace']}/{meta['name']}"
