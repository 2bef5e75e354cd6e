"""Spokes that misbehave in every way there is, beside good ones, under a real hub and operator.

Set KNFLEET_HOSTILE_SECONDS to let the long one run for another time than two minutes.
"""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec import Struct, field

from knfleet.api.core import LEASES
from knfleet.api.inventory import PROFILES
from knfleet.api.meta import Key, Object
from knfleet.apply.manifest_fields import items, part
from knfleet.clusters.connection import MEMORY_LIMIT_BYTES
from knfleet.kube.cache.informer import StoreChange
from testbed import small_release
from testbed.clusters import Lent
from testbed.fakes.lean.hostile import MODES
from testbed.fakes.proxies import Wire
from testbed.scale import FLEET, Stage, a_stage

LONG_SECONDS = float(os.environ.get("KNFLEET_HOSTILE_SECONDS", "120"))
LIMIT_SECONDS = 120.0
STEP_SECONDS = 4.0
BAD, GOOD = 4, 3
HANDSHAKE = "handshake"
WAYS = (*MODES, "cut", "hung", HANDSHAKE)
STEPS = -(-len(WAYS) // BAD)
"""So many steps show every way."""
LOG_LINES = 1000
"""More than all that is worth telling; what spokes send is counted in tens of thousands."""
SLACK_BYTES = 48 * 2**20
"""What the allocator may keep more or less of."""


class Gate(Wire):
    """The way to a spoke, on which connections can be cut during their handshake."""

    is_cutting = False

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection, or end it when the client has greeted."""
        if self.is_cutting:
            await reader.read(1)
        else:
            await super().carry(reader, writer)


class Scene(Struct):
    """What takes part, and what was seen."""

    stage: Stage
    gates: dict[str, Gate]
    good: list[str]
    memory: list[int] = field(default_factory=list[int])
    renewals: set[str] = field(default_factory=set[str])
    holders: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    changes: list[float] = field(default_factory=list[float])
    """How long each change of a good spoke took."""
    harmed: list[str] = field(default_factory=list[str])
    """What was said of good spokes that were not reached."""

    def note(self, change: StoreChange) -> None:
        """See whether the target of a good one is not reached."""
        found = items(part(change.new or {}, "status"), "conditions")
        said = {each["type"]: each for each in found}.get("TargetClusterResolved", {})
        if change.key.name in self.good and said.get("status") != "True":
            self.harmed.append(f"{change.key.name}: {said}")

    async def step(self, number: int) -> None:
        """Let each bad spoke do harm in its next way, and change the good ones all the while."""
        for place, (name, gate) in enumerate(self.gates.items()):
            way = WAYS[(number * BAD + place) % len(WAYS)]
            gate.is_cutting = way == HANDSHAKE
            await self.stage.farm.behave([name], "well" if gate.is_cutting else way)
            await gate.cut()
        ends = time.monotonic() + STEP_SECONDS
        for turn in itertools.count():
            for name in self.good:
                word = f"word-{number}-{turn}"
                self.changes.append(await self.stage.change_one(name, word, LIMIT_SECONDS))
            await self.look()
            if time.monotonic() >= ends:
                return

    async def look(self) -> None:
        """Note who leads, since when, and how much memory is held."""
        (lease,) = (await self.stage.hub.client.list(LEASES, FLEET)).items
        spec = lease["spec"]
        self.renewals.add(spec["renewTime"])
        self.holders.add((spec["holderIdentity"], spec["leaseTransitions"]))
        self.memory.append(self.stage.operator.memory)

    @property
    def peak(self) -> int:
        """The most memory that the operator ever held, in bytes."""
        process = self.stage.operator.process
        assert process is not None
        status = Path(f"/proc/{process.pid}/status").read_text()
        (line,) = (each for each in status.splitlines() if each.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024

    def figures(self) -> str:
        """What was measured, for people."""
        mib = [each / 2**20 for each in (self.memory[0], self.peak, self.memory[-1])]
        quarters = [len(self.memory) * number // 4 for number in range(5)]
        peaks = [max(self.memory[a:b]) >> 20 for a, b in itertools.pairwise(quarters) if a < b]
        slowest, middle = max(self.changes), sorted(self.changes)[len(self.changes) // 2]
        return (
            f"memory {mib[0]:.0f} MiB before, {mib[1]:.0f} at most, {mib[2]:.0f} at the end, "
            f"by quarters {peaks}; "
            f"{len(self.changes)} changes of good spokes, {middle:.2f} s each, {slowest:.2f} s at "
            f"most; {len(self.renewals)} renewals of the Lease seen"
        )


@pytest.fixture
async def scene(lent: Lent, tmp_path: Path) -> AsyncIterator[Scene]:
    """Spokes on which Serving is installed, some of them behind gates."""
    (tmp_path / "releases").mkdir()
    releases = small_release.write(tmp_path / "releases")
    async with (
        a_stage(lent, tmp_path, releases, spokes=BAD + GOOD) as stage,
        AsyncExitStack() as on,
    ):
        names = [place.name for place in stage.farm.places]
        gates = {
            place.name: await on.enter_async_context(Gate(place.server))
            for place in stage.farm.places[:BAD]
        }
        for name, gate in gates.items():
            await lead(stage, name, gate)
        await stage.start("--v=0")
        await stage.install(LIMIT_SECONDS)
        scene = Scene(stage, gates, names[BAD:])
        stage.servings.on_change(scene.note)
        await scene.look()
        yield scene


async def lead(stage: Stage, name: str, gate: Gate) -> None:
    """Have the way to a spoke go through a gate."""
    key = Key(FLEET, name)
    status: Object = (await stage.hub.client.get(PROFILES, name, FLEET))["status"]
    status["accessProviders"][0]["cluster"]["server"] = gate.url
    await stage.hub.client.patch(PROFILES, key, {"status": status}, subresource="status")


async def harm(scene: Scene, seconds: float) -> None:
    """Misbehave in every way, for so long at least, and see that nothing else suffers."""
    ends = time.monotonic() + seconds
    number = 0
    while number < STEPS or time.monotonic() < ends:
        await scene.step(number)
        number += 1
    print(scene.figures())
    # Each spoke takes no more than it may, and takes that only once.
    assert scene.peak - scene.memory[0] < BAD * MEMORY_LIMIT_BYTES + SLACK_BYTES
    assert scene.harmed == []
    assert len(scene.stage.operator.said().splitlines()) < LOG_LINES + 3 * len(scene.changes)
    assert len(scene.holders) == 1
    assert len(scene.renewals) > 1


@pytest.mark.full
async def test_the_hub_and_good_spokes_do_not_notice_bad_ones(scene: Scene) -> None:
    """Each way once."""
    await harm(scene, 0)


@pytest.mark.soak
async def test_bad_spokes_take_no_more_memory_the_longer_they_go_on(scene: Scene) -> None:
    """What they may take at once is the limit of each pass through all ways, and of all passes.

    Which ways coincide is chance, so that one half of the time may well take more than the other.
    """
    await harm(scene, LONG_SECONDS)
