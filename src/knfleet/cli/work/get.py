"""`knfleet get works`: which works there are."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.fleet.fleet_options import (
    cluster_options,
    connection_of,
    list_output_option,
    on_cluster,
    print_json,
    print_yaml,
)
from knfleet.cli.output import explained
from knfleet.cli.work.work_options import clusters_option, names_in
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.api.meta import Object
    from knfleet.kube.client.verbs import Client


@click.command("works")
@cluster_options
@clusters_option(required=False)
@list_output_option
@click.argument("names", nargs=-1)
@explained(KubeError)
def command(
    names: tuple[str, ...], context: str | None, kubeconfig: Path | None, **options: Any
) -> None:
    """Print the works of a cluster, or of all clusters.

    \b
    knfleet get works --cluster cluster1
    knfleet get works web -o tree
    """
    from knfleet.view.work.work_lookup import works_named
    from knfleet.view.work.work_rows import work_row

    clusters = names_in(options["clusters"])

    async def work(client: "Client") -> "list[Object]":
        return await works_named(client, names, clusters)

    found = on_cluster(connection_of(kubeconfig, context), work)
    if options["output"] in ("json", "yaml"):
        listing = {"apiVersion": "v1", "kind": "List", "items": found}
        (print_json if options["output"] == "json" else print_yaml)(listing)
        return
    from knfleet.cli.work.work_text import works_table, works_tree

    rows = [work_row(each) for each in found]
    if not rows:
        where = f" in {', '.join(clusters)}" if clusters else ""
        click.echo(f"No works{where}; make one with: knfleet create work NAME -f FILE --clusters …")
    elif options["output"] == "tree":
        click.echo(works_tree(rows))
    else:
        click.echo(works_table(rows, datetime.now(UTC)))
