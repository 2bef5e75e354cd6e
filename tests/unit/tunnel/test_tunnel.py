"""The tunnel over loopback: agents, consumers, and what either does wrong."""

import asyncio
import base64
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from msgspec.structs import replace

from knfleet.api.meta import ClusterName
from knfleet.hub.certificates.port_certificates import renewal
from knfleet.hub.tunnel.front.tunnel_front import FrontLimits
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.runtime.mux.session import MuxLimits
from testbed.fakes.certificates import Authority
from testbed.fakes.proxies import HttpProxy
from testbed.fakes.server import Server, answer, server_context
from testbed.fakes.sockets import free_port
from testbed.fakes.tunnels import NAME, TunnelHub
from testbed.waiting import until
from tests.unit.tunnel.waits import is_refused, opened


async def test_a_client_of_kubernetes_reaches_a_server_through_the_tunnel(hub: TunnelHub):
    """TLS is between the client and the server: the hub has neither's keys."""
    authority = Authority("spoke")
    context = server_context(authority.server("kubernetes.default.svc"))
    async with Server(answer({"major": "1", "gitVersion": "v1.35.0"}), tls=context) as server:
        async with hub.agent("c1", server.url):
            await opened(hub)
            endpoint = Endpoint(
                "https://kubernetes.default.svc",
                ca=authority.pem + hub.serving.bundle,
                proxy_url=hub.proxy_url("c1"),
            )
            spoke = Connection(
                ClusterName("c1"), endpoint, StaticCredential(Credential(token="secret"))
            )
            async with Client(spoke, ClientOptions(attempts=1)) as client:
                assert await client.version() == "v1.35.0"

        assert server.requests[0].headers["authorization"] == "Bearer secret"
        assert "Proxy-Authorization" not in server.requests[0].headers


async def test_bytes_pass_both_ways_and_an_end_is_passed_on(hub: TunnelHub, api: str):
    async with hub.agent("c1", api):
        await opened(hub)
        head, reader, writer = await hub.consumer("c1")
        assert head == b"HTTP/1.1 200 Connection established\r\n\r\n"
        sent = bytes(range(256)) * 20_000

        async def send() -> None:
            for start in range(0, len(sent), 100_000):
                writer.write(sent[start : start + 100_000])
                await writer.drain()

        sending = asyncio.ensure_future(send())
        assert await reader.readexactly(len(sent)) == sent
        await sending
        writer.close()
        tunnel = hub.registry.get("c1")
        assert tunnel is not None
        await until(lambda: not tunnel.session.streams, "the stream is over")
        assert tunnel.status().bytes_sent == len(sent)
        await until(lambda: not hub.front.connections, "the front forgets the consumer")


async def test_a_stalled_consumer_stops_no_other(hub: TunnelHub, api: str):
    async with hub.agent("c1", api):
        await opened(hub)
        _, _, stalled = await hub.consumer("c1")
        cast("asyncio.Transport", stalled.transport).pause_reading()
        tunnel = hub.registry.get("c1")
        assert tunnel is not None

        async def flood() -> None:
            while True:
                stalled.write(b"x" * 65536)
                await stalled.drain()

        flooding = asyncio.ensure_future(flood())
        await until(
            lambda: any(each.is_reading_paused for each in tunnel.session.streams.values()),
            "the stream is stalled",
        )
        _, reader, writer = await hub.consumer("c1")
        for _ in range(20):
            writer.write(b"y" * 100_000)
            await reader.readexactly(100_000)
        flooding.cancel()
        held = sum(len(each.incoming) for each in tunnel.session.streams.values())
        assert held <= 1024 * 1024
        writer.close()
        stalled.transport.abort()


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ("10.0.0.1:22", b"403", b"10.0.0.1:22 is not allowed by the agent"),
        ("localhost:443", b"403", b"not allowed"),
        ("kubernetes.default.svc:6443", b"403", b"not allowed"),
        ("web.shop.svc:80", b"502", b"web.shop.svc:80"),
        ("no port", b"400", b"not HTTP/1.1"),
        ("../..:1", b"400", b"not host:port"),
    ],
)
async def test_only_listed_targets_are_reached(
    hub: TunnelHub, api: str, target: str, status: bytes, words: bytes
):
    async with hub.agent("c1", api, services=["shop/web:80"]):
        await opened(hub)

        head, reader, writer = await hub.consumer("c1", target)

        assert head.split(b" ", 2)[1] == status
        assert words in head.split(b"\r\n")[0]
        body = await reader.read()
        assert b'"kind":"Status"' in body
        writer.close()


