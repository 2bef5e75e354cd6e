"""`knfleet detach`: take clusters out of a hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.completion_names import names_of_clusters
from knfleet.cli.fleet.fleet_options import (
    cluster_options,
    connection_of,
    known,
    on_cluster,
    print_progress,
)
from knfleet.cli.output import explained
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.kube.client.verbs import Client

CLEANED_UP = "its agent deletes first what they applied."
GIVEN_UP = "they are given up, and what they applied stays on the cluster."


@click.command()
@cluster_options
@click.option(
    "--force", is_flag=True, help="The cluster no longer exists: leave its objects there."
)
@click.argument(
    "names", nargs=-1, required=True, metavar="CLUSTER...", shell_complete=names_of_clusters
)
@explained(KubeError)
def command(
    names: tuple[str, ...], context: str | None, kubeconfig: Path | None, **options: Any
) -> None:
    """Detach clusters from their hub.

    Deletes their ManagedClusters, and waits until their agents have cleaned up. With --force,
    for clusters that no longer exist, it does not wait; Events name what is orphaned.
    """
    from knfleet.api.cluster.managedcluster import CLUSTERS
    from knfleet.workflows.detach import StillAttached, detach, few, works_on
    from knfleet.workflows.object_lists import WaitTimeout

    async def work(client: "Client") -> None:
        for name in names:
            await known(client, CLUSTERS, name)
        for name in names:
            print_progress(f"Detaching {name} ...")
            if works := [each.name for each in await works_on(client, name)]:
                fate = GIVEN_UP if options["force"] else CLEANED_UP
                print_progress(f"{len(works)} works of {name} ({few(works)}): {fate}")
            seconds = float(options["timeout"])
            await detach(client, name, force=options["force"], seconds=seconds)
            click.echo(f"{name} is detached")

    try:
        on_cluster(connection_of(kubeconfig, context), work)
    except (StillAttached, WaitTimeout) as error:
        raise click.ClickException(str(error)) from error
