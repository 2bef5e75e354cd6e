"""`knfleet delete work`: take objects off clusters again."""

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
from knfleet.cli.work.work_options import clusters_option, failed, for_each, names_in
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.kube.client.verbs import Client


@click.command("work")
@cluster_options
@clusters_option(required=True)
@click.option("--force", is_flag=True, help="Wait for no agent: what it applied stays there.")
@click.argument("name")
@explained(KubeError)
def command(name: str, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Delete a work, and with it what its agent applied.

    Waits until it is gone. All parts of a work that was split go, the last first.

    \b
    knfleet delete work web --cluster cluster1
    """
    from knfleet.workflows.work.work_delivery import delete

    clusters = names_in(options["clusters"])
    force, seconds = options["force"], float(options["timeout"])

    async def work(client: "Client") -> tuple[dict[str, list[str]], list[str]]:
        return await for_each(
            clusters,
            lambda cluster: delete(client, name, cluster, force=force, seconds=seconds),
        )

    done, problems = on_cluster(connection_of(kubeconfig, context), work)
    for cluster, names in done.items():
        for each in names:
            click.echo(f"work {each} in cluster {cluster} is deleted")
            if force:
                print_progress(
                    f"note: what {each} applied to {cluster} stays there, unless its agent runs"
                )
        if not names:
            click.echo(f"work {name} in cluster {cluster} not found or is already deleted")
    failed(problems)
