"""`knfleet get`: tokens and clusters."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.completion_names import names_of_clusters
from knfleet.cli.fleet.fleet_options import cluster_options, connection_of, on_cluster, print_json
from knfleet.cli.output import explained, table
from knfleet.cli.placement import get as placements
from knfleet.cli.work import get as works
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.api.cluster.managedcluster import ManagedCluster
    from knfleet.kube.client.verbs import Client
    from knfleet.workflows.join_token import JoinToken

HEADINGS = ("NAME", "HUB ACCEPTED", "MANAGED CLUSTER URLS", "JOINED", "AVAILABLE", "AGE")


@click.group()
def command() -> None:
    """Print tokens, and the clusters, works and placements of a hub."""


command.add_command(works.command)
command.add_command(placements.command)


@command.command("token")
@cluster_options
@click.option(
    "--use-bootstrap-token",
    "by_token",
    is_flag=True,
    help="Create a bootstrap token instead of a ServiceAccount token.",
)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Output format."
)
@click.option("--output-file", type=click.Path(path_type=Path), hidden=True, expose_value=False)
@explained(KubeError)
def token(context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Print the join command for this hub, with a new token."""
    from knfleet.workflows.join_token import HubNotInstalled, invite

    connection = connection_of(kubeconfig, context)

    async def work(client: "Client") -> "JoinToken":
        return await invite(client, connection.endpoint, by_bootstrap_token=options["by_token"])

    try:
        invitation = on_cluster(connection, work)
    except HubNotInstalled as error:
        raise click.ClickException(str(error)) from error
    if options["output"] == "json":
        print_json(invitation.fields())
        return
    click.echo(f"token={invitation.token}")
    click.echo("please log on spoke and run:")
    click.echo(invitation.command())


@command.command("clusters")
@cluster_options
@click.option("--clusterset", default="", help="Only clusters of this set.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "tree", "json"]),
    default="table",
    help="Output format.",
)
@click.argument("names", nargs=-1, shell_complete=names_of_clusters)
@explained(KubeError)
def clusters(
    names: tuple[str, ...], context: str | None, kubeconfig: Path | None, **options: Any
) -> None:
    """Print the clusters of a hub."""
    from knfleet.api.cluster.managedcluster import CLUSTERS, SET_LABEL, ManagedCluster
    from knfleet.api.schema import decode

    labels = f"{SET_LABEL}={options['clusterset']}" if options["clusterset"] else ""

    async def work(client: "Client") -> list[dict[str, Any]]:
        return (await client.list(CLUSTERS, labels=labels)).items

    found = on_cluster(connection_of(kubeconfig, context), work)
    there = [each["metadata"]["name"] for each in found]
    for name in names:
        if name not in there:
            from knfleet.view.suggestions import meant

            raise click.ClickException(
                f"ManagedCluster {name} does not exist; {meant(name, there)}"
            )
    chosen = [each for each in found if not names or each["metadata"]["name"] in names]
    if options["output"] == "json":
        print_json({"apiVersion": "v1", "kind": "List", "items": chosen})
        return
    decoded = [decode(each, ManagedCluster) for each in chosen]
    if not decoded:
        click.echo("No clusters; join one by the command that `knfleet get token` prints.")
    elif options["output"] == "tree":
        click.echo("\n".join(line for each in decoded for line in branch(each)))
    else:
        now = datetime.now(UTC)
        click.echo(table(HEADINGS, [row(each, now) for each in decoded]))


def row(cluster: "ManagedCluster", now: datetime) -> list[str]:
    """A line about a cluster, as kubectl prints it."""
    from knfleet.api.cluster.managedcluster import AVAILABLE, JOINED
    from knfleet.api.conditions import find

    found = [find(cluster.status.conditions, type_) for type_ in (JOINED, AVAILABLE)]
    return [
        cluster.name,
        str(cluster.spec.hub_accepts_client).lower(),
        ",".join(each.url for each in cluster.spec.managed_cluster_client_configs),
        *("" if each is None else each.status for each in found),
        age(cluster.metadata.creation_timestamp, now),
    ]


def branch(cluster: "ManagedCluster") -> list[str]:
    """The lines about a cluster in a tree."""
    from knfleet.api.cluster.managedcluster import SET_LABEL

    cpu, memory = (cluster.status.capacity.get(name, "") for name in ("cpu", "memory"))
    version = cluster.status.version.kubernetes
    lines = [
        f"  set: {cluster.metadata.labels.get(SET_LABEL, '')}",
        f"  accepted: {str(cluster.spec.hub_accepts_client).lower()}",
        f"  version: {version}",
        f"  capacity: cpu {cpu}, memory {memory}",
        *(f"  {each.type}: {each.status} {each.message}" for each in cluster.status.conditions),
    ]
    return [cluster.name, *lines]


def age(created: str, now: datetime) -> str:
    """How long ago something was made, as kubectl writes it."""
    if not created:
        return ""
    seconds = int((now - datetime.fromisoformat(created)).total_seconds())
    for unit, size, limit in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172800)):
        if seconds < limit:
            return f"{max(seconds, 0) // size}{unit}"
    return f"{seconds // 86400}d"
