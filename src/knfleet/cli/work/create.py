"""`knfleet create work`: send objects to clusters."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.fleet.fleet_options import (
    cluster_options,
    connection_of,
    later_options,
    on_cluster,
)
from knfleet.cli.output import explained
from knfleet.cli.work.work_options import (
    clusters_option,
    failed,
    file_options,
    for_each,
    manifests_from,
    names_in,
)
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.kube.client.verbs import Client
    from knfleet.workflows.work_delivery import Delivered


@click.command("work")
@cluster_options
@file_options
@clusters_option(required=True)
@click.option("--overwrite", is_flag=True, help="Change works that are there already.")
@click.option("--dry-run", is_flag=True, help="Only ask the hub whether it would take them.")
@later_options("placement", "replicaset")
@click.argument("name")
@explained(KubeError)
def command(name: str, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Send objects to clusters, as a ManifestWork in the namespace of each.

    Files may hold several objects, and Lists. More than a ManifestWork takes (500 KiB) are split
    into NAME, NAME-2, …, CRDs and Namespaces first. With --overwrite, objects that the files no
    longer have are deleted from the clusters; `knfleet work plan` shows that before.

    \b
    knfleet create work web -f web.yaml --clusters cluster1,cluster2
    knfleet create work web -f folder/ --clusters cluster1 --overwrite
    """
    from knfleet.workflows.work_delivery import DeliveryWish, deliver
    from knfleet.workflows.work_files import WorkFileError

    try:
        found = manifests_from(options)
    except WorkFileError as error:
        raise click.ClickException(str(error)) from error
    wish = DeliveryWish(
        name,
        [each.manifest for each in found],
        overwrite=options["overwrite"],
        dry_run=options["dry_run"],
    )
    clusters = names_in(options["clusters"])

    async def work(client: "Client") -> "tuple[dict[str, list[Delivered]], list[str]]":
        return await for_each(clusters, lambda cluster: deliver(client, wish, cluster))

    try:
        done, problems = on_cluster(connection_of(kubeconfig, context), work)
    except WorkFileError as error:
        raise click.ClickException(str(error)) from error
    suffix = " (dry run)" if wish.dry_run else ""
    for delivered in done.values():
        for each in delivered:
            click.echo(f"{each}{suffix}")
    failed(problems)
