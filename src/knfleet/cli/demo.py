"""`knfleet demo`: the product at work on real clusters, in one command."""

import asyncio
import shlex
from pathlib import Path

import click

from knfleet.cli.dev import chosen_folder, directory_option
from knfleet.cli.output import explained, progress, table
from knfleet.dev.errors import DevError
from knfleet.kube.errors import KubeError


@click.command()
@click.option("--keep", is_flag=True, help="Leave everything running.")
@click.option(
    "--spokes", type=click.IntRange(0, 60), default=4, show_default=True, help="How many spokes."
)
@click.option(
    "--profiles",
    type=click.Choice(["fleet", "manual"]),
    default="fleet",
    show_default=True,
    help="Whether spokes register themselves, or ClusterProfiles are written by hand.",
)
@directory_option
@explained(DevError, KubeError)
def command(keep: bool, spokes: int, profiles: str, directory: Path | None) -> None:
    """Run a demonstration on real clusters on this machine.

    Starts a hub and spokes, runs a Deployment on each, installs Knative on the hub, upgrades and
    removes it; registers all spokes with the hub, of which one has a network that nothing can
    connect to; installs it on two of them, freezes one for a while, removes it there too; has a
    KnativeFleet install and upgrade all of them in waves, with a canary that fails and a rollback;
    then takes everything down. All of it can be watched in a dashboard, whose address is printed
    early and at the end. With --keep the spokes stay joined, and keep Knative.
    """
    from knfleet.dev.demo.demo import show
    from knfleet.dev.dev_clusters import DevClusters
    from knfleet.dev.progress_reporter import SilentProgress

    folder = chosen_folder(directory, "demo")
    with progress() as listener:
        ground = DevClusters(folder, progress=listener)
        try:
            shown = asyncio.run(
                show(ground, spokes, listener or SilentProgress(), keep=keep, profiles=profiles)
            )
            rows = [
                [each.name, "ready" if each.ready else "NOT READY", each.version, each.url]
                for each in shown.clusters
            ]
            click.echo("\n" + table(["CLUSTER", "STATE", "VERSION", "URL"], rows) + "\n")
        finally:
            if not keep:
                ground.down()
    # The last one may have a network of its own.
    seen = shown.clusters[:2][-1].name
    line = f"kubectl --kubeconfig {folder.kubeconfig} --context {seen} get deployments,pods"
    if keep:
        click.echo(f"Try it:     {line}")
        chosen = f"--dir {shlex.quote(str(folder.root))}" if directory else "--name demo"
        click.echo(f"Look again: knfleet dev status {chosen}")
        click.echo(f"End it:     knfleet dev down {chosen}")
        click.echo(f"Dashboard:  {shown.url}")
    else:
        click.echo("Everything is taken down again. With --keep it stays, and you can type:")
        click.echo(f"  {line}")
        click.echo(f"and look at the dashboard, which was here: {shown.url}")
