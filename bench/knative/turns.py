"""What is measured of an operator on a hub with spokes; one turn takes some minutes."""

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from bench.knative.contestants import Contestant, Running
from bench.knative.readiness import gone, ready
from bench.knative.scenarios import MB, SPEC, Figures, Stage, drift
from bench.knative.spokes import Field, ask_for, field, frozen, install
from bench.requests import READS, WRITES, by_verb, requests
from bench.usage import OPERATOR, usage, used
from knfleet.api.core import CLUSTER_ROLES, CONFIG_MAPS, DEPLOYMENTS, JOBS, SECRETS, SERVICES
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.kube.client.verbs import Client
from testbed.clusters import Lent, Pool
from testbed.operators import HOME, Hub
from testbed.waiting import until

OLD: Object = {**SPEC, "version": "1.22.0"}
FEW, HUNG = 6, 2
IDLE_SECONDS = 60.0
QUIET_SECONDS = 1.0
GONE_SECONDS = 120.0
FORCED = 3
PROBED_SHARE = 3
"""One of so many clusters may be probed in that time."""
Asked = Counter[tuple[str, str]]


class Clients:
    """A client of each cluster, to read what it was asked."""

    def __init__(self, clusters: Sequence[Lent]) -> None:
        self.clusters = clusters
        self.closing = AsyncExitStack()
        self.clients: list[Client] = []

    async def __aenter__(self) -> "Clients":
        for each in self.clusters:
            client = await self.closing.enter_async_context(Client(each.connection))
            self.clients.append(client)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.closing.aclose()

    async def asked(self) -> Asked:
        """What all clusters were asked so far, by their own count."""
        total: Asked = Counter()
        for found in await asyncio.gather(*map(requests, self.clients)):
            total += found
        return total

    async def is_quiet(self) -> bool:
        """Whether nobody asks more for a moment than probes of the clusters do.

        Watches are counted when they end, which those of the clusters themselves do all the time
        from their fifth minute on.
        """
        before = await self.asked()
        await asyncio.sleep(QUIET_SECONDS)
        found = await self.asked() - before
        return by_verb(found, READS | WRITES) <= len(self.clients) // PROBED_SHARE


async def turn_alone(pool: Pool, contestant: Contestant, folder: Path) -> Figures:
    """The figures of one operator with one spoke, from an empty cluster on."""
    figures: Figures = {}
    async with (
        field(pool, folder, spokes=1) as ground,
        contestant.started(ground.hub, folder, ground.flags) as operator,
    ):
        (lone,) = ground.spokes
        figures |= await measured_install(ground.hub, [lone], operator, "1 spoke")
        figures |= await life(ground.hub, lone, operator)
        figures |= await upgrade(ground.hub, lone)
    return figures


async def turn(pool: Pool, contestant: Contestant, folder: Path, *, spokes: int) -> Figures:
    """The figures of one operator with many spokes at once, from empty clusters on."""
    figures: Figures = {}
    async with field(pool, folder, spokes=spokes) as ground:
        many = ground.spokes
        async with contestant.started(ground.hub, folder, ground.flags) as operator:
            figures |= await measured_install(ground.hub, many, operator, f"{len(many)} spokes")
            figures |= await idle(ground, many, operator)
        figures |= await restart(ground, many, contestant)
    return figures


async def turn_install(
    pool: Pool, contestant: Contestant, folder: Path, *, spokes: int, name: str
) -> Figures:
    """The installation alone."""
    async with (
        field(pool, folder, spokes=spokes) as ground,
        contestant.started(ground.hub, folder, ground.flags) as operator,
    ):
        return await measured_install(ground.hub, ground.spokes, operator, name)


def new_spokes(count: int) -> str:
    """What spokes are called on which nothing was installed before."""
    return f"{count} new spoke{'s' if count > 1 else ''}"


def paired_spokes(count: int) -> str:
    """What spokes are called that knfleet and a bare client alone install on, in turns."""
    return f"{count} spokes in pairs"


async def measured_install(
    hub: Hub, spokes: Sequence[Lent], operator: Running, name: str
) -> Figures:
    """From nothing to Ready on the last of some spokes, and what that takes."""
    before = usage(hub.lent, operator.pid)
    installed = await install(hub, spokes)
    parts = used(before, usage(hub.lent, operator.pid))
    return {
        f"{name} until Deployments are Available, s": installed.available,
        f"{name} to Ready, s": installed.ready,
        f"{name} to Ready: CPU of the operator, s": parts.get(OPERATOR, 0.0),
        f"{name} to Ready: CPU of everything, s": sum(parts.values()),
        f"RSS with {name}, MB": operator.memory_bytes / MB,
    }


async def life(hub: Hub, spoke: Lent, operator: Running) -> Figures:
    """A pass for nothing, repairs, and the end of one installation."""
    async with Clients([hub.lent, spoke]) as clients:
        figures = await forced_pass(hub, spoke, clients, operator)
        figures |= await drift(Stage(Hub(spoke, clients.clients[1]), operator), clients.is_quiet)
    began = time.monotonic()
    await remove(hub, spoke)
    return figures | {"uninstall, s": time.monotonic() - began}


async def forced_pass(hub: Hub, spoke: Lent, clients: Clients, operator: Running) -> Figures:
    """What a pass costs when nothing is to be done; the middle of some, beside probes."""
    every = [await one_forced_pass(hub, spoke, clients, operator) for _ in range(FORCED)]
    return {name: statistics.median(each[name] for each in every) for name in every[0]}


