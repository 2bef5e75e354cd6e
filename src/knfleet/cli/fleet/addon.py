"""`knfleet addon`: install, remove, make and explain add-ons."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from knfleet.cli.fleet.fleet_options import cluster_options, connection_of, on_cluster, print_json
from knfleet.cli.output import explained, table
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.api.meta import Object
    from knfleet.kube.client.verbs import Client
    from knfleet.workflows.addon_commands import AddOnRow, ConfigSource

T = TypeVar("T")
OUTPUT = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print."
)
NAMES = click.option("--names", required=True, help="Add-ons, as a,b.")


@click.group()
def command() -> None:
    """Install, remove, make and explain add-ons."""


def pairs(text: str, flag: str) -> dict[str, str]:
    """Pairs as a=1,b=2."""
    found: dict[str, str] = {}
    for each in filter(None, text.split(",")):
        name, separator, value = each.partition("=")
        if not separator or not name:
            raise click.UsageError(f"{flag} {each}: it must be name=value")
        found[name] = value
    return found


@command.command("enable")
@cluster_options
@NAMES
@click.option("--clusters", required=True, help="Clusters, as c1,c2.")
@click.option("--namespace", "-n", default="", help="Where agents run, for add-ons that use it.")
@click.option("--annotate", default="", help="Annotations, as a=1,b=2.")
@click.option("--labels", "-l", default="", help="Labels, as a=1,b=2.")
@explained(KubeError)
def enable(
    names: str, clusters: str, context: str | None, kubeconfig: Path | None, **options: Any
) -> None:
    """Install add-ons on clusters."""
    from knfleet.api.addon.managedclusteraddon import ADDONS
    from knfleet.workflows import addon_commands as workflow

    annotations = pairs(options["annotate"], "--annotate")
    labels = pairs(options["labels"], "--labels")

    async def work(client: "Client") -> None:
        addons, targets = workflow.addon_names(names), workflow.addon_names(clusters)
        await workflow.check(client, addons, targets)
        for addon in addons:
            for cluster in targets:
                manifest = workflow.addon_manifest(
                    addon, cluster, options["namespace"], annotations=annotations, labels=labels
                )
                await client.apply(ADDONS, manifest)
                click.echo(f"Add-on {addon} is enabled on cluster {cluster}")

    run(kubeconfig, context, work)


@command.command("disable")
@cluster_options
@NAMES
@click.option("--clusters", default="", help="Clusters, as c1,c2.")
@click.option("--all-clusters", is_flag=True, help="All clusters.")
@explained(KubeError)
def disable(
    names: str, clusters: str, context: str | None, kubeconfig: Path | None, **options: Any
) -> None:
    """Remove add-ons from clusters."""
    from knfleet.api.addon.managedclusteraddon import ADDONS
    from knfleet.api.meta import Key
    from knfleet.kube.errors import NotFound
    from knfleet.workflows import addon_commands as workflow

    if bool(clusters) == options["all_clusters"]:
        raise click.UsageError("name either --clusters or --all-clusters")

    async def work(client: "Client") -> None:
        targets = workflow.addon_names(clusters) or await workflow.all_clusters(client)
        for addon in workflow.addon_names(names):
            for cluster in targets:
                try:
                    await client.delete(ADDONS, Key(cluster, addon))
                except NotFound:
                    if clusters:
                        click.echo(f"Add-on {addon} is not enabled on cluster {cluster}")
                    continue
                click.echo(f"Add-on {addon} is disabled on cluster {cluster}")

    run(kubeconfig, context, work)


@command.command("get")
@cluster_options
@OUTPUT
@click.option("--cluster", default="", help="Only those of a cluster.")
@click.argument("name", default="")
@explained(KubeError)
def get(
    name: str, cluster: str, context: str | None, kubeconfig: Path | None, **options: Any
) -> None:
    """Print add-ons on clusters."""
    from knfleet.workflows import addon_commands as workflow

    async def work(client: "Client") -> "list[AddOnRow]":
        return await workflow.rows(client, name, cluster)

    found = run(kubeconfig, context, work)
    if options["output"] == "json":
        print_json(found)
        return
    headings = ("NAME", "CLUSTER", "AVAILABLE", "DEGRADED", "PROGRESSING")
    cells = [
        (each.name, each.cluster, each.available, each.degraded, each.progressing) for each in found
    ]
    click.echo(table(headings, cells))


@command.command("status")
@cluster_options
@OUTPUT
@click.argument("name")
@explained(KubeError)
def status(name: str, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Print how far an add-on is on each cluster, and what it waits for."""
    from knfleet.workflows import addon_commands as workflow

    async def work(client: "Client") -> "list[AddOnRow]":
        await workflow.check(client, [name], [])
        return await workflow.rows(client, name)

    found = run(kubeconfig, context, work)
    if options["output"] == "json":
        print_json(found)
        return
    cells = [(each.cluster, each.available or "Unknown", each.message) for each in found]
    click.echo(table(("CLUSTER", "AVAILABLE", "WAITS FOR"), cells))


