"""`knfleet fleet`: rollouts of KnativeFleets, for people."""

import asyncio
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
from knfleet.cli.knativefleet import plan

if TYPE_CHECKING:
    from knfleet.api.fleet.knativefleet import KnativeFleet
    from knfleet.hub.knativefleet.template.revisions import Revision
    from knfleet.kube.client.verbs import Client
    from knfleet.view.knativefleet.fleet_overview import FleetOverview

OUTPUT = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    help="How to print.",
)


@click.group()
def command() -> None:
    """Show, plan and control rollouts of KnativeFleets."""


@command.command("status")
@cluster_options
@click.option("--watch", "-w", is_flag=True, help="Show changes until the rollout ends.")
@OUTPUT
@click.argument("name", required=False)
def status(name: str | None, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Show fleets, or the rollout of one: waves, clusters, and what it waits for.

    With --watch the command ends when the rollout does: with exit code 1 if it was halted or
    rolled back.

    \b
    knfleet fleet status
    knfleet fleet status prod --watch
    """
    from knfleet.cli.knativefleet.fleet_text import fleet_text, list_text

    connection = connection_of(kubeconfig, context)
    if options["watch"]:
        if name is None:
            raise click.UsageError("--watch needs the NAME of a fleet")
        from knfleet.cli.knativefleet.fleet_watch import watch

        last = asyncio.run(watch(connection, name, options["timeout"]))
        raise SystemExit(0 if last.is_complete else 1)
    found = on_cluster(connection, lambda client: read_overviews(client, name))
    if options["output"] != "text":
        value: object = found if name is None else found[0]
        (print_json if options["output"] == "json" else print_yaml)(value)
    elif name is None:
        click.echo(list_text(found))
    else:
        click.echo(fleet_text(found[0]))


async def read_overviews(client: "Client", name: str | None) -> "list[FleetOverview]":
    """All fleets, or one with its clusters."""
    from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS
    from knfleet.view.knativefleet.fleet_overview import overview
    from knfleet.view.knativefleet.fleet_snapshot import (
        read_fleet,
        read_revisions,
        read_snapshot,
        typed_fleet,
    )

    if name is None:
        return [overview(typed_fleet(each)) for each in (await client.list(KNATIVE_FLEETS)).items]
    fleet = typed_fleet(await read_fleet(client, name))
    return [overview(fleet, await read_revisions(client, name), await read_snapshot(client))]


@command.command("history")
@cluster_options
@OUTPUT
@click.argument("name")
def history(name: str, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """List the revisions of a fleet."""
    from knfleet.cli.knativefleet.fleet_text import history_text
    from knfleet.view.knativefleet.fleet_overview import history as rows_of

    fleet, revisions = on_cluster(connection_of(kubeconfig, context), lambda c: read(c, name))
    rows = rows_of(fleet, revisions)
    if options["output"] == "text":
        click.echo(history_text(rows, datetime.now(UTC)))
    else:
        (print_json if options["output"] == "json" else print_yaml)(rows)


async def read(client: "Client", name: str) -> "tuple[KnativeFleet, list[Revision]]":
    """A fleet and its revisions."""
    from knfleet.view.knativefleet.fleet_snapshot import read_fleet, read_revisions, typed_fleet

    return typed_fleet(await read_fleet(client, name)), await read_revisions(client, name)


@command.command("diff")
@cluster_options
@click.option("--from", "old", type=int, help="Revision; the one before the current one.")
@click.option("--to", "new", type=int, help="Revision; the current one.")
@click.argument("name")
def diff(
    name: str,
    old: int | None,
    new: int | None,
    context: str | None,
    kubeconfig: Path | None,
    **_options: Any,
) -> None:
    """Show the difference between two revisions of a fleet."""
    from knfleet.cli.knativefleet.fleet_text import difference_text
    from knfleet.view.knativefleet.fleet_snapshot import revision_numbered
    from knfleet.workflows.fleet_actions import previous

    fleet, revisions = on_cluster(connection_of(kubeconfig, context), lambda c: read(c, name))
    current = fleet.status.rollout.number if new is None else new
    after = revision_numbered(revisions, current, name)
    before = previous(revisions, fleet) if old is None else revision_numbered(revisions, old, name)
    click.echo(difference_text(before, after), nl=False)


@command.command("rollback")
@cluster_options
@click.option("--to-revision", "number", type=int, help="Revision; the one before by default.")
@click.argument("name")
def rollback(
    name: str, number: int | None, context: str | None, kubeconfig: Path | None, **_options: Any
) -> None:
    """Give a fleet the templates of an earlier revision, which is rolled out in waves."""
    from knfleet.view.knativefleet.fleet_snapshot import (
        read_fleet,
        read_revisions,
        revision_numbered,
        typed_fleet,
    )
    from knfleet.workflows.fleet_actions import previous, roll_back

    async def work(client: "Client") -> int:
        manifest = await read_fleet(client, name)
        revisions = await read_revisions(client, name)
        if number is None:
            chosen = previous(revisions, typed_fleet(manifest))
        else:
            chosen = revision_numbered(revisions, number, name)
        await roll_back(client, manifest, chosen)
        return chosen.number

    given = on_cluster(connection_of(kubeconfig, context), work)
    click.echo(f"KnativeFleet {name} has the templates of revision {given} again")


@command.command("pause")
@cluster_options
@click.argument("name")
def pause(name: str, context: str | None, kubeconfig: Path | None, **_options: Any) -> None:
    """Begin nothing new; clusters that are being changed are finished."""
    is_new = change_pause(name, context, kubeconfig, paused=True)
    click.echo(f"KnativeFleet {name} is {'paused' if is_new else 'paused already'}")


@command.command("resume")
@cluster_options
@click.argument("name")
def resume(name: str, context: str | None, kubeconfig: Path | None, **_options: Any) -> None:
    """Go on with a rollout that was paused."""
    is_new = change_pause(name, context, kubeconfig, paused=False)
    click.echo(f"KnativeFleet {name} {'goes on' if is_new else 'is not paused'}")


def change_pause(name: str, context: str | None, kubeconfig: Path | None, *, paused: bool) -> bool:
    """Pause a fleet, or let it go on; whether that changed anything."""
    from knfleet.workflows.fleet_actions import set_paused

    async def work(client: "Client") -> bool:
        fleet, _ = await read(client, name)
        return await set_paused(client, fleet, paused=paused)

    return on_cluster(connection_of(kubeconfig, context), work)


@command.command("promote")
@cluster_options
@click.argument("name")
def promote(name: str, context: str | None, kubeconfig: Path | None, **_options: Any) -> None:
    """Have the current wave wait for its clusters only: not for minSuccessTime or a delay."""
    from knfleet.workflows.fleet_actions import promote as promote_wave

    async def work(client: "Client") -> str:
        fleet, _ = await read(client, name)
        return await promote_wave(client, fleet)

    wave = on_cluster(connection_of(kubeconfig, context), work)
    click.echo(f"wave {wave} of KnativeFleet {name} is promoted")


@command.command("retry")
@cluster_options
@click.argument("name")
def retry(name: str, context: str | None, kubeconfig: Path | None, **_options: Any) -> None:
    """Try again what failed, or the revision that was rolled back."""
    from knfleet.workflows.fleet_actions import retry as try_again

    async def work(client: "Client") -> None:
        fleet, _ = await read(client, name)
        await try_again(client, fleet, datetime.now(UTC))

    on_cluster(connection_of(kubeconfig, context), work)
    click.echo(f"KnativeFleet {name} is tried again")


command.add_command(plan.plan)
command.add_command(plan.apply)
