"""`knfleet unjoin`: take the agent off a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.fleet import cluster_options, connection_of, on_cluster, say
from knfleet.cli.output import explained
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.kube.client import Client


@click.command()
@cluster_options
@click.option("--cluster-name", "cluster", required=True, help="Its name on the hub.")
@click.option("--purge-operator", type=bool, default=True, help="false: leave our CRDs.")
@click.option("--output-file", hidden=True, expose_value=False)
@explained(KubeError)
def command(context: str | None, kubeconfig: Path | None, cluster: str, **options: Any) -> None:
    """Take the agent off a cluster, with all that came with it."""
    from knfleet.fleet.applying import NotInTime
    from knfleet.fleet.detaching import Attached, unjoin

    async def work(client: "Client") -> list[str]:
        say(f"Removing the agent of {cluster} ...")
        seconds = float(options["timeout"])
        return await unjoin(client, cluster, purge=options["purge_operator"], seconds=seconds)

    try:
        removed = on_cluster(connection_of(kubeconfig, context), work)
    except (Attached, NotInTime) as error:
        raise click.ClickException(str(error)) from error
    say(f"Removed {len(removed)} objects.")
    click.echo(f"{cluster} has left. Now on the hub: kubectl delete managedcluster {cluster}")
