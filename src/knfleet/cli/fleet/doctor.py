"""`knfleet doctor`: what is wrong with a cluster, and what to do about it."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.completion_names import names_of_clusters
from knfleet.cli.fleet.fleet_options import cluster_options, connection_of, like, print_json
from knfleet.cli.output import explained
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.kube.endpoint import Connection
    from knfleet.workflows.diagnosis import DiagnosisInput


@click.command()
@cluster_options
@click.option("--spoke-context", help="Context of the cluster itself, to check it too.")
@click.option(
    "--spoke-kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig of the cluster itself."
)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Output format."
)
@click.argument("cluster", shell_complete=names_of_clusters)
@explained(KubeError)
def command(cluster: str, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Diagnose a cluster: print problems, and how to fix them.

    Checks its conditions, its Lease, its requests and its token on the hub, and with
    --spoke-context also the Klusterlet, the agent and its log. Exit code 1 when a check fails.
    """
    import msgspec

    from knfleet.workflows.diagnosis import diagnose

    hub = connection_of(kubeconfig, context)
    spoke = None
    if options["spoke_context"] or options["spoke_kubeconfig"]:
        spoke = connection_of(options["spoke_kubeconfig"] or kubeconfig, options["spoke_context"])
    seen, hint = asyncio.run(examine(hub, spoke, cluster))
    findings = diagnose(seen, datetime.now(UTC))
    if options["output"] == "json":
        print_json(msgspec.to_builtins(findings))
    else:
        click.echo("\n".join(each.line() for each in findings))
        if hint:
            click.echo(f"     → {hint}")
    if any(each.grade == "bad" for each in findings):
        raise SystemExit(1)


async def examine(
    hub: "Connection", spoke: "Connection | None", cluster: str
) -> "tuple[DiagnosisInput, str]":
    """Look at a cluster from both sides; of one that there is not, which may have been meant."""
    from knfleet.api.cluster.managedcluster import CLUSTERS
    from knfleet.kube.client.verbs import Client
    from knfleet.workflows.doctor import observe_hub, observe_spoke

    async with Client(hub) as client:
        seen = await observe_hub(client, cluster)
        hint = "" if seen.cluster is not None else await like(client, CLUSTERS, cluster)
    if spoke is None:
        return seen, hint
    async with Client(spoke) as client:
        return await observe_spoke(client, seen), hint
