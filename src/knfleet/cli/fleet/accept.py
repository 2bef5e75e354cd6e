"""`knfleet accept`: accept clusters that asked to join."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.fleet.fleet_options import cluster_options, connection_of, like, on_cluster
from knfleet.cli.output import explained
from knfleet.kube.errors import KubeError, NotFound

if TYPE_CHECKING:
    from knfleet.kube.client.verbs import Client
    from knfleet.workflows.accept_clusters import AcceptedCluster

LOOK_SECONDS = 0.5


@click.command()
@cluster_options
@click.option("--clusters", "names", default="", help="Names of clusters, as c1,c2.")
@click.option("--cluster", "old", default="", hidden=True, help="Deprecated form of --clusters.")
@click.option(
    "--wait", is_flag=True, help="Wait for the requests, and until all clusters are available."
)
@click.option("--requesters", default="", help="Further users whose requests are approved.")
@click.option("--agent", default="", help="Name of the agent to accept, when several ask.")
@click.option("--key", default="", help="Fingerprint of the key to accept, when several ask.")
@click.option(
    "--skip-approve-check", "unchecked", is_flag=True, help="Approve requests of any user."
)
@click.option("--dry-run", is_flag=True, help="Print what would be done.")
@click.option(
    "--allow-reregistration",
    "again",
    is_flag=True,
    help="Accept a new agent of a registered cluster.",
)
@explained(KubeError)
def command(context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Accept clusters that asked to join.

    \b
    knfleet accept --clusters cluster1,cluster2
    """
    from knfleet.workflows.accept_clusters import NotAcceptable
    from knfleet.workflows.object_lists import WaitTimeout

    names = [name for name in f"{options['names']},{options['old']}".split(",") if name]
    if not names:
        raise click.UsageError("--clusters is missing; name the clusters, as c1,c2")

    async def work(client: "Client") -> None:
        for name in names:
            accepted = await accept_cluster(client, name, options)
            if options["dry_run"]:
                announce(name, accepted)
            else:
                print_result(name, accepted)
        if options["wait"] and not options["dry_run"]:
            from knfleet.workflows.registration_wait import joined

            for name in names:
                await joined(client, name, seconds=float(options["timeout"]))
                click.echo(f"{name} is available")

    try:
        on_cluster(connection_of(kubeconfig, context), work)
    except (NotAcceptable, WaitTimeout) as error:
        raise click.ClickException(str(error)) from error


async def accept_cluster(client: "Client", name: str, options: dict[str, Any]) -> "AcceptedCluster":
    """Accept one cluster; with --wait, as soon as it has asked."""
    from knfleet.api.cluster.managedcluster import CLUSTERS
    from knfleet.workflows.accept_clusters import (
        AcceptOptions,
        NotAcceptable,
        accept,
        pending_requests,
    )

    users: str = options["requesters"]
    requesters = [user for user in users.split(",") if user]
    if options["unchecked"]:
        requesters += [each.request.user for each in await pending_requests(client, name)]
    wish = AcceptOptions(
        requesters=tuple(requesters),
        agent=options["agent"],
        key=options["key"],
        again=options["again"],
        patience=float(options["timeout"]) if options["wait"] else 5.0,
        dry_run=options["dry_run"],
    )
    ends = time.monotonic() + options["timeout"]
    while True:
        try:
            return await accept(client, name, wish)
        except NotAcceptable as error:
            if not options["wait"] or time.monotonic() > ends:
                if isinstance(error.__cause__, NotFound):
                    hint = await like(client, CLUSTERS, name)
                    raise NotAcceptable(f"{error}; {hint}") from error
                raise
        await asyncio.sleep(LOOK_SECONDS)


def announce(name: str, accepted: "AcceptedCluster") -> None:
    """Say what would be done."""
    for request in accepted.requests:
        click.echo(f"CSR {request.name} would be approved")
        click.echo(f"  agent {request.request.agent}, key {request.fingerprint}")
    if accepted.is_new:
        click.echo(f"hubAcceptsClient would be set to true for managed cluster {name}")


def print_result(name: str, accepted: "AcceptedCluster") -> None:
    """Say what was done."""
    for request in accepted.requests:
        click.echo(f"CSR {request.name} approved")
        click.echo(f"  agent {request.request.agent}, key {request.fingerprint}")
    if accepted.is_new:
        click.echo(f"set hubAcceptsClient to true for managed cluster {name}")
    elif not accepted.requests:
        click.echo(f"{name} was accepted before, and has no request that waits")
        return
    click.echo(f"\n Your managed cluster {name} has joined the Hub successfully.")
