"""A fake hub with profiles, fake spokes behind TLS, and plugins that are real programs."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from knfleet.api.core import NAMESPACES
from knfleet.api.inventory import PROFILES
from knfleet.api.meta import HUB, Key, Object
from knfleet.clusters.connection_state import ClusterState, Phase
from knfleet.clusters.pool import ClusterPool, PoolPolicy
from knfleet.clusters.provider_file import ProviderFile
from knfleet.clusters.timing import ClusterTiming
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.runtime.manager import Manager
from testbed.fakes.apiserver import ApiServers
from testbed.fakes.certificates import Authority
from testbed.fakes.cluster import Cluster
from testbed.fakes.lean.leanhttp import Behaviour, Served
from testbed.fakes.lean.leanhttp import Connection as LeanConnection
from testbed.fakes.lean.leanspoke import Bodies
from testbed.fakes.server import server_context
from testbed.fakes.sockets import loopback_socket
from testbed.waiting import until

TOKEN = "sesame-open"
V1 = "client.authentication.k8s.io/v1"
HEALTHY = {"type": "ControlPlaneHealthy", "status": "True", "reason": "Fine", "message": ""}
QUICK = ClusterTiming(
    probe=0.2,
    soonest=0.02,
    answer=0.5,
    connect=2.0,
    retry=0.05,
    retry_limit=0.1,
    plugin_retry_limit=0.2,
    excess=0.1,
    excess_limit=0.2,
    patience=1.0,
    reading=0,
    look=0.05,
)
"""Everything happens a few times a second, so that tests are quick."""


def profile(
    name: str,
    server: str,
    ca: bytes = b"",
    *,
    conditions: list[Object] | None = None,
    provider: str = "test",
    **cluster: object,
) -> Object:
    """A healthy profile with one access provider."""
    where = {"server": server, **cluster}
    if ca:
        where["certificate-authority-data"] = base64.b64encode(ca).decode()
    return {
        "apiVersion": PROFILES.api_version,
        "kind": PROFILES.kind,
        "metadata": {"name": name, "namespace": "fleet"},
        "spec": {"clusterManager": {"name": "tests"}},
        "status": {
            "conditions": [HEALTHY] if conditions is None else conditions,
            "accessProviders": [{"name": provider, "cluster": where}],
        },
    }


def token_script(token: str = TOKEN) -> str:
    """A plugin that prints a token."""
    credential = {"apiVersion": V1, "kind": "ExecCredential", "status": {"token": token}}
    return f"#!/bin/sh\necho '{json.dumps(credential)}'\n"


HANGING = "#!/bin/sh\nexec sleep 600\n"


def key(name: str) -> Key:
    """The key of a spoke's profile."""
    return Key("fleet", name)


class Fleet:
    """A hub and its spokes, all fake, and the real code that connects to them."""

    def __init__(self, folder: Path, servers: ApiServers, authority: Authority) -> None:
        self.folder = folder
        self.servers = servers
        self.authority = authority
        self.hub = servers.add("hub", Cluster(NAMESPACES, PROFILES))
        self.told: list[Key] = []
        self.write_plugin("plugin", token_script())
        self.write_providers(test="plugin")

    @property
    def file(self) -> Path:
        """The provider file."""
        return self.folder / "providers.json"

    def write_plugin(self, name: str, script: str) -> Path:
        """Make a plugin, or replace it as a package manager does."""
        path = self.folder / name
        fresh = self.folder / f"{name}.new"
        fresh.write_text(script)
        fresh.chmod(0o755)
        fresh.rename(path)
        return path

    def write_providers(self, **commands: str) -> None:
        """Write the provider file: names, and the plugin of each."""
        entries = [
            {
                "name": name,
                "execConfig": {
                    "apiVersion": V1,
                    "command": str(self.folder / command),
                    "provideClusterInfo": True,
                },
            }
            for name, command in commands.items()
        ]
        self.write_file(json.dumps({"providers": entries}))

    def write_file(self, text: str) -> None:
        """Write the provider file."""
        fresh = self.folder / "providers.new"
        fresh.write_text(text)
        fresh.rename(self.file)

    def add_spoke(self, name: str, *, provider: str = "test") -> Cluster:
        """A spoke and its profile."""
        cluster = self.servers.add(name)
        cluster.put(NAMESPACES, {"metadata": {"name": "kube-system"}})
        self.put_profile(name, provider=provider)
        return cluster

    @asynccontextmanager
    async def lean_spoke(self, name: str) -> AsyncGenerator[Served, None]:
        """A spoke that can be hostile, and its profile."""
        served = Served(name, TOKEN, Bodies(), Behaviour())
        listening = loopback_socket()
        server = await asyncio.get_running_loop().create_server(
            partial(LeanConnection, served),
            sock=listening,
            ssl=server_context(self.authority.server()),
        )
        self.put_profile(name, f"https://127.0.0.1:{listening.getsockname()[1]}")
        try:
            yield served
        finally:
            server.close()
            served.behave("cut")

    def put_profile(self, name: str, server: str = "", **more: object) -> None:
        """Write the profile of a spoke."""
        given = {"ca": self.authority.pem, **more}
        made = profile(name, server or self.servers.url(name), **given)  # pyright: ignore[reportArgumentType]
        self.hub.put(PROFILES, made)

    @asynccontextmanager
    async def running(
        self, policy: PoolPolicy | None = None, *, enabled: bool = True
    ) -> AsyncGenerator[ClusterPool, None]:
        """The code under test, as part of a process."""
        manager = Manager(grace_seconds=5)
        endpoint = Endpoint(self.servers.url("hub"), ca=self.authority.pem)
        credentials = StaticCredential(Credential(token=TOKEN))
        async with Client(Connection(HUB, endpoint, credentials)) as client:
            file = ProviderFile(self.file, look_seconds=0.05) if enabled else None
            if file is not None:
                file.load()
            spokes = ClusterPool(
                client, file, lifetime=manager.lifetime, policy=policy or PoolPolicy(timing=QUICK)
            )
            spokes.on_change(self.told.append)
            spokes.join(manager)
            running = asyncio.create_task(manager.run())
            try:
                yield spokes
            finally:
                manager.stop()
                await running


def state_of(spokes: ClusterPool, name: str) -> ClusterState:
    """The state of a spoke in use."""
    state = spokes.state(key(name))
    assert state is not None
    return state


async def until_phase(
    spokes: ClusterPool, name: str, phase: Phase, reason: str = ""
) -> ClusterState:
    """Wait until a spoke stands like that."""

    def there() -> bool:
        state = state_of(spokes, name)
        return (state.phase, state.reason) == (phase, reason)

    try:
        await until(there, f"{name} {phase} {reason}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it is {state_of(spokes, name)}") from None
    return state_of(spokes, name)


@asynccontextmanager
async def a_fleet(folder: Path) -> AsyncGenerator[Fleet, None]:
    """A hub without spokes."""
    authority = Authority()
    async with ApiServers(tls=server_context(authority.server())) as servers:
        yield Fleet(folder, servers, authority)
