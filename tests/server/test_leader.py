"""Real processes compete for a Lease, and never two of them act, whatever is done to them."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from knfleet.api.core import LEASES
from knfleet.api.meta import Key, Object
from knfleet.dev import processes
from knfleet.kube.auth.credentials import StaticCredential
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import NotFound
from knfleet.runtime.leader.leader import Leader, LeaderOptions, LostLeadership
from knfleet.runtime.leader.lease_rules import LeaseTiming
from testbed.clusters import Lent, Pool
from testbed.fakes.proxies import Wire
from testbed.waiting import until
from tests.support.contender import Setup

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 60
LOST = '"leadership lost; everything is stopped"'
SHORT = LeaseTiming(lease_seconds=4, renew_seconds=3, retry_seconds=0.4)


class Strait(Wire):
    """A wire that can also hold back what is sent, and let it through later."""

    def __init__(self, server: str) -> None:
        super().__init__(server)
        self.open = asyncio.Event()
        self.open.set()

    async def join(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
    ) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, port)
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self.carry_chunks(reader, far_writer, self.open))
                ways.create_task(self.carry_chunks(far_reader, writer))
        except* OSError:
            pass
        finally:
            far_writer.transport.abort()

    async def carry_chunks(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        gate: asyncio.Event | None = None,
    ) -> None:
        """Carry bytes one way; the end of one way ends both."""
        while chunk := await reader.read(65536):
            if gate is not None:
                await gate.wait()
            writer.write(chunk)
            await writer.drain()
        raise ConnectionResetError("one side has ended")

    async def __aexit__(self, *why: Any) -> None:
        self.server.close()
        # A connection that was accepted just now is cut only once its task has begun.
        await asyncio.sleep(0)
        await super().__aexit__(*why)


class Contender:
    """A process, its wire to the server, and its log."""

    def __init__(self, identity: str, wire: Strait, process: asyncio.subprocess.Process) -> None:
        self.identity = identity
        self.wire = wire
        self.process = process

    async def end(self) -> int:
        """Its exit code, when it has ended."""
        return await self.process.wait()

    def lives(self) -> bool:
        """Whether it has not ended."""
        return self.process.returncode is None


class Arena:
    """All contenders for one Lease, and what they did."""

    def __init__(self, hub: Connection, folder: Path, timing: LeaseTiming) -> None:
        self.hub = hub
        self.folder = folder
        self.timing = timing
        self.acts = folder / "acts"
        self.acts.touch()
        self.contenders: dict[str, Contender] = {}
        self.stack = AsyncExitStack()
        self.lease = f"arena-{os.getpid()}-{time.monotonic_ns():x}"
        assert isinstance(hub.credentials, StaticCredential)
        credential = hub.credentials.credential
        for name, text in (
            ("ca.crt", hub.endpoint.ca),
            ("client.crt", credential.client_certificate),
            ("client.key", credential.client_key),
        ):
            (folder / name).touch(0o600)
            (folder / name).write_bytes(text or b"")

    async def start(self, identity: str) -> Contender:
        """Let another process compete; their wall clocks differ by hours."""
        wire = await self.stack.enter_async_context(Strait(self.hub.endpoint.server))
        setup = Setup(
            identity,
            wire.url,
            str(self.folder),
            str(self.acts),
            self.lease,
            self.timing,
            3600.0 * (len(self.contenders) - 2),
        )
        with (self.folder / f"{identity}.log").open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.support.contender",
                msgspec.json.encode(setup).decode(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=ROOT,
            )
        contender = self.contenders[identity] = Contender(identity, wire, process)
        self.stack.push_async_callback(reap, process)
        return contender

    async def stands_by(self, contender: Contender) -> None:
        """Wait until a contender has seen who leads, since it lost if it did."""

        def follows() -> bool:
            return '"following"' in self.log(contender).rpartition(LOST)[2]

        await until(follows, f"{contender.identity} stands by")

    async def loses(self, contender: Contender) -> None:
        """Wait until a contender has stopped to act."""
        await until(lambda: LOST in self.log(contender), f"{contender.identity} leads no more")
        assert contender.lives(), self.logs()

    def log(self, contender: Contender) -> str:
        """What a contender logged."""
        return (self.folder / f"{contender.identity}.log").read_text()

    def history(self) -> list[tuple[str, float, float]]:
        """Everything that any of them did, in the order of its end."""
        lines = self.acts.read_text().splitlines()
        parts = [line.split() for line in lines]
        return [(identity, float(begin), float(end)) for identity, begin, end in parts]

    async def until(self, holds: Callable[[list[tuple[str, float, float]]], bool]) -> None:
        """Wait until something is in the history."""
        await until(lambda: holds(self.history()), "an act")

    async def leader(self, *, after: float = 0.0, not_: str = "") -> Contender:
        """The one that acts after some moment."""

        def fits(act: tuple[str, float, float]) -> bool:
            return act[1] > after and act[0] != not_

        await self.until(lambda history: any(fits(act) for act in history[-50:]))
        return self.contenders[next(a[0] for a in reversed(self.history()) if fits(a))]

    async def still_leads(self, contender: Contender) -> None:
        """Wait until a contender has acted for a whole term from now, and nobody else did."""
        begin = time.monotonic()
        until = begin + self.timing.lease_seconds
        await self.until(lambda history: any(act[1] > until for act in history[-50:]))
        actors = {identity for identity, moment, _ in self.history() if moment > begin}
        assert actors == {contender.identity}, self.logs()

    def logs(self) -> str:
        """What all of them logged."""
        return "\n".join(
            f"--- {name}\n{(self.folder / f'{name}.log').read_text()}" for name in self.contenders
        )

    def terms(self) -> list[tuple[float, float, str]]:
        """From when to when each process acted, in turn."""
        acts = sorted(self.history(), key=itemgetter(1))
        terms = [(who, list(term)) for who, term in groupby(acts, key=itemgetter(0))]
        return [(term[0][1], max(end for *_, end in term), who) for who, term in terms]

    def assert_never_two(self) -> None:
        """No process acted while another did, and there were no more terms than takeovers."""
        terms = self.terms()
        for (_, last, old), (first, _, new) in pairwise(terms):
            assert last < first, f"{new} acted before {old} had stopped\n{self.logs()}"
        begun = sum(self.log(each).count('"leading"') for each in self.contenders.values())
        assert len(terms) <= begun, f"{terms}\n{self.logs()}"


async def reap(process: asyncio.subprocess.Process) -> None:
    """End a process that may have ended."""
    if process.returncode is None:
        process.kill()
    await process.wait()


@asynccontextmanager
async def arena(hub: Connection, folder: Path, timing: LeaseTiming) -> AsyncGenerator[Arena]:
    """A place to compete, which leaves nothing behind."""
    made = Arena(hub, folder, timing)
    async with asyncio.timeout(4 * DEADLINE_SECONDS), made.stack:
        yield made
        made.assert_never_two()


@pytest.mark.full
async def test_never_two_leaders_act(hub_connection: Connection, tmp_path: Path):
    """Through SIGSTOP and SIGCONT, kill -9, cut wires, lost requests and a deleted Lease."""
    async with arena(hub_connection, tmp_path, SHORT) as place:
        for identity in ("a", "b", "c"):
            await place.start(identity)
        first = await place.leader()

        await pause(place, first)
        await kill(place)
        await interrupt(place)
        await delete_lease(place)
        await cut_off(place)
        await hold_back(place)

        assert len(place.terms()) >= 5


async def pause(place: Arena, leader: Contender) -> None:
    """A leader that slept through its term wakes without it: it follows without another act."""
    leader.process.send_signal(signal.SIGSTOP)
    await place.leader(after=time.monotonic(), not_=leader.identity)
    leader.process.send_signal(signal.SIGCONT)

    await place.loses(leader)
    await place.stands_by(leader)
    await place.start("d")


async def kill(place: Arena) -> None:
    """A leader that is gone is followed after one term."""
    leader = await place.leader(after=time.monotonic())
    leader.process.kill()
    await place.start("e")

    await place.leader(after=time.monotonic(), not_=leader.identity)


async def interrupt(place: Arena) -> None:
    """A short interruption for all of them changes nothing."""
    leader = await place.leader(after=time.monotonic())
    for contender in place.contenders.values():
        await contender.wire.cut()

    await place.still_leads(leader)


async def delete_lease(place: Arena) -> None:
    """A Lease that somebody deletes is written again by its holder, and nobody else takes it."""
    leader = await place.leader(after=time.monotonic())
    for contender in place.contenders.values():
        if contender is not leader and contender.process.returncode is None:
            await place.stands_by(contender)
    async with Client(place.hub) as client:
        await client.delete(LEASES, Key("default", place.lease))

        await place.still_leads(leader)
        lease = await client.get(LEASES, place.lease, "default")
    assert lease["spec"]["holderIdentity"] == leader.identity


async def cut_off(place: Arena) -> None:
    """A leader without a way to the server stops before another begins, and follows later."""
    leader = await place.leader(after=time.monotonic())
    leader.wire.refusing = True
    await leader.wire.cut()
    await place.start("f")

    await place.leader(after=time.monotonic(), not_=leader.identity)
    await place.loses(leader)
    leader.wire.refusing = False
    await place.stands_by(leader)


async def hold_back(place: Arena) -> None:
    """Requests that arrive when another leads already do no harm."""
    leader = await place.leader(after=time.monotonic())
    leader.wire.open.clear()
    follower = await place.leader(after=time.monotonic(), not_=leader.identity)
    leader.wire.open.set()

    await place.loses(leader)
    await place.still_leads(follower)
    await place.stands_by(leader)


async def test_a_leader_that_ends_gives_the_lease_back(hub_connection: Connection, tmp_path: Path):
    """After SIGTERM another one leads at once, though the Lease would hold much longer."""
    timing = LeaseTiming(lease_seconds=3600, renew_seconds=1800, retry_seconds=0.4)
    async with arena(hub_connection, tmp_path, timing) as place:
        first = await place.start("first")
        await place.leader()
        second = await place.start("second")
        await place.stands_by(second)
        first.process.send_signal(signal.SIGTERM)

        await place.leader(not_="first")
        assert await first.end() == 0


async def test_a_server_that_is_away_longer_than_the_lease_finds_the_same_processes(
    lent: Lent, tmp_path: Path
):
    """None acts meanwhile, none ends, and one of them leads afterwards."""
    server = processes.recorded(lent.folder)["hub.kube-apiserver"]
    async with arena(lent.connection, tmp_path, SHORT) as place:
        for identity in ("a", "b"):
            await place.start(identity)
        leader = await place.leader()
        for other in place.contenders.values():
            if other is not leader:
                await place.stands_by(other)

        os.kill(server.pid, signal.SIGSTOP)
        try:
            await place.loses(leader)
            stopped = time.monotonic()
        finally:
            os.kill(server.pid, signal.SIGCONT)
        next_leader = await place.leader(after=stopped)

        await place.still_leads(next_leader)
        assert all(each.lives() for each in place.contenders.values()), place.logs()


@pytest.mark.full
async def test_a_server_that_crashes_and_comes_back_finds_one_leader(
    pool: Pool, lent: Lent, tmp_path: Path
):
    """The old one if it was quick, else another; never both."""
    timing = LeaseTiming(lease_seconds=8, renew_seconds=6, retry_seconds=0.5)
    async with arena(lent.connection, tmp_path, timing) as place:
        for identity in ("a", "b"):
            await place.start(identity)
        await place.leader()

        server = processes.recorded(lent.folder)["hub.kube-apiserver"]
        os.kill(server.pid, signal.SIGKILL)
        await pool.ground.up(0)

        assert processes.recorded(lent.folder)["hub.kube-apiserver"].pid != server.pid
        await place.leader(after=time.monotonic() + timing.lease_seconds)


@asynccontextmanager
async def leading(client: Client, name: str) -> AsyncGenerator[Leader]:
    """A leader in this process."""
    leader = Leader(client, Key("default", name), "me", LeaderOptions(timing=SHORT))
    async with asyncio.timeout(DEADLINE_SECONDS):
        task = asyncio.ensure_future(leader.run())
        try:
            await leader.leading.wait()
            yield leader
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def lease_when(client: Client, name: str, holds: Callable[[Object], bool]) -> Object:
    """The Lease as soon as it is as it should be."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            with suppress(NotFound):
                lease = await client.get(LEASES, name, "default")
                if holds(lease):
                    return lease
            await asyncio.sleep(0.05)


