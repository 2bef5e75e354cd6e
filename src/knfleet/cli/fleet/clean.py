"""`knfleet clean`: take a hub off its cluster."""

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
@click.option("--name", default="cluster-manager", hidden=True, expose_value=False)
@click.option("--purge-operator", type=bool, default=True, help="false: keep the CRDs.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed.")
@click.option("--output-file", hidden=True, expose_value=False)
@explained(KubeError)
def command(context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Remove a hub from its cluster.

    All clusters must be detached before.
    """
    from knfleet.api.cluster.tunnel import BY_LOAD_BALANCER
    from knfleet.cli.fleet.init import objects_of
    from knfleet.install.deployments import HubInstall
    from knfleet.workflows.detach import DetachOptions, StillAttached, clean
    from knfleet.workflows.object_lists import WaitTimeout

    leave = DetachOptions(dry_run=options["dry_run"], seconds=float(options["timeout"]))
    connection = connection_of(kubeconfig, context)
    everything = HubInstall(image="", check_profile_use=True, tunnel_endpoint=BY_LOAD_BALANCER)
    objects = [
        each
        for each in objects_of(everything, connection)
        if options["purge_operator"] or each["kind"] != "CustomResourceDefinition"
    ]

    async def work(client: "Client") -> list[str]:
        print_progress(f"Removing the hub from {client.cluster} ...")
        return await clean(client, objects, leave)

    try:
        removed = on_cluster(connection, work)
    except (StillAttached, WaitTimeout) as error:
        raise click.ClickException(str(error)) from error
    if leave.dry_run:
        click.echo("\n".join(removed))
        return
    for each in removed:
        if each.startswith("ManifestWork "):
            print_progress(f"{each} was given up; what it applied stays on its cluster.")
    click.echo(f"The hub has been removed: {len(removed)} objects.")
