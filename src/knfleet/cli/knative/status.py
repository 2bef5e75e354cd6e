"""`knfleet status`: the fleet on one screen, or one installation link by link."""

import asyncio
import contextlib
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.completion_names import names_of_rows
from knfleet.cli.fleet.fleet_options import (
    cluster_options,
    connection_of,
    print_json,
    print_progress,
    print_yaml,
)
from knfleet.cli.output import explained
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.api.meta import Object
    from knfleet.clusters.provider_file import ProviderFile
    from knfleet.kube.client.verbs import Client
    from knfleet.view.chain import Chain
    from knfleet.view.fleet_model import FleetView, InstallRow
    from knfleet.view.fleet_reader import HubObjects

CLEAR = "\x1b[H\x1b[2J"


def provider_option(command: Any) -> Any:
    """The flag that says how clusters are reached."""
    return click.option(
        "--clusterprofile-provider-file",
        "provider_file",
        type=click.Path(path_type=Path),
        help="Provider file for access to clusters; without it, knfleet's own plugins.",
    )(command)


@click.command()
@cluster_options
@provider_option
@click.option("-w", "--watch", is_flag=True, help="Watch for changes until Ctrl-C.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "wide", "json", "yaml", "name"]),
    default="text",
    help="Output format; wide has more columns.",
)
@click.argument("name", required=False, shell_complete=names_of_rows)
@explained(KubeError, ValueError)
def command(name: str | None, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Show the status of the fleet, or of one installation in detail.

    NAME is that of a cluster or of a custom resource: NAME, NAMESPACE/NAME or KIND/NAME. Of a
    custom resource it shows target, release, objects and readiness, and reads from the target which
    Deployment and which pod is not ready. Without NAME only the hub is contacted.

    \b
    knfleet status
    knfleet status --watch
    knfleet status knative-serving/edge-1
    """
    from knfleet.kube.client.verbs import Client, ClientOptions

    behaviour = ClientOptions(
        deadline_seconds=min(options["timeout"], ClientOptions().deadline_seconds)
    )
    providers = None
    if name:
        from knfleet.view.target_access import providers_for

        providers = providers_for(options["provider_file"], kubeconfig, context)
    connection = connection_of(kubeconfig, context)

    async def run() -> None:
        async with Client(connection, behaviour) as client:
            view = StatusView(client, name or "", options["output"], providers)
            await (view.follow() if options["watch"] else view.once())

    if not options["watch"]:
        asyncio.run(run())
        return
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())


class StatusView:
    """What one call of the command shows."""

    def __init__(
        self, client: "Client", name: str, output: str, providers: "ProviderFile | None"
    ) -> None:
        self.client = client
        self.name = name
        self.output = output
        self.providers = providers
        self.before: FleetView | None = None
        self.shown = ""
        self.opened: tuple[Chain, Chain] | None = None
        """The last chain as the hub reported it, and as it was when it was opened."""

    async def once(self) -> None:
        """Show how things are now."""
        from knfleet.view.fleet_reader import read_objects

        objects = await read_objects(self.client)
        for warning in objects.warnings:
            print_progress(f"note: {warning}")
        await self.show(objects)

    async def follow(self) -> None:
        """Show how things are, and every change."""
        from knfleet.view.fleet_watch import following

        async with following(self.client) as live:
            for warning in live.known.warnings:
                print_progress(f"note: {warning}")
            while True:
                await self.show(live.objects(), is_live=True)
                await live.changed()

    async def show(self, objects: "HubObjects", *, is_live: bool = False) -> None:
        """Print what was asked for, as it was asked for."""
        from knfleet.view.fleet_reader import fleet_of

        now = datetime.now(UTC)
        fleet = fleet_of(objects, now)
        if not self.name:
            self.print_fleet(fleet, now, is_live=is_live)
            return
        await self.show_named(objects, fleet, now, is_live=is_live)

    def print_fleet(self, fleet: "FleetView", now: datetime, *, is_live: bool) -> None:
        """The whole fleet."""
        from knfleet.cli.knative.status_text import fleet_text, name_of, news
        from knfleet.view.fleet_reader import KINDS

        before, self.before = self.before, fleet
        if self.output in ("json", "yaml"):
            self.print_value(fleet, is_live=is_live)
        elif self.output == "name":
            rows = [*fleet.clusters, *fleet.installs]
            self.emit("\n".join(name_of(row) for row in rows), is_live=is_live)
        elif is_live and not sys.stdout.isatty():
            for line in news(before, fleet):
                click.echo(line)
        else:
            if len(fleet.warnings) == len(KINDS):
                print_progress("This cluster is no hub; `knfleet init` makes it one.")
            wide = self.output == "wide"
            lines = shutil.get_terminal_size().lines if sys.stdout.isatty() and not wide else 0
            self.emit(fleet_text(fleet, now, wide=wide, lines=lines), is_live=is_live)

    async def show_named(
        self, objects: "HubObjects", fleet: "FleetView", now: datetime, *, is_live: bool
    ) -> None:
        """One cluster, or the chain of one installation."""
        from knfleet.cli.knative.status_text import chain_text, cluster_text, name_of
        from knfleet.view.fleet_model import ClusterRow
        from knfleet.view.name_lookup import find

        row = find(fleet, self.name)
        if self.output == "name":
            self.emit(name_of(row), is_live=is_live)
            return
        if isinstance(row, ClusterRow):
            text, value = cluster_text(row, fleet, now), row
        else:
            value = await self.chain(row, objects, fleet)
            text = chain_text(value, now)
        if self.output in ("json", "yaml"):
            self.print_value(value, is_live=is_live)
        else:
            self.emit(text, is_live=is_live)

    async def chain(self, row: "InstallRow", objects: "HubObjects", fleet: "FleetView") -> "Chain":
        """The chain of an installation, opened anew only when the hub says something new of it."""
        from knfleet.view.chain import chain_of

        manifest = manifest_of(row, objects)
        cluster = next((each for each in fleet.clusters if each.name == row.cluster), None)
        known = chain_of(manifest, cluster)
        if self.opened is None or self.opened[0] != known:
            self.opened = (known, await self.inspect(known, manifest))
        return self.opened[1]

    async def inspect(self, chain: "Chain", manifest: "Object") -> "Chain":
        """The chain with its failing link opened on the target."""
        from knfleet.view.chain import opened, with_details
        from knfleet.view.target_access import target_of
        from knfleet.view.workload_findings import unreadable_target

        failing = chain.failing
        if failing is None or failing.name == "target":
            return chain
        try:
            async with target_of(self.client, manifest, self.providers) as client:
                return await opened(chain, client)
        except KubeError as error:
            return with_details(chain, failing.name, (unreadable_target(error),))

    def print_value(self, value: object, *, is_live: bool) -> None:
        """For programs: one document, or with --watch one for each change."""
        import msgspec

        if self.output == "yaml":
            click.echo("---\n" if is_live else "", nl=False)
            print_yaml(value)
        elif is_live:
            click.echo(msgspec.json.encode(value))
        else:
            print_json(value)

    def emit(self, text: str, *, is_live: bool) -> None:
        """Print a text; with --watch, in place of the one before on a terminal."""
        if not is_live:
            click.echo(text)
        elif sys.stdout.isatty():
            click.echo(f"{CLEAR}{text}")
        elif text != self.shown:
            self.shown = text
            click.echo(text)


def manifest_of(row: "InstallRow", objects: "HubObjects") -> "Object":
    """The custom resource of a row."""
    every = (*objects.servings, *objects.eventings)
    place = (row.kind, row.namespace, row.name)
    return next(
        each
        for each in every
        if (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) == place
    )