async def test_consumers_are_told_why_there_is_no_way(hub: TunnelHub, api: str):
    head, _, writer = await hub.consumer("c1")
    assert b"502 the agent of cluster c1 has no tunnel open" in head
    writer.close()
    head, _, writer = await hub.consumer("nobody")
    assert b"503 ManagedCluster nobody does not exist" in head
    writer.close()
    for wrong in ("Bearer x", "Basic !!!", "Basic " + base64.b64encode(b"c1").decode()):
        head, _, writer = await hub.consumer("c1", authorization=wrong)
        assert b" 407 " in head
        assert b"Proxy-Authenticate: Basic" in head
        writer.close()
    async with hub.agent("c1", f"https://127.0.0.1:{free_port()}"):
        await opened(hub)
        head, _, writer = await hub.consumer("c1")
        assert b" 502 " in head
        assert b"refused" in head
        writer.close()


async def test_a_denied_deleted_or_expired_cluster_loses_its_tunnel_at_once(
    hub: TunnelHub, api: str
):
    async with hub.agent("c1", api) as agent:
        for change, words in (
            (lambda: hub.accept("c1", accepted=False), "not accepted"),
            (lambda: hub.accept("c1", deleting=True), "being deleted"),
        ):
            hub.accept("c1")
            await opened(hub)
            _, reader, writer = await hub.consumer("c1")

            change()

            assert hub.registry.get("c1") is None
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            await is_refused(agent, words)
        hub.clusters.clear()
        await is_refused(agent, "does not exist")
        hub.accept("c1")
        await opened(hub)
        hub.ahead = timedelta(days=365)
        hub.registry.cluster_changed("c1")
        await is_refused(agent, "expired")


async def test_the_name_of_a_cluster_comes_from_its_certificate_alone(hub: TunnelHub, api: str):
    hub.accept("c2")
    others = Authority("clients")
    wrong = [
        hub.clients.client(
            "system:open-cluster-management:c1:a", "system:open-cluster-management:c2"
        ),
        hub.clients.client(
            "system:open-cluster-management:c1", "system:open-cluster-management:c1"
        ),
        hub.clients.client("admin", "system:masters"),
        hub.clients.server("c1"),
        hub.certificate("c1", days=-1),
        others.client("system:open-cluster-management:c1:a", "system:open-cluster-management:c1"),
    ]
    for pair in wrong:
        async with hub.agent("c1", api, config=hub.config(pair)) as agent:
            await is_refused(agent)
            await until(
                lambda client=agent: client.failures > 1 or "cert" in client.state.reason, ""
            )
            assert hub.registry.tunnels == {}


async def test_an_agent_trusts_only_the_ca_that_the_hub_published(hub: TunnelHub, api: str):
    config = hub.config(hub.certificate("c1"))
    unknown = renewal(None, (NAME,), datetime.now(UTC)).certificates.bundle
    wrong = replace(config, endpoint=replace(config.endpoint, authorities=unknown))

    async with hub.agent("c1", api, config=wrong) as agent:
        await is_refused(agent, "certificate verify failed")
        agent.configure(config)
        await opened(hub)


async def test_certificates_of_the_hub_rotate_under_an_open_tunnel(hub: TunnelHub, api: str):
    """Other CAs count for the next connection; the one that is open stays."""
    first = hub.config(hub.certificate("c1"))
    async with hub.agent("c1", api, config=first) as agent:
        await opened(hub)
        tunnel = hub.registry.get("c1")
        assert tunnel is not None
        _, reader, writer = await hub.consumer("c1")

        hub.present(renewal(None, (NAME, "localhost"), datetime.now(UTC)).certificates)
        authorities = hub.serving.bundle
        agent.configure(replace(first, endpoint=replace(first.endpoint, authorities=authorities)))
        writer.write(b"still here")
        assert await reader.readexactly(10) == b"still here"
        _, *_ = await hub.consumer("c1")
        assert hub.registry.get("c1") is tunnel

        tunnel.session.abort("cut")
        await until(lambda: hub.registry.get("c1") not in (None, tunnel), "the next one is open")


