"""A hub with spokes: profiles, a credential plugin that tests can spoil, a way to each spoke."""

import asyncio
import base64
import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from knfleet.api.core import CLUSTER_ROLE_BINDINGS, CONFIG_MAPS, NAMESPACES, PODS, SERVICE_ACCOUNTS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.dev import ports, processes
from knfleet.dev.cluster_contents import contents
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from testbed.clusters import Lent
from testbed.operators import HOME, Hub, Operator
from testbed.waiting import until

FLEET = "fleet"
PROVIDER = "files"
ANCHOR = "knativeserving-knative-root-owner"
HEALTHY = {"type": "ControlPlaneHealthy", "status": "True", "reason": "Fine", "message": ""}
PLUGIN = """#!/bin/sh
name=$(printf %s "$KUBERNETES_EXEC_INFO" | sed 's/.*"clusterName":"\\([^"]*\\)".*/\\1/')
cd "$(dirname "$0")" || exit 9
if [ -f "$name.sh" ]; then . "./$name.sh"; fi
cat "$name.json"
"""
SMALL: dict[str, Any] = {"version": "1.23.0", "ingress": {}}


class Road:
    """The way to a spoke: a port that leads to its API server, and can be moved or closed."""

    def __init__(self, server: str) -> None:
        self.host, self.target = urlsplit(server).hostname or "", urlsplit(server).port
        self.port = 0
        self.server: asyncio.Server | None = None
        self.travellers: set[asyncio.Task[None]] = set()

    async def open(self, state: Path) -> str:
        """Open it at a new port; the address."""
        (self.port,) = ports.reserve(1, ports.DEFAULT_RANGE, state)
        self.server = await asyncio.start_server(self.carry, "127.0.0.1", self.port)
        return f"https://127.0.0.1:{self.port}"

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        task = asyncio.current_task()
        assert task is not None
        self.travellers.add(task)
        try:
            back, forth = await self.connect()
            async with asyncio.TaskGroup() as group:
                group.create_task(pour(reader, forth))
                group.create_task(pour(back, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self.travellers.discard(task)
            writer.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the API server."""
        return await asyncio.open_connection(self.host, self.target)

    async def close(self) -> None:
        """Close it, and cut everything on it."""
        if self.server is not None:
            self.server.close()
            for task in list(self.travellers):
                task.cancel()
            await asyncio.gather(*self.travellers, return_exceptions=True)
            self.server = None


async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Hand on what comes."""
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


class SpokeCluster(Hub):
    """A spoke that tests look at."""

    def __init__(self, lent: Lent, client: Client, plugins: Path) -> None:
        super().__init__(lent, client)
        self.name = lent.name
        self.plugins = plugins
        self.road: Road | None = None

    async def enter(self) -> None:
        """Make an administrator's account, and have the plugin print its token."""
        meta: Object = {"name": "hub-access", "namespace": "default"}
        account: Object = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
        await self.client.apply(SERVICE_ACCOUNTS, account)
        binding: Object = {
            "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
            "kind": CLUSTER_ROLE_BINDINGS.kind,
            "metadata": {"name": "hub-access"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"kind": "ServiceAccount", **meta}],
        }
        await self.client.apply(CLUSTER_ROLE_BINDINGS, binding)
        await self.renew_token()
        self.before = set(await contents(self.client))

    async def renew_token(self) -> None:
        """Have the plugin print a new token."""
        asked: Object = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 7200},
        }
        answer = await self.client.create(
            SERVICE_ACCOUNTS, asked, "default", name="hub-access", subresource="token"
        )
        printed = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": answer["status"]["token"]},
        }
        write(self.plugins / f"{self.name}.json", json.dumps(printed))

    async def revoke_token(self) -> None:
        """Make all tokens worthless."""
        await self.client.delete(SERVICE_ACCOUNTS, Key("default", "hub-access"))

    def spoil(self, script: str) -> None:
        """Have the plugin do something else first, for this spoke alone."""
        write(self.plugins / f"{self.name}.sh", script)

    def mend(self) -> None:
        """Have the plugin do its work again."""
        (self.plugins / f"{self.name}.sh").unlink()

    def cluster(self, server: str = "") -> Object:
        """How a profile leads to this spoke."""
        endpoint = self.lent.connection.endpoint
        assert endpoint.ca is not None
        return {
            "server": server or endpoint.server,
            "certificate-authority-data": base64.b64encode(endpoint.ca).decode(),
            "extensions": [
                {
                    "name": "client.authentication.k8s.io/exec",
                    "extension": {"clusterName": self.name},
                }
            ],
        }

    def signal(self, blow: signal.Signals) -> None:
        """Send a signal to the API server."""
        known = processes.recorded(self.lent.folder)
        os.kill(known[f"{self.name}.kube-apiserver"].pid, blow)

    async def anchor(self, name: str = ANCHOR) -> Object:
        """The anchor of a custom resource."""
        return await self.client.get(CONFIG_MAPS, name, "knative-serving")

    async def pods(self) -> dict[str, str]:
        """The pods of Serving, with their uids."""
        found = await self.client.list(PODS, "knative-serving")
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found.items}

    async def is_bare(self) -> bool:
        """Whether nothing is left but the Namespace."""
        return not [each for each in await self.left() if not is_namespace(each)]

    async def bare(self) -> None:
        """Wait until nothing is left but the Namespace."""
        left: list[str] = []

        async def holds() -> bool:
            nonlocal left
            left = [each for each in await self.left() if not is_namespace(each)]
            return not left

        try:
            await until(holds, "nothing is left")
        except AssertionError:
            raise AssertionError(f"there is still {left}") from None


