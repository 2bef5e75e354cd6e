"""A hub with spokes to measure on: clean clusters, each spoke registered, both log in alike.

The plugin of every spoke is `cat`, which costs nothing. The Knative Operator sends at most 20
requests a second to a spoke, which no flag of it changes; on the hub it has no limit here.
"""

import contextlib
import signal
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from pathlib import Path

import msgspec
import psutil
from msgspec import Struct

from bench.knative.readiness import ready
from bench.knative.scenarios import SPEC
from bench.resting import lend_rested
from knfleet.api.core import NAMESPACES
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.dev import processes
from knfleet.dev.control_plane import API_SERVER
from knfleet.dev.dev_folder import write_private
from knfleet.dev.manual_profiles import FLEET, manifest, profile_status, spoke_token
from knfleet.kube.client.verbs import Client
from testbed.clusters import Lent, Pool
from testbed.operators import HOME, Hub
from testbed.peers.surroundings import ensure_namespace


class Field(Struct, frozen=True):
    """A hub and its spokes, and where files may be kept."""

    hub: Hub
    spokes: list[Lent]
    folder: Path
    flags: tuple[str, ...]
    """What an operator must be told to reach the spokes."""


@contextlib.asynccontextmanager
async def field(pool: Pool, folder: Path, *, spokes: int) -> AsyncGenerator[Field]:
    """Clean clusters, with every spoke registered on the hub."""
    first, *others = await lend_rested(pool, spokes + 1)
    folder.mkdir()
    async with Client(first.connection) as client:
        hub = Hub(first, client)
        await hub.prepare()
        await ensure_namespace(client, "knative-operator")
        await let_settle(hub)
        flag = await register(hub, others[:spokes], folder)
        yield Field(hub, others[:spokes], folder, (flag,))


async def let_settle(hub: Hub) -> None:
    """Let the hub's API server get over its new CRDs.

    In the first two seconds of a CRD, it answers a create of such an object two seconds later.
    """
    metadata = {"name": "nobody", "namespace": HOME[SERVINGS]}
    manifest: Object = {
        "apiVersion": SERVINGS.api_version,
        "kind": SERVINGS.kind,
        "metadata": metadata,
        "spec": SPEC,
    }
    await hub.client.create(SERVINGS, manifest, dry_run=True)


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


async def ask_for(hub: Hub, spoke: Lent, spec: Object = SPEC) -> None:
    """Ask for Serving on a spoke."""
    reference = {"name": spoke.name, "namespace": FLEET}
    await hub.create(SERVINGS, spoke.name, **spec, clusterProfileRef=reference)


class Installed(Struct, frozen=True):
    """How long an installation took on the last of some spokes, in seconds."""

    available: float
    """Until its Deployments were Available."""
    ready: float


async def install(hub: Hub, spokes: Sequence[Lent], spec: Object = SPEC) -> Installed:
    """Ask for Serving on some spokes at once, and wait until the last of them is Ready."""
    began = time.monotonic()
    for spoke in spokes:
        await ask_for(hub, spoke, spec)
    names = [spoke.name for spoke in spokes]
    available = await ready(hub, SERVINGS, spec["version"], names)
    return Installed(available - began, time.monotonic() - began)


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
