"""Clusters that are reached through the tunnel: real API servers, and the agent as a process."""

import asyncio
import base64
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.cluster.tunnel import ENDPOINT, TUNNEL_CONFIG, TUNNEL_SECRET
from knfleet.api.core import CONFIG_MAPS, NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from knfleet.api.meta import Key, Object
from knfleet.api.operator import AGENT_NAMESPACE, OPERATOR_NAMESPACE
from knfleet.dev import processes
from knfleet.dev.control_plane import API_SERVER
from knfleet.hub.certificates.certificate_secret import write_certificates
from knfleet.hub.certificates.port_certificates import (
    CA_LIFE,
    PortCertificates,
    renewal,
    signed,
)
from knfleet.hub.tunnel.tunnel_server import TunnelServer
from knfleet.kube.auth.credentials import StaticCredential
from knfleet.kube.client.verbs import Client, ClientOptions, ListSelection
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import KubeError, NetworkError
from knfleet.kube.yaml import dump_all
from knfleet.runtime.http.listen_address import ListenAddress
from testbed import clusters as ground
from testbed import hubs
from testbed.clusters import Lend, Lent
from testbed.fakes.sockets import free_port
from testbed.waiting import until
from tests.support.commands import done
from tests.support.tunnel_objects import (
    access_provider,
    consumer,
)
from tests.support.tunnel_scene import TunnelScene, tunnel_scene

pytestmark = pytest.mark.xdist_group("agent")
ONCE = ClientOptions(attempts=1)


@pytest.fixture
async def tunnel(lend: Lend, tmp_path: Path) -> AsyncIterator[TunnelScene]:
    """A hub with our controllers and a tunnel, and a spoke whose agent is not started yet."""
    async with tunnel_scene(await lend(2, definitions=True), tmp_path) as made:
        yield made


