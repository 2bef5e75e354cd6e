"""`knfleet unjoin`: take the agent off a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.fleet.fleet_options import (
    cluster_options,
    connection_of,
    on_cluster,
    print_progress,
)
from knfleet.cli.output import explained
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.kube.client.verbs import Client


@click.command()
@cluster_options
@click.option("--cluster-name", "cluster", required=True, help="Name of the cluster on the hub.")
@click.option("--purge-operator", type=bool, default=True, help="false: keep the CRDs.")
@click.option("--force", is_flag=True, help="Do not clean a hosted cluster that cannot be reached.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed.")
@click.option("--output-file", hidden=True, expose_value=False)
@explained(KubeError)
def command(context: str | None, kubeconfig: Path | None, cluster: str, **options: Any) -> None:
    """Remove the agent and its objects from a cluster."""
    from knfleet.workflows.detach import DetachOptions, StillAttached, unjoin
    from knfleet.workflows.object_lists import WaitTimeout

    leave = DetachOptions(
        purge=options["purge_operator"],
        force=options["force"],
        dry_run=options["dry_run"],
        seconds=float(options["timeout"]),
    )

    async def work(client: "Client") -> list[str]:
        print_progress(f"Removing the agent of {cluster} ...")
        return await unjoin(client, cluster, leave)

    try:
        removed = on_cluster(connection_of(kubeconfig, context), work)
    except (StillAttached, WaitTimeout) as error:
        raise click.ClickException(str(error)) from error
    if leave.dry_run:
        click.echo("\n".join(removed))
        return
    print_progress(f"Removed {len(removed)} objects.")
    click.echo(f"{cluster} has left. Now on the hub: kubectl delete managedcluster {cluster}")
