"""`knfleet move`: an installation goes to another cluster, and the old one is removed after it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.completion_names import names_of_installs
from knfleet.cli.fleet.fleet_options import cluster_options, connection_of, on_cluster
from knfleet.cli.output import explained
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.kube.client.verbs import Client


@click.command()
@cluster_options
@click.option("--to", default="", metavar="PROFILE", help="ClusterProfile of the new cluster.")
@click.option(
    "--name",
    "new_name",
    default="",
    metavar="NAME",
    help="Name of the new custom resource; made from the old name and the cluster by default.",
)
@click.option(
    "--abort", is_flag=True, help="Remove the installation on the new cluster; the old one stays."
)
@click.option("--dry-run", is_flag=True, help="Only print the steps.")
@click.argument("name", shell_complete=names_of_installs)
@explained(KubeError)
def command(name: str, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Move an installation to another cluster.

    A custom resource for the new cluster is created with the same spec. When it is Ready, the old
    one is deleted, and its cluster is cleaned. A move that was interrupted goes on when the command
    is typed again; until the old one is deleted, --abort takes it back.

    Custom resources of a KnativeFleet are not moved: change the clusters of the fleet.

    \b
    knfleet move knative-serving/edge-1 --to edge-2
    knfleet move knative-serving/edge-1 --abort
    """
    from knfleet.view.fleet_reader import read_objects
    from knfleet.view.name_lookup import NotNamed
    from knfleet.view.operations.installation_move import (
        MoveIncomplete,
        MoveRefused,
        abort_move,
        move_installation,
        planned,
    )

    to, new_name = options["to"], options["new_name"]
    abort, seconds = options["abort"], options["timeout"]
    if abort == bool(to):
        raise click.UsageError("name the new cluster with --to, or take a move back with --abort")
    if abort and (options["dry_run"] or new_name):
        raise click.UsageError("--abort takes neither --dry-run nor --name")

    async def work(client: "Client") -> None:
        if abort:
            await abort_move(client, name, seconds=seconds, report=click.echo)
        elif options["dry_run"]:
            move = planned(await read_objects(client), name, to, new_name)
            click.echo("\n".join(move.steps()))
        else:
            await move_installation(
                client, name, to, new_name=new_name, seconds=seconds, report=click.echo
            )

    try:
        on_cluster(connection_of(kubeconfig, context), work)
    except (MoveIncomplete, MoveRefused, NotNamed) as error:
        raise click.ClickException(str(error)) from error
