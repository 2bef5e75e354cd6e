"""`knfleet proxy`: clusters through the tunnel, with the verbs of clusteradm."""

import os
import shlex
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.completion_names import names_of_clusters
from knfleet.cli.fleet.fleet_options import cluster_options, connection_of, on_cluster, print_json
from knfleet.cli.output import explained, table
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.kube.client.verbs import Client
    from knfleet.workflows.cluster_reach import ClusterReach

HEADINGS = ("CLUSTER", "REACHED", "TUNNEL", "SINCE", "ROUND TRIP")


@click.group()
def command() -> None:
    """Show how clusters are reached, and run kubectl on them."""


@command.command("health")
@cluster_options
@click.option("-n", "--namespace", default="", help="Of ClusterProfiles; the hub's when empty.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print."
)
@click.argument("names", nargs=-1, shell_complete=names_of_clusters)
@explained(KubeError)
def health(
    names: tuple[str, ...], context: str | None, kubeconfig: Path | None, **options: Any
) -> None:
    """Show how clusters are reached, since when, and how far they are.

    Ends with 1 when one cannot be reached.
    """
    from knfleet.api.operator import OPERATOR_NAMESPACE

    namespace = options["namespace"] or OPERATOR_NAMESPACE

    async def work(client: "Client") -> "list[ClusterReach]":
        return await read(client, namespace)

    found = on_cluster(connection_of(kubeconfig, context), work)
    chosen = [each for each in found if not names or each.cluster in names]
    missing = sorted(set(names) - {each.cluster for each in found})
    if missing:
        raise click.ClickException(f"no accepted ManagedCluster {', '.join(missing)}")
    if options["output"] == "json":
        import msgspec

        print_json(msgspec.to_builtins(chosen))
    else:
        now = datetime.now(UTC)
        click.echo(table(HEADINGS, [row(each, now) for each in chosen]))
    problems = [f"{each.cluster}: {each.problem}" for each in chosen if each.problem]
    if problems:
        raise click.ClickException("; ".join(problems))


async def read(client: "Client", namespace: str) -> "list[ClusterReach]":
    """How all clusters of a hub are reached."""
    import asyncio

    from knfleet.api.cluster.managedcluster import CLUSTERS, ManagedCluster
    from knfleet.api.cluster.tunnel import TUNNEL_LEASE
    from knfleet.api.core import LEASES
    from knfleet.api.inventory import PROFILES
    from knfleet.api.schema import decode
    from knfleet.workflows.cluster_reach import reaches

    clusters, profiles, leases = await asyncio.gather(
        client.list(CLUSTERS),
        client.list(PROFILES, namespace),
        client.list(LEASES, fields=f"metadata.name={TUNNEL_LEASE}"),
    )
    return reaches(
        [decode(each, ManagedCluster) for each in clusters.items], profiles.items, leases.items
    )


def row(reached: "ClusterReach", now: datetime) -> tuple[str, ...]:
    """A line of the table."""
    from knfleet.api.knative.conditions import timestamp
    from knfleet.cli.fleet.get import age

    since = "-" if reached.since is None else age(timestamp(reached.since), now)
    trip = reached.round_trip_milliseconds
    return (
        reached.cluster,
        reached.way,
        "open" if reached.is_open else "closed",
        since,
        "-" if trip is None else f"{trip} ms",
    )


@command.command("kubectl", context_settings={"ignore_unknown_options": True})
@cluster_options
@click.option("--cluster", required=True, shell_complete=names_of_clusters, help="Its name.")
@click.option("--sa", hidden=True, expose_value=False)
@click.option("--args", "words", default="", help="Arguments of kubectl in one, as clusteradm.")
@click.option("-n", "--profile-namespace", "namespace", default="", help="Of the ClusterProfile.")
@click.option(
    "--tunnel-front", "front", default="", metavar="URL", help="The tunnel's front from here."
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@explained(KubeError)
def kubectl(
    cluster: str,
    arguments: tuple[str, ...],
    context: str | None,
    kubeconfig: Path | None,
    **options: Any,
) -> None:
    """Run kubectl on a cluster of the fleet.

    \b
    knfleet proxy kubectl --cluster cluster1 -- get pods --all-namespaces
    """
    from knfleet.cli.tunnel.kubeconfig import kubeconfig_text

    program = shutil.which("kubectl")
    if program is None:
        raise click.ClickException("there is no kubectl on the PATH")
    text = kubeconfig_text(cluster, context, kubeconfig, options)
    # Only this process and its child can open it: the proxy's URL has a routing key.
    descriptor = os.memfd_create("kubeconfig", 0)
    os.write(descriptor, text.encode())
    ended = subprocess.run(
        [
            program,
            f"--kubeconfig=/proc/self/fd/{descriptor}",
            *shlex.split(options["words"]),
            *arguments,
        ],
        pass_fds=[descriptor],
        check=False,
    )
    raise SystemExit(ended.returncode)
