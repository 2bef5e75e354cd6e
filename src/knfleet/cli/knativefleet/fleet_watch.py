"""A rollout as it goes on, on a terminal or line by line."""

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS
from knfleet.api.meta import Key
from knfleet.cli.knativefleet.fleet_text import fleet_text
from knfleet.kube.cache.informer import Informer
from knfleet.kube.client.verbs import Client
from knfleet.view.knativefleet.fleet_overview import FleetOverview, overview
from knfleet.view.knativefleet.fleet_snapshot import read_fleet, typed_fleet

if TYPE_CHECKING:
    from knfleet.kube.endpoint import Connection


async def watch(connection: "Connection", name: str, seconds: float) -> FleetOverview:
    """Show a rollout until it is complete, halted or rolled back; its last state."""
    async with Client(connection) as client:
        await read_fleet(client, name)
        informer = Informer(client, KNATIVE_FLEETS, fields=f"metadata.name={name}")
        changed = asyncio.Event()
        informer.on_change(lambda _change: changed.set())
        task = asyncio.create_task(informer.run())
        try:
            async with asyncio.timeout(seconds):
                return await follow(informer, changed, name)
        except TimeoutError:
            raise click.ClickException(
                f"the rollout of KnativeFleet {name} has not ended within {seconds:.0f} s; see"
                f" knfleet fleet status {name}"
            ) from None
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def follow(informer: Informer, changed: asyncio.Event, name: str) -> FleetOverview:
    """Show each state of a fleet, until its rollout ends."""
    await informer.synced.wait()
    shown = ""
    while True:
        changed.clear()
        manifest = informer.get(Key("", name))
        if manifest is None:
            raise click.ClickException(f"KnativeFleet {name} was deleted")
        found = overview(typed_fleet(manifest))
        text = live_text(found)
        if text != shown:
            show(text)
            shown = text
        if found.is_complete or found.is_stopped:
            return found
        await changed.wait()


def live_text(fleet: FleetOverview) -> str:
    """A state as it is shown: all of it on a terminal, else one line."""
    if sys.stdout.isatty():
        return fleet_text(fleet)
    return f"{fleet.phase}: {fleet.message}"


def show(text: str) -> None:
    """Show a state, on a terminal in the place of the one before."""
    if sys.stdout.isatty():
        click.clear()
    click.echo(text)