async def account_token(hub: Client, name: str, rules: list[Object]) -> str:
    """A token of an account with some rights on the hub."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    await hub.create(SERVICE_ACCOUNTS, account, "default")
    if rules:
        rbac = "rbac.authorization.k8s.io"
        role: Object = {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
        }
        binding: Object = {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }
        manifests: list[Object] = [{**role, "rules": rules}, binding]
        for manifest in manifests:
            kind = await hub.discovery.resource(manifest["apiVersion"], manifest["kind"])
            await hub.create(kind, manifest)
    asked: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    answer = await hub.create(SERVICE_ACCOUNTS, asked, "default", name=name, subresource="token")
    return answer["status"]["token"]


def kubeconfig(connection: Connection, folder: Path) -> Path:
    """What kubectl uses of a connection."""
    assert isinstance(connection.credentials, StaticCredential)
    cluster: Object = {
        "server": connection.endpoint.server,
        "certificate-authority-data": base64.b64encode(connection.endpoint.ca or b"").decode(),
        "proxy-url": connection.endpoint.proxy_url,
    }
    config: Object = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "spoke",
        "contexts": [{"name": "spoke", "context": {"cluster": "spoke", "user": "spoke"}}],
        "clusters": [{"name": "spoke", "cluster": cluster}],
        "users": [
            {"name": "spoke", "user": {"token": connection.credentials.credential.token}},
        ],
    }
    path = folder / "spoke.kubeconfig"
    path.write_text(dump_all([config]))
    return path


async def kubectl(config: Path, *arguments: str) -> str:
    """What kubectl prints."""
    process = await asyncio.create_subprocess_exec(
        *(str(ground.kubectl()), "--kubeconfig", str(config), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    printed, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, printed.decode()
    return printed.decode()


async def test_consumers_of_a_profile_and_users_of_the_hub_reach_the_spoke(
    tunnel: TunnelScene, tmp_path: Path
):
    """What a profile has is enough, its key is of no use elsewhere; users need a right."""
    scene = tunnel.scene
    await scene.agent.start("--tunnel", "always")
    await scene.accept()
    await tunnel.open()
    provider = await tunnel.published(tunnel=True)
    assert provider["server"] == "https://kubernetes.default.svc"
    handed = {name: base64.b64decode(text) for name, text in (await scene.handed_over()).items()}
    assert handed["server"] == b"https://kubernetes.default.svc"
    assert not any(
        scene.agent.spoke.connection.endpoint.server.encode() in each for each in handed.values()
    )
    spoke = await consumer(scene.hub)

    async with Client(spoke, ONCE) as client:
        assert await client.version() == await scene.spoke.version()
        direct = {each["metadata"]["name"] for each in (await scene.spoke.list(NAMESPACES)).items}
        seen = {each["metadata"]["name"] for each in (await client.list(NAMESPACES)).items}
        assert seen == direct
    tunnelled = tunnel.server.registry.get("c1")
    assert tunnelled is not None
    assert tunnelled.status().bytes_received > 0
    assert spoke.endpoint.proxy_url is not None
    assert isinstance(spoke.credentials, StaticCredential)
    assert spoke.credentials.credential.token
    key = spoke.endpoint.proxy_url.partition("@")[0].rpartition(":")[2]
    assert key not in scene.agent.said()

    printed = await kubectl(kubeconfig(spoke, tmp_path), "get", "namespaces", "-o", "name")
    assert {f"namespace/{name}" for name in direct} == set(printed.split())

    hub_config = scene.hub_lent.kubeconfig
    made = tmp_path / "made.kubeconfig"
    made.write_text(await done(hub_config, "kubeconfig", "c1"))
    assert spoke.credentials.credential.token not in made.read_text()
    assert await kubectl(made, "get", "namespaces", "-o", "name") == printed

    async def is_measured() -> bool:
        _, shown = (await done(hub_config, "proxy", "health")).splitlines()
        assert shown.split()[:3] == ["c1", "tunnel", "open"]
        return shown.endswith(" ms")

    await until(is_measured, "the round-trip time is shown")

    async def is_described() -> bool:
        return "round trip" in await done(hub_config, "status", "c1")

    await until(is_described, "the status shows the way and the round-trip time")
    assert "through the tunnel, which is open since" in await done(hub_config, "doctor", "c1")

    wrong = spoke.endpoint.proxy_url.replace("//c1:", "//c2:")
    async with Client(replace(spoke, endpoint=replace(spoke.endpoint, proxy_url=wrong))) as client:
        with pytest.raises(NetworkError, match="routing key for cluster c2 is not valid"):
            await client.version(deadline=10)
    await check_rights(tunnel, spoke)


async def check_rights(tunnel: TunnelScene, spoke: Connection) -> None:
    """Users with tokens of the hub get through if they may `proxy` the ManagedCluster."""
    scene = tunnel.scene
    rule: Object = {
        "apiGroups": [CLUSTERS.group],
        "resources": [CLUSTERS.plural],
        "resourceNames": ["c1"],
        "verbs": ["proxy"],
    }
    allowed = await account_token(scene.hub, "may", [rule])
    denied = await account_token(scene.hub, "may-not", [])

    for password, problem in (
        (allowed, ""),
        (denied, "may-not may not proxy managedclusters"),
        ("eyJhbGciOi.none.such", "does not know this token"),
    ):
        proxy = tunnel.options.front.replace("https://", f"https://c1:{password}@")
        changed = replace(spoke, endpoint=replace(spoke.endpoint, proxy_url=proxy))
        async with Client(changed, ONCE) as client:
            if not problem:
                assert await client.version() == await scene.spoke.version()
                continue
            with pytest.raises(NetworkError, match=problem):
                await client.version(deadline=10)


@pytest.mark.full
async def test_a_cluster_that_nothing_can_connect_to_is_reached_through_its_agent(
    isolated: list[Lent], tmp_path: Path
):
    """Its API server is alone in a network of its own; the hub chooses the tunnel by itself."""
    spoke_lent = isolated[1]
    address = urlsplit(spoke_lent.connection.endpoint.server)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(address.hostname, address.port)
    server = processes.recorded(spoke_lent.folder)[f"{spoke_lent.name}.{API_SERVER}"]
    assert Path(f"/proc/{server.pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    interfaces = Path(f"/proc/{server.pid}/net/dev").read_text().splitlines()[2:]
    assert [line.partition(":")[0].strip() for line in interfaces] == ["lo"]

    async with tunnel_scene(isolated, tmp_path) as tunnel:
        scene = tunnel.scene
        await scene.agent.start()
        await scene.accept()
        await tunnel.open()
        await tunnel.published(tunnel=True)

        through = await consumer(scene.hub)
        direct = replace(through, endpoint=replace(through.endpoint, server=address.geturl()))
        no_proxy = replace(direct, endpoint=replace(direct.endpoint, proxy_url=None))
        async with Client(no_proxy, ONCE) as client:
            with pytest.raises(NetworkError):
                await client.version(deadline=10)
        made = tmp_path / "made.kubeconfig"
        made.write_text(await done(scene.hub_lent.kubeconfig, "kubeconfig", "c1"))
        printed = await kubectl(made, "get", "namespaces", "-o", "name")
        assert f"namespace/{AGENT_NAMESPACE}" in printed.split()


@pytest.mark.full
async def test_a_denied_cluster_loses_its_tunnel_and_comes_back(tunnel: TunnelScene):
    scene = tunnel.scene
    await scene.agent.start("--tunnel", "always")
    await scene.accept()
    await tunnel.open()
    await tunnel.published(tunnel=True)
    spoke = await consumer(scene.hub)

    async with Client(spoke, ONCE) as client:
        with suppress(KubeError):
            async with client.watching(ListSelection(NAMESPACES)) as events:
                change = {"spec": {"hubAcceptsClient": False}}
                await scene.hub.patch(CLUSTERS, Key("", "c1"), change)
                async for _ in events:
                    pass
    await tunnel.closed()
    await until(lambda: not tunnel.server.front.connections, "its streams are over")

    await scene.hub.patch(CLUSTERS, Key("", "c1"), {"spec": {"hubAcceptsClient": True}})
    await tunnel.open()


@pytest.mark.full
async def test_a_cluster_that_the_hub_reaches_itself_needs_no_tunnel(tunnel: TunnelScene):
    """The tunnel is open all the same: when the direct way ends, it is there."""
    scene = tunnel.scene
    await scene.agent.start()
    await scene.accept()
    await tunnel.open()
    await tunnel.published(tunnel=False)


@pytest.mark.full
async def test_a_cluster_that_the_hub_cannot_reach_is_reached_by_the_tunnel(tunnel: TunnelScene):
    scene = tunnel.scene
    await scene.agent.start("--spoke-external-server-urls", "https://127.0.0.1:9")
    await scene.accept()
    await tunnel.open()
    await tunnel.published(tunnel=True)
    async with Client(await consumer(scene.hub), ONCE) as client:
        assert await client.version() == await scene.spoke.version()


async def kept_certificates(hub: Client) -> PortCertificates:
    """The certificates of the tunnel's ports."""
    secret = await hub.get(SECRETS, TUNNEL_SECRET, OPERATOR_NAMESPACE)
    kept = PortCertificates.of(secret)
    assert kept is not None
    return kept


