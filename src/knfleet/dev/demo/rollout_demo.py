"""What `knfleet demo` shows of a KnativeFleet: waves, a canary that fails, and a rollback."""

import asyncio
from contextlib import aclosing, suppress

from knfleet.api.core import DEPLOYMENTS
from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS
from knfleet.api.meta import Key, Object
from knfleet.apply.manifest_fields import part
from knfleet.dev.demo.demo_shell import Shell
from knfleet.dev.demo.demo_steps import POLL_SECONDS, limit
from knfleet.dev.dev_clusters import DevClusters
from knfleet.dev.hold import RELEASED, HeldWorkload, annotate, wanted
from knfleet.dev.progress_reporter import ProgressReporter
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound

NAME = "demo"
HELD = HeldWorkload(DEPLOYMENTS, Key("knative-serving", "activator"))


def fleet(namespace: str, canary: str) -> Object:
    """A fleet of all clusters, with one that is changed first."""
    return {
        "apiVersion": KNATIVE_FLEETS.api_version,
        "kind": KNATIVE_FLEETS.kind,
        "metadata": {"name": NAME},
        "spec": {
            "clusters": {"namespace": namespace, "selector": {}},
            "serving": {"spec": {"version": "1.22", "ingress": {"kourier": {"enabled": True}}}},
            "strategy": {
                "waves": [{"name": "canary", "names": [canary]}],
                "progressDeadline": "60s",
            },
            "onFailure": {"action": "Rollback", "scope": "All"},
        },
    }


async def show_rollout(
    ground: DevClusters, hub: Client, shell: Shell, canaries: tuple[str, str], namespace: str
) -> None:
    """Install by a fleet, fail an upgrade on its canary, and let it succeed; then delete it.

    `canaries` are the name of the cluster that is changed first, and that of its dev cluster.
    """
    progress = shell.progress
    cluster, place = canaries
    progress.report("hub: a KnativeFleet installs Serving 1.22 on all clusters, a canary first")
    await hub.apply(KNATIVE_FLEETS, fleet(namespace, cluster))
    await follow(shell)
    progress.report(f"{place}: pods of {HELD} do not start any more; the fleet upgrades to 1.23")
    await annotate(ground.connection(place), HELD, wanted(broken="", slow=""))
    change = {"spec": {"serving": {"spec": {"version": "1.23"}}}}
    await hub.patch(KNATIVE_FLEETS, Key("", NAME), change)
    async with asyncio.TaskGroup() as group:
        group.create_task(follow(shell, code=1))
        await taken_back(hub)
        progress.report(f"{place}: the canary is not ready in time; its pods start again")
        await annotate(ground.connection(place), HELD, RELEASED)
    await shell.type("fleet", "retry", NAME, "--context", "hub")
    await follow(shell)
    await show(shell, "fleet", "history", NAME, "--context", "hub")
    await delete(hub, progress)


async def taken_back(hub: Client) -> None:
    """Wait until the fleet takes its revision back."""
    async with limit(f"KnativeFleet {NAME} is not rolled back"):
        events = hub.watch(KNATIVE_FLEETS, fields=f"metadata.name={NAME}")
        async with aclosing(events):
            async for event in events:
                if part(event.object, "status", "rollout", "rollback"):
                    return


async def follow(shell: Shell, *, code: int = 0) -> None:
    """Show a rollout until it ends."""
    await show(shell, "fleet", "status", NAME, "--watch", "--context", "hub", code=code)


async def show(shell: Shell, *arguments: str, code: int = 0) -> None:
    """Run a command, and show what it prints."""
    for line in (await shell.type(*arguments, code=code)).splitlines():
        shell.progress.report(f"  {line}")


async def delete(hub: Client, progress: ProgressReporter) -> None:
    """Delete the fleet, and wait until its clusters are clean."""
    await hub.delete(KNATIVE_FLEETS, Key("", NAME))
    async with limit(f"KnativeFleet {NAME} does not go"):
        with suppress(NotFound):
            while True:
                await hub.get(KNATIVE_FLEETS, NAME)
                await asyncio.sleep(POLL_SECONDS)
    progress.report("hub: the fleet is deleted, and Knative is removed from its clusters")