async def one_forced_pass(
    hub: Hub, spoke: Lent, clients: Clients, operator: Running
) -> dict[str, float]:
    """What one such pass costs."""
    await until(clients.is_quiet, "nobody asks anything")
    key = Key(HOME[SERVINGS], spoke.name)
    patch: Object = {"metadata": {"annotations": {"example.com/again": str(time.time())}}}
    start = await clients.asked()
    # Nobody sees this one, but the server looks after a namespace that it has not known for long.
    await hub.client.patch(SERVINGS, key, patch, dry_run=True)
    passes, before = await operator.passes(), await clients.asked()
    began = time.monotonic()
    await hub.client.patch(SERVINGS, key, patch)

    async def is_made() -> bool:
        return await operator.passes() > passes

    await until(is_made, "a pass is made")
    seconds = time.monotonic() - began
    asked = await clients.asked() - before - (before - start)
    print("  asked in a forced pass:", dict(asked), flush=True)
    return {
        "forced pass: reads": by_verb(asked, READS),
        "forced pass: writes": by_verb(asked, WRITES),
        "forced pass, s": seconds,
    }


async def remove(hub: Hub, spoke: Lent) -> None:
    """Uninstall from a spoke."""
    await hub.delete(SERVINGS, spoke.name)
    await gone(hub, SERVINGS, [spoke.name])


async def upgrade(hub: Hub, spoke: Lent) -> Figures:
    """From one minor version to the next; nothing when one of the two is never Ready."""
    async with Client(spoke.connection) as client:
        # The Knative Operator lets a custom resource go before its objects are gone.
        await until(lambda: is_empty(client), "nothing is left on the spoke", seconds=GONE_SECONDS)
        await delete_hollow(client)
    figures: Figures = {"upgrade 1.22 to 1.23, s": None}
    with suppress(TimeoutError):
        await install(hub, [spoke], OLD)
        began = time.monotonic()
        await hub.change(SERVINGS, spoke.name, version=SPEC["version"])
        await ready(hub, SERVINGS, SPEC["version"], [spoke.name])
        figures["upgrade 1.22 to 1.23, s"] = time.monotonic() - began
    return figures


async def is_empty(client: Client) -> bool:
    """Whether nothing of Serving is on a spoke any more, but for its namespace."""
    for kind in (DEPLOYMENTS, SERVICES, CONFIG_MAPS, SECRETS, JOBS):
        found = (await client.list(kind, HOME[SERVINGS])).items
        if not all(map(is_given, found)):
            return False
    return True


async def delete_hollow(client: Client) -> None:
    """Delete ClusterRoles that the cluster brought back without rules, after their deletion.

    The Knative Operator leaves them, and then cannot install for ever; that is not measured here.
    """
    for role in (await client.list(CLUSTER_ROLES)).items:
        if role["metadata"]["name"].startswith("knative-serving") and not role.get("rules"):
            await client.delete(CLUSTER_ROLES, Key.of(role))


def is_given(manifest: Object) -> bool:
    """Whether every namespace has such an object."""
    return manifest["metadata"]["name"] == "kube-root-ca.crt"


async def idle(ground: Field, spokes: Sequence[Lent], operator: Running) -> Figures:
    """What is asked of all clusters in a minute in which nothing happens."""
    async with Clients([ground.hub.lent, *spokes]) as clients:
        await until(clients.is_quiet, "nobody asks anything")
        before, began = usage(ground.hub.lent, operator.pid), time.monotonic()
        asked = await clients.asked()
        # Each cluster tells its count a minute after it did before, however long that takes.
        await asyncio.sleep(began + IDLE_SECONDS - time.monotonic())
        counted = await clients.asked() - asked
        print("  asked in an idle minute:", dict(counted), flush=True)
        parts = used(before, usage(ground.hub.lent, operator.pid))
    return {
        "idle minute: reads": by_verb(counted, READS),
        "idle minute: writes": by_verb(counted, WRITES),
        "idle minute: CPU of the operator, s": parts.get(OPERATOR, 0.0),
        "RSS after an idle minute, MB": operator.memory_bytes / MB,
    }


async def restart(ground: Field, spokes: Sequence[Lent], contestant: Contestant) -> Figures:
    """From the start of a process until a change that waited for it is Ready everywhere."""
    hub = ground.hub
    for spoke in spokes:
        await hub.change(SERVINGS, spoke.name, config={"gc": {"retain-since-create-time": "49h"}})
    folder = ground.folder / "again"
    folder.mkdir()
    began = time.monotonic()
    async with contestant.started(hub, folder, ground.flags):
        await ready(hub, SERVINGS, SPEC["version"], [spoke.name for spoke in spokes])
        return {"restart until a change is Ready everywhere, s": time.monotonic() - began}


async def hung(pool: Pool, contestant: Contestant, folder: Path, *, first: bool) -> Figures:
    """Six spokes alone, and the same six while two more hang; one or the other first.

    The two do not answer in either case; the difference is whether something is to be installed
    on them.
    """
    figures: Figures = {}
    folder.mkdir()
    cases = [("6 spokes to Ready, s", 0), ("6 spokes beside 2 that hang to Ready, s", HUNG)]
    for name, count in cases if first else reversed(cases):
        async with field(pool, folder / f"beside-{count}", spokes=FEW + HUNG) as ground:
            few, others = ground.spokes[:FEW], ground.spokes[FEW:]
            with frozen(others):
                async with contestant.started(ground.hub, ground.folder, ground.flags):
                    for spoke in others[:count]:
                        await ask_for(ground.hub, spoke)
                    figures[name] = (await install(ground.hub, few)).ready
    return figures