@pytest.mark.full
async def test_certificates_rotate_without_cutting_the_tunnel(tunnel: TunnelScene):
    """First a CA is added to what is trusted, then it signs, then the old one is gone."""
    scene = tunnel.scene
    await scene.agent.start("--tunnel", "always")
    await scene.accept()
    await tunnel.open()
    await tunnel.published(tunnel=True)
    first = tunnel.server.registry.get("c1")
    assert first is not None

    async def trusts(bundle: bytes) -> bool:
        found = await access_provider(scene.hub)
        authorities = base64.b64decode((found or {}).get("certificate-authority-data", ""))
        agents = await scene.hub.get(CONFIG_MAPS, TUNNEL_CONFIG, OPERATOR_NAMESPACE)
        return authorities.endswith(bundle) and agents["data"]["ca.crt"] == bundle.decode()

    async with Client(await consumer(scene.hub), ONCE) as client:
        assert await client.version() == await scene.spoke.version()
        now = datetime.now(UTC)
        old = renewal(None, tunnel.options.names, now - CA_LIFE * 0.8).certificates
        key = Key(OPERATOR_NAMESPACE, TUNNEL_SECRET)
        aged = signed(old, tunnel.options.names, now)
        await write_certificates(scene.hub, key, None, aged)

        async def has_two() -> bool:
            return len((await kept_certificates(scene.hub)).authorities) == 2

        await until(has_two, "a new CA is added")
        both = await kept_certificates(scene.hub)
        assert both.certificate == aged.certificate
        await until(lambda: trusts(both.bundle), "agents and consumers trust both")

        await write_certificates(scene.hub, key, None, signed(both, tunnel.options.names, now))
        await until(lambda: is_alone(scene.hub, both), "the old CA is gone")
        assert await client.version() == await scene.spoke.version()
    assert tunnel.server.registry.get("c1") is first

    first.session.abort("cut")
    await until(lambda: tunnel.server.registry.get("c1") not in (None, first), "the agent is back")
    async with Client(await consumer(scene.hub), ONCE) as client:
        assert await client.version() == await scene.spoke.version()