def is_namespace(text: str) -> bool:
    """Whether something is a Namespace of Knative, or what every Namespace has."""
    plural, _, key = text.partition(" ")
    usual = ("kube-root-ca.crt", "default")
    return (plural, key) == ("namespaces", "knative-serving") or (
        key.startswith("knative-serving/") and key.partition("/")[2] in usual
    )


class Fleet:
    """A hub, its spokes, and the operator."""

    def __init__(self, hub: Hub, spokes: list[SpokeCluster], folder: Path, releases: Path) -> None:
        self.hub = hub
        self.spokes = {spoke.name: spoke for spoke in spokes}
        self.folder = folder
        self.providers = folder / "providers.json"
        self.operator = Operator(hub.lent.kubeconfig, releases, folder / "operator.log")

    @property
    def one(self) -> SpokeCluster:
        """The first spoke."""
        return self.spokes["spoke1"]

    @property
    def two(self) -> SpokeCluster:
        """The second spoke."""
        return self.spokes["spoke2"]

    async def start(self, *flags: str) -> None:
        """Start the operator with the provider file."""
        file = f"--clusterprofile-provider-file={self.providers}"
        await self.operator.start(*(flags or ("--disable-ha", file)), SYSTEM_NAMESPACE=FLEET)

    def provide(self, *names: str) -> None:
        """Write the provider file."""
        plugin = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(self.folder / "plugins" / "plugin"),
            "provideClusterInfo": True,
        }
        entries = [{"name": name, "execConfig": plugin} for name in names]
        write(self.providers, json.dumps({"providers": entries}))

    async def profile(self, name: str, **status: Any) -> None:
        """Publish a profile, or change its status."""
        manifest: Object = {
            "apiVersion": PROFILES.api_version,
            "kind": PROFILES.kind,
            "metadata": {"name": name, "namespace": FLEET},
            "spec": {"displayName": name, "clusterManager": {"name": "test"}},
        }
        await self.hub.client.apply(PROFILES, manifest)
        given = {"conditions": [HEALTHY | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]} | status
        if name in self.spokes and "accessProviders" not in status:
            access = {"name": PROVIDER, "cluster": self.spokes[name].cluster()}
            given["accessProviders"] = [access]
        await self.hub.client.patch(
            PROFILES, Key(FLEET, name), {"status": given}, subresource="status"
        )

    async def drop_profile(self, name: str) -> None:
        """Delete a profile."""
        await self.hub.client.delete(PROFILES, Key(FLEET, name))

    async def deploy(self, name: str = "knative", *, on: str = "spoke1", **spec: Any) -> Object:
        """Ask for Serving on a spoke."""
        profile = {"name": on, "namespace": FLEET}
        return await self.hub.create(SERVINGS, name, clusterProfileRef=profile, **(SMALL | spec))

    async def lost(self, *words: str, reason: str, name: str = "knative") -> str:
        """Wait until the target of a custom resource is not resolved, for a reason."""
        said: Object = {}

        async def holds() -> bool:
            nonlocal said
            said = await self.hub.condition(SERVINGS, "TargetClusterResolved", name)
            fits = all(word in said.get("message", "") for word in words)
            return said["status"] == "False" and said.get("reason") == reason and fits

        try:
            await until(holds, f"{reason} is told")
        except AssertionError as error:
            raise AssertionError(f"{error}; it says {said}") from error
        return said["message"]

    async def conditions(self, name: str = "knative") -> dict[str, str]:
        """The status of each condition."""
        found = await self.hub.get(SERVINGS, name)
        return {each["type"]: each["status"] for each in found["status"]["conditions"]}

    async def annotate(
        self, resource: Resource = SERVINGS, name: str = "knative", **values: str | None
    ) -> None:
        """Write some of our annotations on a custom resource."""
        known = {
            "lost": "knfleet.dev/on-lost-target",
            "grace": "knfleet.dev/lost-target-grace",
            "uid": "knfleet.dev/target-uid",
            "trigger": "reconcile.knative.dev/trigger",
        }
        given = {known[word]: value for word, value in values.items()}
        patch: Object = {"metadata": {"annotations": given}}
        await self.hub.client.patch(resource, Key(HOME[resource], name), patch)

    async def stones(self) -> list[Object]:
        """The tombstones on the hub."""
        found = await self.hub.client.list(CONFIG_MAPS, FLEET, labels="knfleet.dev/tombstone=true")
        return found.items


def write(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file as a whole, so that nobody reads half of it."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text)
    fresh.chmod(mode)
    fresh.replace(path)


@asynccontextmanager
async def gather(lents: list[Lent], folder: Path, releases: Path) -> AsyncGenerator[Fleet]:
    """A fleet of clean clusters, with a profile for each spoke; the operator is not started."""
    plugins = folder / "plugins"
    plugins.mkdir()
    write(plugins / "plugin", PLUGIN, 0o700)
    clients = [Client(lent.connection) for lent in lents]
    spokes = [
        SpokeCluster(lent, client, plugins)
        for lent, client in zip(lents[1:], clients[1:], strict=True)
    ]
    fleet = Fleet(Hub(lents[0], clients[0]), spokes, folder, releases)
    try:
        namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": FLEET}}
        await fleet.hub.client.apply(NAMESPACES, namespace)
        await fleet.hub.prepare()
        fleet.provide(PROVIDER)
        for spoke in spokes:
            await spoke.enter()
            await fleet.profile(spoke.name)
        yield fleet
    finally:
        await fleet.operator.kill()
        for spoke in spokes:
            with suppress(ProcessLookupError):
                spoke.signal(signal.SIGCONT)
            if spoke.road is not None:
                await spoke.road.close()
        for client in clients:
            await client.close()


async def is_gone(client: Client, resource: Resource, key: Key) -> bool:
    """Whether an object is not there."""
    try:
        await client.get(resource, key.name, key.namespace)
    except NotFound:
        return True
    return False
