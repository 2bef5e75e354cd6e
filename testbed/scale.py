"""A real hub with many fake spokes, the operator as a process, and what can be done to them."""

import asyncio
import base64
import json
import sys
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil
from msgspec import Struct

from knfleet.api.core import LEASES, NAMESPACES, SECRETS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.apply.manifest_fields import items, part
from knfleet.dev.dev_folder import write_private
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.runtime.shards.rules import MEMBER, View, view_of
from testbed.clusters import Lent
from testbed.fakes.lean.farm import Farm, Place, a_farm
from testbed.operators import Hub, Operator

FLEET = "fleet"
HOME = "knative-serving"
PROVIDER = "scale"
SMALL: Object = {"version": "1.23.0", "ingress": {}}
QUIET_SECONDS = 3.0
"""When nobody asked a spoke anything for so long, all is done."""
LOOK_SECONDS = 0.25
AT_ONCE = 32
V1 = "client.authentication.k8s.io/v1"
SCRIPT = """#!/bin/sh
exec cat "$(dirname "$0")/${KNFLEET_CLUSTER_PROFILE##*/}.json"
"""
"""The cheapest program that can be a plugin."""

T = TypeVar("T")


class Cost(Struct, frozen=True):
    """What processes have used so far."""

    cpu_seconds: float
    plugin_seconds: float
    """CPU of programs that the operator ran."""
    memory_bytes: int

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.cpu_seconds + other.cpu_seconds,
            self.plugin_seconds + other.plugin_seconds,
            self.memory_bytes + other.memory_bytes,
        )

    def __sub__(self, before: "Cost") -> "Cost":
        return Cost(
            self.cpu_seconds - before.cpu_seconds,
            self.plugin_seconds - before.plugin_seconds,
            self.memory_bytes - before.memory_bytes,
        )


NOTHING = Cost(0.0, 0.0, 0)


def cost_of(pid: int) -> Cost:
    """What a process has used so far."""
    process = psutil.Process(pid)
    times = process.cpu_times()
    return Cost(
        times.user + times.system,
        times.children_user + times.children_system,
        process.memory_info().rss,
    )


