"""`knfleet clusterset`: which clusters are in a set, and which namespaces see it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.fleet.fleet_options import cluster_options, connection_of, known, on_cluster
from knfleet.cli.output import explained
from knfleet.kube.errors import KubeError, NotFound

if TYPE_CHECKING:
    from knfleet.kube.client.verbs import Client


@click.group()
def command() -> None:
    """Assign clusters to sets, and bind sets to namespaces."""


@command.command("set")
@cluster_options
@click.option("--clusters", required=True, help="Names of clusters, as c1,c2.")
@click.argument("name")
@explained(KubeError)
def set_(
    name: str, clusters: str, context: str | None, kubeconfig: Path | None, **_options: Any
) -> None:
    """Assign clusters to a set."""
    from knfleet.api.cluster.clusterset import CLUSTER_SETS
    from knfleet.api.cluster.managedcluster import CLUSTERS, SET_LABEL
    from knfleet.api.meta import Key

    async def work(client: "Client") -> None:
        await known(client, CLUSTER_SETS, name)
        label = {"metadata": {"labels": {SET_LABEL: name}}}
        for cluster in filter(None, clusters.split(",")):
            await known(client, CLUSTERS, cluster)
            await client.patch(CLUSTERS, Key("", cluster), label)
            click.echo(f"Cluster {cluster} is set to clusterset {name}")

    on_cluster(connection_of(kubeconfig, context), work)


@command.command("bind")
@cluster_options
@click.option("--namespace", "-n", required=True, help="Namespace to bind the set to.")
@click.argument("name")
@explained(KubeError)
def bind(
    name: str, namespace: str, context: str | None, kubeconfig: Path | None, **_options: Any
) -> None:
    """Bind a set to a namespace: ClusterProfiles of its clusters are published there."""
    from knfleet.api.cluster.clusterset import BINDINGS, CLUSTER_SETS

    async def work(client: "Client") -> None:
        await known(client, CLUSTER_SETS, name)
        manifest = {
            "apiVersion": BINDINGS.api_version,
            "kind": BINDINGS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"clusterSet": name},
        }
        await present(lambda: client.apply(BINDINGS, manifest), f"Namespace {namespace}")
        click.echo(f"Clusterset {name} is bound to namespace {namespace}")

    on_cluster(connection_of(kubeconfig, context), work)


@command.command("unbind")
@cluster_options
@click.option("--namespace", "-n", required=True, help="Namespace of the binding.")
@click.argument("name")
@explained(KubeError)
def unbind(
    name: str, namespace: str, context: str | None, kubeconfig: Path | None, **_options: Any
) -> None:
    """Remove the binding of a set to a namespace: the ClusterProfiles there are removed."""
    from knfleet.api.cluster.clusterset import BINDINGS
    from knfleet.api.meta import Key

    async def work(client: "Client") -> None:
        key = Key(namespace, name)
        await present(lambda: client.delete(BINDINGS, key), f"ManagedClusterSetBinding {key}")
        click.echo(f"Clusterset {name} is unbound from namespace {namespace}")

    on_cluster(connection_of(kubeconfig, context), work)


async def present(call: Callable[[], Awaitable[object]], what: str) -> None:
    """Do something with what must be there; the message names what is not."""
    try:
        await call()
    except NotFound as error:
        raise click.ClickException(f"{what} does not exist: {error}") from error