async def is_alone(hub: Client, before: PortCertificates) -> bool:
    return (await kept_certificates(hub)).authorities == before.authorities[:1]


@pytest.mark.full
async def test_every_replica_of_the_hub_leads_to_the_one_that_has_the_tunnel(tunnel: TunnelScene):
    """A stream is forwarded once; when a replica is gone, the agent connects to another."""
    scene = tunnel.scene
    agents, consumers = free_port(), free_port()
    other_options = replace(
        tunnel.options,
        agents=ListenAddress("127.0.0.1", agents),
        consumers=ListenAddress("127.0.0.1", consumers),
    )
    await scene.agent.start("--tunnel", "always")
    await scene.accept()
    await tunnel.open()
    await tunnel.published(tunnel=True)
    async with hubs.running(scene.hub_lent.connection, tunnel=other_options) as fleet:
        other = fleet.tunnel
        assert other is not None
        first = tunnel.options.replica_address
        await until(lambda: has_holder(other, first), "the other replica knows who has the tunnel")
        spoke = await consumer(scene.hub)
        proxy = (spoke.endpoint.proxy_url or "").replace(tunnel.options.front[8:], "")
        through_other = replace(
            spoke, endpoint=replace(spoke.endpoint, proxy_url=f"{proxy}localhost:{consumers}")
        )
        async with Client(through_other, ONCE) as client:
            assert await client.version() == await scene.spoke.version()
        assert other.registry.get("c1") is None
        held = other.records.find("c1")
        assert held is not None
        assert held.round_trip_milliseconds is not None

        config = {"data": {ENDPOINT: f"127.0.0.1:{agents}"}}
        await scene.running.aclose()
        await scene.hub.patch(CONFIG_MAPS, Key(OPERATOR_NAMESPACE, TUNNEL_CONFIG), config)
        await until(lambda: other.registry.get("c1") is not None, "the agent is at the other one")
        await until(lambda: has_holder(other, other_options.replica_address), "it is recorded")
        async with Client(through_other, ONCE) as client:
            assert await client.version() == await scene.spoke.version()


def has_holder(server: TunnelServer, address: str) -> bool:
    held = server.records.find("c1")
    return held is not None and held.address == address
