"""`knfleet placement`: why a placement selects a cluster or not."""

import sys
from datetime import UTC, datetime
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
from knfleet.cli.output import explained
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.api.cluster.placement import Placement
    from knfleet.hub.placement.scheduler.fleet_state import Fleet
    from knfleet.kube.client.verbs import Client


@click.group()
def command() -> None:
    """Explain why placements select clusters or not."""


@command.command("explain")
@cluster_options
@click.option("--namespace", "-n", default="default", show_default=True, help="Its namespace.")
@click.option(
    "-f",
    "--filename",
    "file",
    metavar="FILE",
    help="File with a placement to try, instead of one of the hub; - reads standard input.",
)
@click.option("--clusters", "--cluster", "clusters", multiple=True, help="Show only these.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    help="How to print.",
)
@click.argument("name", required=False)
@explained(KubeError, OSError)
def explain(name: str | None, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Show what a placement selects now: every filter and every score, for each cluster.

    With -f, what the placement in a file would select, if it were created or changed. Nothing is
    written.

    \b
    knfleet placement explain web -n apps
    knfleet placement explain -f placement.yaml
    """
    from knfleet.view.placement.placement_trial import read_fleet, try_placement

    if (name is None) == (options["file"] is None):
        raise click.UsageError("give either the NAME of a placement, or -f FILE")
    given = None if options["file"] is None else placement_in(options["file"], options["namespace"])

    async def work(client: "Client") -> "tuple[Placement, Fleet]":
        chosen = given or await stored(client, options["namespace"], name or "")
        return chosen, await read_fleet(client)

    placement, fleet = on_cluster(connection_of(kubeconfig, context), work)
    trial = try_placement(placement, fleet, datetime.now(UTC))
    if options["output"] == "text":
        from knfleet.cli.placement.create import words
        from knfleet.cli.placement.placement_text import trial_text

        click.echo(trial_text(trial, words(options["clusters"])))
    else:
        (print_json if options["output"] == "json" else print_yaml)(trial)
    if trial.problem:
        raise SystemExit(1)


async def stored(client: "Client", namespace: str, name: str) -> "Placement":
    """A placement of the hub."""
    from knfleet.api.cluster.placement import PLACEMENTS, Placement
    from knfleet.api.schema import decode
    from knfleet.kube.errors import NotFound
    from knfleet.view.suggestions import meant

    try:
        return decode(await client.get(PLACEMENTS, name, namespace), Placement)
    except NotFound as error:
        there = [
            each["metadata"]["name"] for each in (await client.list(PLACEMENTS, namespace)).items
        ]
        raise click.ClickException(
            f"Placement {namespace}/{name} does not exist; {meant(name, there)}"
        ) from error


def placement_in(file: str, namespace: str) -> "Placement":
    """The placement in a file; its namespace wins over that of the flag."""
    from knfleet.api.cluster.placement import PLACEMENTS, Placement
    from knfleet.api.schema import DecodeError, decode
    from knfleet.kube import yaml

    text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    found = [
        each
        for each in yaml.load_all(text, source=file)
        if (each.get("apiVersion"), each.get("kind")) == (PLACEMENTS.api_version, PLACEMENTS.kind)
    ]
    if len(found) != 1:
        raise click.ClickException(f"{file}: there must be one Placement in it, not {len(found)}")
    manifest = {**found[0], "metadata": {"namespace": namespace, **found[0].get("metadata", {})}}
    try:
        return decode(manifest, Placement)
    except DecodeError as error:
        raise click.ClickException(f"{file}: {error}") from error