async def test_the_newest_connection_gets_new_streams_and_the_old_one_keeps_its_own(
    hub: TunnelHub, api: str
):
    async with hub.agent("c1", api) as agent:
        await opened(hub)
        first = hub.registry.get("c1")
        _, reader, writer = await hub.consumer("c1")

        agent.configure(hub.config(hub.certificate("c1")))
        await until(lambda: hub.registry.get("c1") is not first, "the new connection is used")
        await opened(hub)

        writer.write(b"still here")
        assert await reader.readexactly(10) == b"still here"
        _, other_reader, other_writer = await hub.consumer("c1")
        other_writer.write(b"new")
        assert await other_reader.readexactly(3) == b"new"
        second = hub.registry.get("c1")
        assert first is not None
        assert second is not None
        assert len(first.session.streams) == len(second.session.streams) == 1
        writer.close()
        await until(lambda: first.session.is_over, "the old connection ends with its stream")
        assert hub.registry.get("c1") is second
        other_writer.close()


async def test_a_tunnel_comes_back_after_every_cut(hub: TunnelHub, api: str):
    async with hub.agent("c1", api):
        for _ in range(20):
            await opened(hub)
            tunnel = hub.registry.get("c1")
            assert tunnel is not None
            assert tunnel.session.transport is not None
            tunnel.session.transport.abort()
            await until(lambda cut=tunnel: hub.registry.get("c1") not in (cut, None), "back")
        _, reader, writer = await hub.consumer("c1")
        writer.write(b"ping")
        assert await reader.readexactly(4) == b"ping"
        writer.close()


async def test_an_agent_connects_through_an_http_proxy(hub: TunnelHub, api: str):
    async with HttpProxy(authorization="Basic dTpw") as proxy:
        url = f"http://u:p@127.0.0.1:{proxy.port}"
        config = hub.config(hub.certificate("c1"), proxy_url=url)
        async with hub.agent("c1", api, config=config):
            await opened(hub)
            assert proxy.connections == 1
        wrong = hub.config(hub.certificate("c1"), proxy_url=url.replace("u:p", "u:wrong"))
        async with hub.agent("c1", api, config=wrong) as agent:
            await is_refused(agent, "the proxy", "407")


async def test_garbage_and_half_open_connections_disturb_nobody(api: str):
    hub = TunnelHub(mux=MuxLimits(open_seconds=1), front=FrontLimits(head_seconds=1))
    hub.accept("c1")
    async with hub.running(), hub.agent("c1", api):
        await opened(hub)
        for port in (hub.listener.address.port, hub.front.address.port):
            _, silent = await asyncio.open_connection("127.0.0.1", port)
            reader, garbage = await asyncio.open_connection("127.0.0.1", port)
            garbage.write(b"GET / HTTP/1.1\r\n\r\n")
            with suppress(ConnectionError):
                await reader.read()
            garbage.close()
            silent.close()
        trust = ssl.create_default_context(cadata=hub.serving.bundle.decode())
        reader, slow = await asyncio.open_connection("localhost", hub.front.address.port, ssl=trust)
        slow.write(b"CONNECT ")
        with suppress(ConnectionError):
            assert await reader.read() == b""
        slow.close()
        reader, large = await asyncio.open_connection(
            "localhost", hub.front.address.port, ssl=trust
        )
        large.write(b"CONNECT a:1 HTTP/1.1\r\nX: " + b"x" * 20_000)
        assert b" 431 " in await reader.readuntil(b"\r\n")
        large.close()

        _, reader, writer = await hub.consumer("c1")
        writer.write(b"ping")
        assert await reader.readexactly(4) == b"ping"
        writer.close()


async def test_a_hub_that_stops_asks_agents_to_connect_elsewhere(hub: TunnelHub, api: str):
    async with hub.agent("c1", api) as agent:
        await opened(hub)
        first = hub.registry.get("c1")
        _, reader, writer = await hub.consumer("c1")

        hub.registry.drain()

        await until(lambda: hub.registry.get("c1") not in (first, None), "another connection")
        writer.write(b"rest")
        assert await reader.readexactly(4) == b"rest"
        writer.close()
        assert agent.state.is_open
