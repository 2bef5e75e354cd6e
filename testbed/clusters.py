"""Lends real clusters to tests: made when first asked for, and made like new after each test."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Protocol
from weakref import WeakKeyDictionary

from msgspec import Struct

from knfleet.api.core import CRDS
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.api.crds.generator import definitions
from knfleet.dev import control_plane, processes
from knfleet.dev.binaries import locate
from knfleet.dev.dev_clusters import DevClusters
from knfleet.dev.dev_folder import DevFolder
from knfleet.dev.errors import DevError
from knfleet.dev.network.holder import InnerSockets
from knfleet.install.hub_manifests import hub_objects
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from testbed.reset import keep_definitions, remember, reset


def kubectl() -> str:
    """The path of a kubectl that fits the clusters; `make test` sees to it that there is one."""
    tools, notes = locate.search(locate.cache_folder())
    assert "kubectl" in tools, f"run `make ground` first; {notes}"
    return str(tools["kubectl"].path)


FEW_AT_ONCE = ClientOptions(concurrency=6)
"""Sixty small lists are not worth sixty connections."""


class Lent(Struct, frozen=True):
    """A real cluster that belongs to one test while it runs."""

    name: str
    connection: Connection
    kubeconfig: Path
    folder: DevFolder
    entering: tuple[str, ...] = ()
    """The words in front of a command that is to run in its network, if it has one of its own."""
    inner_sockets: InnerSockets | None = None
    """Makes sockets in that network."""

    @property
    def pods_folder(self) -> Path:
        """Where pods that are processes keep their files."""
        return self.folder.cluster(self.name) / "pods"


ISOLATED = "isolated"


class Lend(Protocol):
    """Lends as many clean clusters as are asked for, the hub first."""

    async def __call__(self, count: int, *, definitions: bool = False) -> list[Lent]: ...


@cache
def own_definitions() -> frozenset[str]:
    """The names of all CRDs that we install on hubs and spokes."""
    made = [*hub_objects(), *spoke_definitions(), *definitions()]
    return frozenset(each["metadata"]["name"] for each in made if each["kind"] == CRDS.kind)


class Pool:
    """The control planes of one test worker."""

    def __init__(
        self, root: Path, ground: Callable[[DevFolder], DevClusters] = DevClusters
    ) -> None:
        self.folder = DevFolder(root)
        self.ground = ground(self.folder)
        self.janitor = subprocess.Popen(
            [sys.executable, "-m", "knfleet.dev.cleanup", str(root)], stdin=subprocess.PIPE
        )
        self.used: set[str] = set()
        self.turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        """Held while a cluster is replaced, by event loop: a test may clean several at once."""

    async def lend(self, count: int, *, definitions: bool = False) -> list[Lent]:
        """So many clusters, clean and ready; the hub first.

        With `definitions`, CRDs of ours that are there already stay, for a test that installs them
        anyway: to remove and to make them takes the server seconds.
        """
        kept = own_definitions() if definitions else frozenset[str]()
        async with asyncio.timeout(240):
            state = await self.ground.up(count - 1)
            names = [each.name for each in state.clusters if each.outbound is None][:count]
            return [await self.lent(name, kept) for name in names]

    async def lend_isolated(self) -> list[Lent]:
        """A hub, and a spoke that nothing can connect to, but which reaches the hub."""
        async with asyncio.timeout(240):
            state = await self.ground.up(0, {ISOLATED: ()})
            return [await self.lent(name) for name in (state.clusters[0].name, ISOLATED)]

    async def lent(self, name: str, kept: frozenset[str] = frozenset()) -> Lent:
        """One cluster, clean but for CRDs to be kept."""
        await self.clean(name, kept)
        return Lent(
            name,
            self.ground.connection(name),
            self.folder.cluster(name) / "admin.kubeconfig",
            self.folder,
            tuple(self.ground.entering(name)),
            control_plane.inner_sockets(self.folder, self.ground.cluster(name)),
        )

    async def clean(self, name: str, kept: frozenset[str] = frozenset()) -> None:
        """Make a used cluster like new but for CRDs to be kept; one that resists is replaced."""
        if name not in self.used:
            await remember(self.folder, name)
            self.used.add(name)
            return
        try:
            async with Client(self.ground.connection(name), FEW_AT_ONCE) as client:
                await reset(client, self.folder, name, kept)
        except DevError:
            await self.renew(name)

    async def keep_definitions(self, name: str) -> None:
        """Have the CRDs of a cluster stay whenever it is made like new."""
        await keep_definitions(self.folder, name)

    async def renew(self, name: str) -> None:
        """Replace a cluster by a new one, whatever is in it."""
        async with self.turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            await self.ground.renew(name)
        await remember(self.folder, name)

    def close(self) -> None:
        """Take everything down, and make sure that nothing is left."""
        started = processes.recorded(self.folder).values()
        assert self.janitor.stdin is not None
        self.janitor.stdin.close()
        assert self.janitor.wait(timeout=60) == 0

        assert [each.name for each in started if each.live() is not None] == []
        assert not self.folder.root.exists()
