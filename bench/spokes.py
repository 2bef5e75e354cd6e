"""knfleet and the Knative Operator install on the same spokes from the same hub, turn by turn.

    python -m bench.spokes [--rounds 3] [--spokes 8] [--json FILE]

Serving with Kourier on one spoke and on all at once, from nothing to Ready on the last; then
knfleet alone on six spokes, without and with two more that hang. Every turn begins with empty
clusters and a fresh process. The Knative Operator sends at most 20 requests a second to a spoke,
which no flag of it changes; on the hub it has no limit here. Both log in with the
same plugin, which costs nothing. The median of the rounds is shown; the first is
not counted.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from pathlib import Path

import msgspec
import psutil
from bench.contestants import Contestant, Running, knative_operator, knfleet
from bench.knative import table
from bench.scenarios import MIB, SPEC, Figures
from tests.fleet.operators import Hub
from tests.ground import Lent, Pool
from tests.peers.goproject import go_project
from tests.peers.laboratory import Printed
from tests.peers.surroundings import ensure_namespace

from knfleet.api.core import NAMESPACES
from knfleet.api.inventory import PROFILES
from knfleet.api.knative import SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.dev import processes
from knfleet.dev.controlplane import API_SERVER
from knfleet.dev.folder import write_private
from knfleet.dev.profiles import FLEET, manifest, profile_status, spoke_token
from knfleet.kube.client import Client

FEW, HUNG = 6, 2
LAST_SECONDS = 300.0
GOALS = {
    "1 spoke to Ready, s": "≤ 1/4 of theirs",
    "all spokes to Ready, the last one, s": "≤ 1/3 of theirs",
    "RSS with all spokes, MiB": "≤ 120",
}


async def register(hub: Hub, spokes: Sequence[Lent], folder: Path) -> str:
    """Make spokes known on the hub, each with a provider of its own; the operator's flag."""
    await hub.client.apply(NAMESPACES, manifest("v1", "Namespace", Key("", FLEET)))
    entries: list[Object] = []
    for spoke in spokes:
        async with Client(spoke.connection) as client:
            token = await spoke_token(client)
        printed = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": token},
        }
        file = folder / f"{spoke.name}.json"
        write_private(file, msgspec.json.encode(printed))
        run = {"apiVersion": printed["apiVersion"], "command": "cat", "args": [str(file)]}
        entries.append({"name": spoke.name, "execConfig": run})
        await publish(hub, spoke)
    path = folder / "providers.json"
    write_private(path, msgspec.json.encode({"providers": entries}))
    return f"--clusterprofile-provider-file={path}"


async def publish(hub: Hub, spoke: Lent) -> None:
    """Write the ClusterProfile of a spoke."""
    key, endpoint = Key(FLEET, spoke.name), spoke.connection.endpoint
    profile = manifest(PROFILES.api_version, PROFILES.kind, key)
    profile["spec"] = {"displayName": spoke.name, "clusterManager": {"name": "bench"}}
    await hub.client.apply(PROFILES, profile)
    status = profile_status(spoke.name, endpoint.server, endpoint.ca or b"")
    status["accessProviders"][0]["name"] = spoke.name
    await hub.client.patch(PROFILES, key, {"status": status}, subresource="status")


async def install(hub: Hub, spokes: Sequence[Lent]) -> float:
    """Ask for Serving on some spokes at once; seconds until the last of them is Ready."""
    began = time.monotonic()
    for spoke in spokes:
        reference = {"name": spoke.name, "namespace": FLEET}
        await hub.create(SERVINGS, spoke.name, **SPEC, clusterProfileRef=reference)
    async with asyncio.timeout(LAST_SECONDS), asyncio.TaskGroup() as group:
        for spoke in spokes:
            group.create_task(hub.ready(SERVINGS, SPEC["version"], spoke.name))
    return time.monotonic() - began


async def turn(pool: Pool, contestant: Contestant, folder: Path, *, spokes: int) -> Figures:
    """The figures of one operator, on clean clusters: one spoke, then all the others at once."""
    figures: Figures = {}
    async with staged(pool, contestant, folder, spokes=spokes + 1) as (hub, ready, operator):
        figures["1 spoke to Ready, s"] = await install(hub, ready[:1])
        figures["all spokes to Ready, the last one, s"] = await install(hub, ready[1:])
        figures["RSS with all spokes, MiB"] = operator.memory_bytes / MIB
    return figures