class Stage:
    """Everything that takes part."""

    def __init__(self, hub: Hub, farm: Farm, folder: Path, releases: Path) -> None:
        self.hub = hub
        self.farm = farm
        self.folder = folder
        self.releases = releases
        self.operators: list[Operator] = []
        self.process: type[Operator] = Operator
        """What is started: the operator alone, or a hub."""
        self.servings = Informer(hub.client, SERVINGS, trim=without_managed_fields)
        self.servings.on_change(self.note)
        self.wanted: dict[str, int] = {}
        """The generation at which each custom resource is waited for."""
        self.pending: set[str] = set()
        """The custom resources that are not ready as they are wanted."""
        self.changed = asyncio.Event()
        self.spec = SMALL
        self.watches = 0
        """How many watches each spoke has when all is done."""

    @property
    def providers(self) -> Path:
        """The provider file."""
        return self.folder / "providers.json"

    @property
    def operator(self) -> Operator:
        """The first operator."""
        return self.operators[0]

    @property
    def size(self) -> int:
        """How many spokes there are."""
        return len(self.farm.places)

    def note(self, change: StoreChange) -> None:
        """A custom resource changed."""
        self.look_at(change.key.name, change.new)
        self.changed.set()

    def look_at(self, name: str, found: Object | None) -> None:
        """See whether a custom resource is ready as it is wanted."""
        wanted = self.wanted.get(name, 0)
        if found is not None and is_ready(found) and found["metadata"]["generation"] >= wanted:
            self.pending.discard(name)
        else:
            self.pending.add(name)

    async def prepare(self, plugin: str) -> None:
        """Make all profiles, with a Secret for each, and the provider file."""
        await self.hub.client.apply(NAMESPACES, manifest("v1", "Namespace", Key("", FLEET)))
        self.provide(plugin)
        await each_of(self.farm.places, self.publish)

    def provide(self, plugin: str) -> None:
        """Write the provider file: our own secretreader, or a script that costs next to nothing."""
        command = str(Path(sys.executable).parent / "secretreader-plugin")
        if plugin == "script":
            for place in self.farm.places:
                answer = {"apiVersion": V1, "kind": "ExecCredential"}
                answer |= {"status": {"token": place.token}}
                write_private(self.folder / f"{place.name}.json", json.dumps(answer).encode())
            script = self.folder / "plugin"
            script.write_text(SCRIPT)
            script.chmod(0o700)
            command = str(script)
        run = {
            "apiVersion": V1,
            "command": command,
            "provideClusterInfo": True,
            "env": [{"name": "KUBECONFIG", "value": str(self.hub.lent.kubeconfig)}],
        }
        given = {"providers": [{"name": PROVIDER, "execConfig": run}]}
        write_private(self.providers, json.dumps(given).encode())

    async def publish(self, place: Place) -> None:
        """Make a spoke known on the hub."""
        client, key = self.hub.client, Key(FLEET, place.name)
        secret = manifest("v1", "Secret", key) | {"stringData": {"token": place.token}}
        profile = manifest(PROFILES.api_version, PROFILES.kind, key)
        profile["spec"] = {"displayName": place.name, "clusterManager": {"name": "scale"}}
        await client.create(SECRETS, secret)
        await client.create(PROFILES, profile)
        healthy = {"type": "ControlPlaneHealthy", "status": "True", "reason": "Fine", "message": ""}
        asked = {"clusterName": place.name, "namespace": FLEET}
        cluster = {
            "server": place.server,
            "certificate-authority-data": base64.b64encode(place.ca.encode()).decode(),
            "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": asked}],
        }
        status = {
            "conditions": [healthy | {"lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "accessProviders": [{"name": PROVIDER, "cluster": cluster}],
        }
        await client.patch(PROFILES, key, {"status": status}, subresource="status")

    async def start(self, *flags: str, number: int = 0) -> Operator:
        """Start an operator."""
        log = self.folder / f"operator{number}.log"
        operator = self.process(self.hub.lent.kubeconfig, self.releases, log)
        self.operators.append(operator)
        file = f"--clusterprofile-provider-file={self.providers}"
        # Installed programs are compiled; the first start compiles this one for all others.
        compiled = {
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(self.folder / "compiled"),
        }
        chosen = flags or ("--disable-ha",)
        await operator.start(*chosen, file, SYSTEM_NAMESPACE=FLEET, **compiled)
        return operator

    async def stop(self) -> None:
        """Stop all operators."""
        for operator in self.operators:
            await operator.stop()
        self.operators.clear()

    def cost(self) -> Cost:
        """What all operators have used so far."""
        return sum(self.costs().values(), NOTHING)

    def costs(self) -> dict[int, Cost]:
        """What each operator has used so far, by its process."""
        running = [each.process.pid for each in self.operators if each.process is not None]
        return {pid: cost_of(pid) for pid in running}

    async def install(self, seconds: float) -> float:
        """Ask for Serving on all spokes; seconds until the last one is ready."""
        began = time.monotonic()
        await each_of(self.farm.places, self.deploy)
        await self.all_ready(seconds)
        return time.monotonic() - began

    async def deploy(self, place: Place) -> None:
        """Ask for Serving on one spoke."""
        profile = {"name": place.name, "namespace": FLEET}
        self.pending.add(place.name)
        await self.hub.create(SERVINGS, place.name, clusterProfileRef=profile, **self.spec)

    async def change(self, word: str, seconds: float) -> float:
        """Change all custom resources; seconds until the last one is ready again."""
        began = time.monotonic()

        async def change(place: Place) -> None:
            await self.ask_for(place.name, word)

        await each_of(self.farm.places, change)
        await self.all_ready(seconds)
        return time.monotonic() - began

    async def change_one(self, name: str, word: str, seconds: float) -> float:
        """Change one custom resource; seconds until it is ready again."""
        began = time.monotonic()
        await self.ask_for(name, word)
        await self.when(lambda: name not in self.pending, seconds)
        return time.monotonic() - began

    async def ask_for(self, name: str, word: str) -> None:
        """Change the spec of a custom resource."""
        patch: Object = {"spec": {"config": {"network": {"scale-word": word}}}}
        changed = await self.hub.client.patch(SERVINGS, Key(HOME, name), patch)
        self.wanted[name] = changed["metadata"]["generation"]
        self.look_at(name, self.servings.get(Key(HOME, name)))

    async def restart(self, seconds: float, *flags: str) -> float:
        """Stop the operator and start it again; seconds from its start until all is done."""
        await self.stop()
        began = time.time()
        await self.start(*flags)
        return await self.steady(seconds) - began

    async def shared_by(self, count: int, seconds: float) -> float:
        """Wait until so many members have published that they are all there is; how long it took.

        Operators that were killed are members until the others know better.
        """
        began = time.monotonic()
        while not is_shared_by(await self.views(), count):
            assert time.monotonic() - began < seconds, f"not shared by {count} in {seconds:g} s"
            await asyncio.sleep(LOOK_SECONDS)
        return time.monotonic() - began

    async def views(self) -> dict[str, View]:
        """The views that members have published, by their Leases."""
        leases = await self.hub.client.list(LEASES, FLEET, labels=f"{MEMBER}=operator")
        return {each["metadata"]["name"]: view_of(each) for each in leases.items}

    async def shares(self) -> dict[str, set[str]]:
        """The spokes of each operator that wrote."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for each in await self.farm.written():
            found[each.who].add(each.spoke)
        return found

    async def all_ready(self, seconds: float) -> None:
        """Wait until all custom resources are ready as they are wanted."""
        try:
            await self.when(lambda: not self.pending, seconds)
        except TimeoutError:
            left = sorted(self.pending)
            raise AssertionError(f"not ready in time: {len(left)}: {left[:5]}") from None

    async def when(self, holds: Callable[[], bool], seconds: float) -> None:
        """Wait until something holds of the custom resources; raises `TimeoutError`."""
        async with asyncio.timeout(seconds):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    async def steady(self, seconds: float) -> float:
        """Wait until all spokes are watched and nobody asks them more than probes; since when."""
        deadline = time.monotonic() + seconds
        while True:
            counts = await self.farm.counts()
            is_quiet = time.time() - counts.busy_at > QUIET_SECONDS
            if is_quiet and counts.fewest_watches >= max(1, self.watches):
                self.watches = counts.fewest_watches
                return counts.busy_at
            assert time.monotonic() < deadline, f"not steady in time: {counts}"
            await asyncio.sleep(LOOK_SECONDS)


def is_shared_by(views: dict[str, View], count: int) -> bool:
    """Whether so many members agree that they are all there is."""
    return any(
        len(view) == count and all(views.get(name) == view for name in view)
        for view in views.values()
    )


def manifest(api_version: str, kind: str, key: Key) -> Object:
    """An object with nothing but a name."""
    meta = {"name": key.name} | ({"namespace": key.namespace} if key.namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}


def is_ready(serving: Object) -> bool:
    """Whether a custom resource is ready as it is wanted now."""
    status = part(serving, "status")
    said = {each["type"]: each["status"] for each in items(status, "conditions")}
    seen = status.get("observedGeneration") == serving["metadata"]["generation"]
    return bool(seen and status.get("version") and said.get("Ready") == "True")


async def each_of(every: Iterable[T], act: Callable[[T], Awaitable[Any]]) -> None:
    """Do something to all, not too many at once."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(each: T) -> None:
        async with places:
            await act(each)

    async with asyncio.TaskGroup() as group:
        for each in every:
            group.create_task(one(each))


@asynccontextmanager
async def a_stage(
    lent: Lent, folder: Path, releases: Path, *, spokes: int, plugin: str = "secretreader"
) -> AsyncGenerator[Stage, None]:
    """A hub and so many spokes with profiles; no operator is started yet."""
    # The hub is asked for much at once here; slots must not be what is measured.
    async with (
        Client(lent.connection, ClientOptions(concurrency=64)) as client,
        a_farm(folder / "farm", spokes) as farm,
    ):
        hub = Hub(lent, client)
        stage = Stage(hub, farm, folder, releases)
        await hub.prepare()
        await stage.prepare(plugin)
        following = asyncio.create_task(stage.servings.run())
        try:
            yield stage
        finally:
            following.cancel()
            await asyncio.wait([following])
            for operator in stage.operators:
                await operator.kill()