async def test_the_record_is_the_one_that_client_go_reads(hub: Client):
    """All fields while it is held; an empty holder, to be taken at once, after it was released."""
    async with leading(hub, "record") as leader:
        held = await hub.get(LEASES, "record", "default")
        leader.require()
    released = await hub.get(LEASES, "record", "default")

    spec = held["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("me", 4)
    assert spec["leaseTransitions"] == 0
    for name in ("acquireTime", "renewTime"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", spec[name])
    assert released["spec"].get("holderIdentity", "") == ""
    assert released["spec"]["leaseDurationSeconds"] == 1
    assert not leader.leads()


async def test_a_lease_that_a_go_process_released_is_taken_and_counted_on(hub: Client):
    """As client-go leaves it behind."""
    moment = "2026-11-15T12:00:00.000000Z"
    await hub.create(
        LEASES,
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "from-go", "namespace": "default"},
            "spec": {
                "holderIdentity": "",
                "leaseDurationSeconds": 1,
                "acquireTime": moment,
                "renewTime": moment,
                "leaseTransitions": 6,
            },
        },
    )
    async with leading(hub, "from-go"):
        lease = await hub.get(LEASES, "from-go", "default")

    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("me", 7)


async def test_somebody_who_edits_the_lease_does_not_disturb_its_holder(hub: Client):
    """The conflict is read, and the renewal written again."""
    async with leading(hub, "edited") as leader:
        edited = await hub.patch(
            LEASES, Key("default", "edited"), {"metadata": {"labels": {"edited": "yes"}}}
        )
        renewed = await lease_when(
            hub, "edited", lambda it: it["spec"]["renewTime"] > edited["spec"]["renewTime"]
        )
        leader.require()

    assert renewed["metadata"]["labels"] == {"edited": "yes"}
    assert renewed["spec"]["acquireTime"] == edited["spec"]["acquireTime"]


async def test_a_lease_taken_by_force_ends_leading(hub: Client):
    """Somebody wrote another holder: the fence closes at the next renewal."""
    leader = Leader(hub, Key("default", "forced"), "me", LeaderOptions(timing=SHORT))
    async with asyncio.timeout(DEADLINE_SECONDS):
        task = asyncio.ensure_future(leader.run())
        await leader.leading.wait()
        await hub.patch(LEASES, Key("default", "forced"), {"spec": {"holderIdentity": "somebody"}})

        with pytest.raises(LostLeadership, match="somebody leads"):
            await task
    with pytest.raises(LostLeadership):
        leader.require()
    lease = await hub.get(LEASES, "forced", "default")
    assert lease["spec"]["holderIdentity"] == "somebody"