async def hung(pool: Pool, contestant: Contestant, folder: Path) -> Figures:
    """Six spokes alone, and six others while two more hang."""
    figures: Figures = {}
    folder.mkdir()
    async with staged(pool, contestant, folder / "alone", spokes=FEW) as (hub, ready, _):
        figures["6 spokes alone, s"] = await install(hub, ready)
    async with staged(pool, contestant, folder / "hung", spokes=FEW + HUNG) as (hub, ready, _):
        with frozen(ready[FEW:]):
            for spoke in ready[FEW:]:
                reference = {"name": spoke.name, "namespace": FLEET}
                await hub.create(SERVINGS, spoke.name, **SPEC, clusterProfileRef=reference)
            figures["6 spokes beside 2 that hang, s"] = await install(hub, ready[:FEW])
    return figures


@contextlib.asynccontextmanager
async def staged(
    pool: Pool, contestant: Contestant, folder: Path, *, spokes: int
) -> AsyncGenerator[tuple[Hub, list[Lent], Running]]:
    """An operator at work on clean clusters, with every spoke registered."""
    first, *others = await pool.lend(spokes + 1)
    folder.mkdir()
    async with Client(first.connection) as client:
        hub = Hub(first, client)
        await hub.prepare()
        await ensure_namespace(client, "knative-operator")
        flag = await register(hub, others, folder)
        async with contestant.started(hub, folder, [flag]) as operator:
            yield hub, others, operator


@contextlib.contextmanager
def frozen(spokes: Sequence[Lent]) -> Generator[None]:
    """API servers that accept connections and never answer."""
    names = [f"{spoke.name}.{API_SERVER}" for spoke in spokes]
    found = [psutil.Process(processes.recorded(spokes[0].folder)[name].pid) for name in names]
    for process in found:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in found:
            process.send_signal(signal.SIGCONT)


async def contest(rounds: int, spokes: int, folder: Path) -> dict[str, list[Figures]]:
    """The figures of both, by name, one after the other and in turns."""
    project = await go_project(Printed())
    contestants = (
        knative_operator(project, name="Knative Operator"),
        knfleet(project.kodata),
    )
    found: dict[str, list[Figures]] = {each.name: [] for each in contestants}
    pool = Pool(folder / "ground")
    try:
        for number in range(rounds + 1):
            for each in contestants:
                where = folder / f"{number}-{each.name.replace(' ', '-')}"
                figures = await turn(pool, each, where, spokes=spokes if number else 1)
                if number:
                    found[each.name].append(figures)
    finally:
        pool.close()
    return found


async def contest_hung(rounds: int, folder: Path) -> list[Figures]:
    """How much knfleet is held up by spokes that hang, round by round."""
    project = await go_project(Printed())
    pool = Pool(folder / "ground")
    try:
        every = [
            await hung(pool, knfleet(project.kodata), folder / f"hung-{number}")
            for number in range(rounds + 1)
        ]
    finally:
        pool.close()
    return every[1:]


def hung_line(found: Sequence[Figures]) -> str:
    """What two spokes that hang cost six others."""
    alone, beside = (
        statistics.median(each[name] or 0.0 for each in found)
        for name in ("6 spokes alone, s", "6 spokes beside 2 that hang, s")
    )
    return (
        f"6 spokes to Ready: {alone:.2f} s alone, {beside:.2f} s beside 2 that hang:"
        f" {100 * (beside / alone - 1):+.1f} % (goal ≤ 5 %)"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Compare installs on spokes.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spokes", type=int, default=8)
    parser.add_argument("--json", type=Path, help="where to keep all figures")
    parser.add_argument("--only", choices=("contest", "hung"), help="one part alone")
    arguments = parser.parse_args()
    before = os.getloadavg()
    result: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="knfleet-bench-") as folder:
        if arguments.only != "hung":
            found = asyncio.run(contest(arguments.rounds, arguments.spokes, Path(folder)))
            print(f"{table(found, GOALS)}\n\n{arguments.spokes} spokes, {arguments.rounds} rounds")
            result["contest"] = found
    with tempfile.TemporaryDirectory(prefix="knfleet-bench-") as folder:
        if arguments.only != "contest":
            held = asyncio.run(contest_hung(arguments.rounds, Path(folder)))
            print(hung_line(held))
            result["hung"] = held
    after = os.getloadavg()
    print(f"load {before[0]:.1f} before, {after[0]:.1f} after; {os.cpu_count()} cores")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({**result, "load": [before, after]}, indent=2) + "\n")


if __name__ == "__main__":
    main()
