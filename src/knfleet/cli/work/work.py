"""`knfleet work`: what became of works, and what a change of one would do."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.fleet.fleet_options import (
    cluster_options,
    connection_of,
    on_cluster,
    print_json,
    print_yaml,
)
from knfleet.cli.knative.status import provider_option
from knfleet.cli.output import explained
from knfleet.cli.work.work_options import clusters_option, file_options, manifests_from, names_in
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.api.meta import Object
    from knfleet.kube.client.verbs import Client
    from knfleet.view.work.work_plan import WorkPlans


@click.group()
def command() -> None:
    """Show what became of works, and what a change of one would do."""


output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    help="How to print.",
)


@command.command("status")
@cluster_options
@clusters_option(required=False)
@output_option
@click.argument("name")
@explained(KubeError)
def status(name: str, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Show a work with the state of each manifest; those that fail are opened.

    Without --cluster, in all clusters that have a work of that name.

    \b
    knfleet work status web --cluster cluster1
    """
    from knfleet.view.work.work_lookup import works_named
    from knfleet.view.work.work_rows import work_order, work_row

    clusters = names_in(options["clusters"])

    async def work(client: "Client") -> "list[Object]":
        return await works_named(client, [name], clusters)

    rows = sorted(
        map(work_row, on_cluster(connection_of(kubeconfig, context), work)), key=work_order
    )
    if options["output"] != "text":
        (print_json if options["output"] == "json" else print_yaml)(rows)
        return
    from knfleet.cli.work.work_text import work_text

    click.echo("\n\n".join(map(work_text, rows)))


@command.command("plan")
@cluster_options
@provider_option
@file_options
@clusters_option(required=True)
@output_option
@click.argument("name")
@explained(KubeError)
def plan(name: str, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Show what `knfleet create work --overwrite` would change, object by object.

    Objects are compared with the work on the hub. A cluster that is reached by its ClusterProfile
    is asked itself what it would make of them (server-side apply as a dry run); nothing is
    written. Exit code 0 when nothing would change, 2 when something would, 1 when something is
    in the way.

    \b
    knfleet work plan web -f web.yaml --clusters cluster1
    """
    from knfleet.kube.client.verbs import Client
    from knfleet.view.target_access import providers_for
    from knfleet.view.work.work_plan import WorkPlans, work_plan
    from knfleet.workflows.work.work_files import WorkFileError

    providers = providers_for(options["provider_file"], kubeconfig, context)
    connection = connection_of(kubeconfig, context)

    async def run() -> "WorkPlans":
        manifests = [each.manifest for each in manifests_from(options)]
        async with Client(connection) as hub:
            plans = await asyncio.gather(
                *(
                    work_plan(hub, name, manifests, cluster, providers)
                    for cluster in names_in(options["clusters"])
                )
            )
        return WorkPlans(tuple(plans))

    try:
        plans = asyncio.run(run())
    except WorkFileError as error:
        raise click.ClickException(str(error)) from error
    if options["output"] == "text":
        from knfleet.cli.work.work_text import plans_text

        click.echo(plans_text(plans))
    else:
        (print_json if options["output"] == "json" else print_yaml)(plans)
    raise SystemExit(plans.exit_code)