@command.command("explain")
@cluster_options
@OUTPUT
@click.option("--cluster", required=True, help="The cluster.")
@click.argument("name")
@explained(KubeError)
def explain(
    name: str, cluster: str, context: str | None, kubeconfig: Path | None, **options: Any
) -> None:
    """Print which configurations an add-on uses on a cluster, and where each is written."""
    from knfleet.workflows import addon_commands as workflow

    async def work(client: "Client") -> "list[ConfigSource]":
        return await workflow.explain(client, name, cluster)

    found = run(kubeconfig, context, work)
    if options["output"] == "json":
        print_json(found)
        return
    cells = [(each.type, each.name, each.source, each.state) for each in found]
    click.echo(table(("TYPE", "NAME", "WRITTEN IN", "STATE"), cells))


@command.command("create")
@cluster_options
@click.option(
    "-f",
    "--filename",
    "files",
    required=True,
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Manifests of the agent: files or folders.",
)
@click.option("--version", "-v", "version", default="0.0.1", help="Version of the template.")
@click.option("--hub-registration", "registers", is_flag=True, help="Access to the hub.")
@click.option("--cluster-role-bind", "role", default="", help="ClusterRole of agents on the hub.")
@click.option("--labels", "-l", default="", help="Labels, as a=1,b=2.")
@click.option("--overwrite", is_flag=True, help="Change what exists.")
@click.argument("name")
@explained(KubeError)
def create(
    name: str,
    files: tuple[Path, ...],
    context: str | None,
    kubeconfig: Path | None,
    **options: Any,
) -> None:
    """Make an add-on from plain manifests: a template, and the add-on that uses it."""
    from knfleet.workflows import addon_commands as workflow

    made = workflow.NewTemplate(
        name=name,
        manifests=tuple(manifests(files)),
        version=options["version"],
        registers=options["registers"],
        cluster_role=options["role"],
        labels=pairs(options["labels"], "--labels"),
    )

    async def work(client: "Client") -> None:
        await workflow.create(client, made, overwrite=options["overwrite"])
        click.echo(f"Add-on {name} is created; enable it by")
        click.echo(f"  knfleet addon enable --names {name} --clusters <cluster>")

    run(kubeconfig, context, work)


def manifests(files: tuple[Path, ...]) -> "list[Object]":
    """The manifests in files and folders."""
    from knfleet.kube.yaml import load_all

    found: list[Object] = []
    for path in files:
        every = sorted(path.rglob("*.y*ml")) if path.is_dir() else [path]
        for each in every:
            found += load_all(each.read_bytes(), source=str(each))
    if not found:
        raise click.ClickException(f"no manifests in {', '.join(map(str, files))}")
    return found


def run(
    kubeconfig: Path | None, context: str | None, work: "Callable[[Client], Awaitable[T]]"
) -> "T":
    """Do something with the hub; errors say what helps."""
    from knfleet.workflows.addon_commands import AddOnCommandError

    try:
        return on_cluster(connection_of(kubeconfig, context), work)
    except AddOnCommandError as error:
        raise click.ClickException(str(error)) from error
