"""`knfleet kubeconfig`: a kubeconfig for a cluster of the fleet."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.completion_names import names_of_clusters
from knfleet.cli.fleet.fleet_options import cluster_options, connection_of, on_cluster
from knfleet.cli.output import explained
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.kube.client.verbs import Client


@click.command()
@cluster_options
@click.option("-n", "--namespace", default="", help="Of the ClusterProfile; the hub's when empty.")
@click.option(
    "--tunnel-front", "front", default="", metavar="URL", help="The tunnel's front from here."
)
@click.argument("cluster", shell_complete=names_of_clusters)
@explained(KubeError)
def command(cluster: str, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Print a kubeconfig for a cluster of the fleet.

    It leads to the cluster as its ClusterProfile does, through the tunnel if need be, and has the
    token read from the hub whenever it is used.

    \b
    knfleet kubeconfig cluster1 > cluster1.kubeconfig
    """
    text = kubeconfig_text(cluster, context, kubeconfig, options)
    click.echo(text, nl=False)


def kubeconfig_text(
    cluster: str, context: str | None, kubeconfig: Path | None, options: dict[str, Any]
) -> str:
    """A kubeconfig for a cluster, as the flags say."""
    from knfleet.api.inventory import PROFILES
    from knfleet.api.operator import OPERATOR_NAMESPACE
    from knfleet.kube.errors import NotFound
    from knfleet.plugins.hub_api import CONTEXT_VARIABLE
    from knfleet.plugins.permission import VARIABLE as NAMESPACES_VARIABLE
    from knfleet.workflows.cluster_reach import NoAccess, cluster_kubeconfig

    namespace = options["namespace"] or OPERATOR_NAMESPACE

    async def work(client: "Client") -> dict[str, Any]:
        return await client.get(PROFILES, cluster, namespace)

    try:
        profile = on_cluster(connection_of(kubeconfig, context), work)
        environment = {NAMESPACES_VARIABLE: namespace}
        if context:
            environment[CONTEXT_VARIABLE] = context
        hub = str(kubeconfig.absolute()) if kubeconfig else os.environ.get("KUBECONFIG", "")
        if hub:
            environment["KUBECONFIG"] = hub
        return cluster_kubeconfig(profile, environment, front=options["front"])
    except NotFound as error:
        raise click.ClickException(
            f"there is no ClusterProfile {namespace}/{cluster}; see `knfleet get clusters`"
        ) from error
    except NoAccess as error:
        raise click.ClickException(str(error)) from error
