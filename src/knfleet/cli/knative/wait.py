"""`knfleet wait`: return when installations or clusters are ready, gone, or say something."""

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.completion_names import names_of_rows
from knfleet.cli.fleet.fleet_options import cluster_options, connection_of, print_progress
from knfleet.cli.output import LiveProgress, PlainProgress, explained, progress
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.kube.client.verbs import Client
    from knfleet.view.fleet_reader import HubObjects
    from knfleet.view.wait_goals import WaitGoal, WaitProgress


def goals(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """What can be waited for."""
    known = ("ready", "removed", "condition=Ready", "condition=TargetClusterResolved")
    return [goal for goal in known if goal.startswith(incomplete)]


@click.command()
@cluster_options
@click.option(
    "--for",
    "goal",
    default="ready",
    help="ready, removed, condition=TYPE or condition=TYPE=STATUS.",
    shell_complete=goals,
)
@click.option("--all", "is_all", is_flag=True, help="All custom resources that exist now.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
@click.argument("names", nargs=-1, shell_complete=names_of_rows)
@explained(KubeError, ValueError)
def command(
    names: tuple[str, ...], context: str | None, kubeconfig: Path | None, **options: Any
) -> None:
    """Wait until installations or clusters are ready, removed, or have a condition.

    Exit code 0 when all of them are, 1 when not within --timeout. The hub is watched, not polled.

    \b
    knfleet wait knative-serving/edge-1
    knfleet wait --all --timeout 600
    knfleet wait --for=removed KnativeServing/edge-1
    knfleet wait --for=condition=TargetClusterResolved edge-1
    """
    from knfleet.kube.client.verbs import Client
    from knfleet.view.wait_goals import WaitGoal

    if bool(names) == options["is_all"]:
        raise click.UsageError("name what to wait for, or write --all")
    goal = WaitGoal.parse(options["goal"])
    connection = connection_of(kubeconfig, context)

    async def run() -> "WaitProgress":
        async with Client(connection) as client:
            with progress(quiet=options["quiet"]) as shown:
                waiter = Waiter(client, goal, options["timeout"], shown)
                return await waiter.wait(names)

    last = asyncio.run(run())
    if not last.is_over:
        more = f"; see: knfleet status {last.left[0].name}"
        raise click.ClickException(f"not within {options['timeout']} s: {last}{more}")
    for name in last.done:
        click.echo(f"{name} {goal}")


class Waiter:
    """Waits once."""

    def __init__(
        self,
        client: "Client",
        goal: "WaitGoal",
        seconds: float,
        shown: PlainProgress | LiveProgress | None,
    ) -> None:
        self.client = client
        self.goal = goal
        self.seconds = seconds
        self.shown = shown
        self.began = time.monotonic()
        self.printed: set[str] = set()
        self.last = ""

    async def wait(self, given: tuple[str, ...]) -> "WaitProgress":
        """How it ended: with everything done, or with the time over."""
        from knfleet.view.fleet_watch import following
        from knfleet.view.wait_goals import waiting

        async with following(self.client) as live:
            names = self.chosen(live.objects(), given)
            try:
                async with asyncio.timeout(self.seconds):
                    while True:
                        now = waiting(live.objects(), names, self.goal, datetime.now(UTC))
                        self.print_progress(now)
                        if now.is_over:
                            return now
                        await live.changed()
            except TimeoutError:
                return waiting(live.objects(), names, self.goal, datetime.now(UTC))

    def chosen(self, objects: "HubObjects", given: tuple[str, ...]) -> list[str]:
        """The full names of what is waited for."""
        from knfleet.view.fleet_reader import fleet_of
        from knfleet.view.name_lookup import find, full_name, rows_of
        from knfleet.view.wait_goals import REMOVED

        fleet = fleet_of(objects, datetime.now(UTC))
        if not given:
            return sorted(full_name(row) for row in fleet.installs)
        names: list[str] = []
        for name in given:
            if self.goal.kind == REMOVED and not rows_of(fleet, name):
                print_progress(f"note: nothing is called {name}, so it counts as removed")
                continue
            names.append(full_name(find(fleet, name)))
        return list(dict.fromkeys(names))

    def print_progress(self, now: "WaitProgress") -> None:
        """Say who is done since the last time, and who is waited for."""
        if self.shown is None:
            return
        seconds = time.monotonic() - self.began
        for name in now.done:
            if name not in self.printed:
                self.printed.add(name)
                self.shown.report(f"{name} {self.goal} after {seconds:.0f} s")
        if now.left and str(now) != self.last:
            self.last = str(now)
            if isinstance(self.shown, PlainProgress):
                self.shown.report(f"{now}")
        if isinstance(self.shown, LiveProgress):
            total = len(now.done) + len(now.left)
            names = ", ".join(str(each) for each in now.left[:2])
            self.shown.advance(f"waiting for {names}", len(now.done), total)
