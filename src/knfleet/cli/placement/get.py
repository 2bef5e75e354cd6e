"""`knfleet get placements`: which placements there are, and what they selected."""

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
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.api.meta import Object
    from knfleet.kube.client.verbs import Client


@click.command("placements")
@cluster_options
@click.option("--namespace", "-n", default="", help="Namespace; all by default.")
@list_output_option
@click.argument("names", nargs=-1)
@explained(KubeError)
def command(
    names: tuple[str, ...], context: str | None, kubeconfig: Path | None, **options: Any
) -> None:
    """Print placements, and how many clusters each of them selected.

    \b
    knfleet get placements
    knfleet get placements web -n apps -o tree
    """
    from knfleet.api.cluster.placement import DECISIONS, PLACEMENTS
    from knfleet.view.placement.placement_rows import placement_row
    from knfleet.view.suggestions import meant

    namespace = options["namespace"]

    async def work(client: "Client") -> "tuple[list[Object], list[Object]]":
        placements = (await client.list(PLACEMENTS, namespace)).items
        return placements, (await client.list(DECISIONS, namespace)).items

    placements, decisions = on_cluster(connection_of(kubeconfig, context), work)
    there = [each["metadata"]["name"] for each in placements]
    for name in names:
        if name not in there:
            raise click.ClickException(f"Placement {name} does not exist; {meant(name, there)}")
    chosen = [each for each in placements if not names or each["metadata"]["name"] in names]
    if options["output"] in ("json", "yaml"):
        listing = {"apiVersion": "v1", "kind": "List", "items": chosen}
        (print_json if options["output"] == "json" else print_yaml)(listing)
        return
    from knfleet.cli.placement.placement_text import placements_table, placements_tree

    rows = [placement_row(each, decisions) for each in chosen]
    if not rows:
        click.echo("No placements; make one with: knfleet create placement NAME")
    elif options["output"] == "tree":
        click.echo(placements_tree(rows))
    else:
        click.echo(placements_table(rows, datetime.now(UTC)))
