"""`knfleet create work`: send objects to clusters."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.fleet.fleet_options import (
    cluster_options,
    connection_of,
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
    from knfleet.api.meta import Key
    from knfleet.kube.client.verbs import Client
    from knfleet.workflows.work.replica_delivery import Replicated
    from knfleet.workflows.work.work_delivery import Delivered


@click.command("work")
@cluster_options
@file_options
@clusters_option(required=False)
@click.option("--placement", metavar="NAMESPACE/NAME", help="Clusters that a placement selects.")
@click.option(
    "--replicaset",
    is_flag=True,
    help="With --placement: a ManifestWorkReplicaSet, which follows the placement.",
)
@click.option("--overwrite", is_flag=True, help="Change works that are there already.")
@click.option("--dry-run", is_flag=True, help="Only ask the hub whether it would take them.")
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
    knfleet create work web -f web.yaml --placement apps/web --replicaset
    """
    from knfleet.workflows.work.replica_delivery import replicate, selected_clusters
    from knfleet.workflows.work.work_delivery import DeliveryWish, WorkError, deliver
    from knfleet.workflows.work.work_files import WorkFileError

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
    suffix = " (dry run)" if wish.dry_run else ""
    placement = placement_in(options)

    async def replicated(client: "Client", chosen: "Key") -> "Replicated":
        return await replicate(client, wish, chosen)

    async def work(client: "Client") -> "tuple[dict[str, list[Delivered]], list[str]]":
        clusters = names_in(options["clusters"])
        if placement is not None:
            clusters = await selected_clusters(client, placement)
        return await for_each(clusters, lambda cluster: deliver(client, wish, cluster))

    connection = connection_of(kubeconfig, context)
    try:
        if placement is not None and options["replicaset"]:
            made = on_cluster(connection, lambda client: replicated(client, placement))
            click.echo(f"{made}{suffix}")
            return
        done, problems = on_cluster(connection, work)
    except (WorkFileError, WorkError) as error:
        raise click.ClickException(str(error)) from error
    for delivered in done.values():
        for each in delivered:
            click.echo(f"{each}{suffix}")
    failed(problems)


def placement_in(options: dict[str, Any]) -> "Key | None":
    """The placement that the flags name; they name either clusters or a placement."""
    from knfleet.api.meta import Key

    text = options["placement"]
    if bool(text) == bool(options["clusters"]):
        raise click.UsageError("give either --clusters or --placement NAMESPACE/NAME")
    if not text:
        if options["replicaset"]:
            raise click.UsageError("--replicaset needs --placement NAMESPACE/NAME")
        return None
    namespace, _, name = text.rpartition("/")
    if not namespace or not name:
        raise click.UsageError(f"--placement {text}: write it as NAMESPACE/NAME")
    return Key(namespace, name)
