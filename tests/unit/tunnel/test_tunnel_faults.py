"""Certificates, clocks and hubs that are not as they should be: what agents report of them."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from structlog.testing import capture_logs

from knfleet.hub.certificates.port_certificates import renewal
from testbed.fakes.certificates import Authority
from testbed.fakes.tunnels import HASTE, NAME, TunnelHub
from testbed.waiting import until
from tests.unit.tunnel.waits import closed, is_refused, opened

DAY = timedelta(days=1)


async def test_a_tunnel_ends_when_the_hub_trusts_the_ca_of_its_certificate_no_more(
    hub: TunnelHub, api: str
):
    """So the certificates of all agents can be revoked at once; those of the new CA get in."""
    async with hub.agent("c1", api) as agent:
        await opened(hub)
        _, reader, writer = await hub.consumer("c1")

        hub.clients = Authority("clients")
        hub.present(hub.serving)
        hub.registry.authorities_changed(hub.clients.pem)

        assert await reader.read() == b""
        writer.close()
        await closed(hub)
        await until(lambda: agent.failures > 1, "the agent is not let in")
        assert hub.registry.tunnels == {}
        agent.configure(hub.config(hub.certificate("c1")))
        await opened(hub)


async def test_clocks_that_differ_by_a_day_are_named_as_the_reason(hub: TunnelHub, api: str):
    """A certificate of tomorrow, as an agent sees it whose clock is late; then a right one."""
    early = renewal(None, (NAME, "localhost"), datetime.now(UTC) + DAY).certificates
    right = hub.serving
    hub.present(early)
    async with hub.agent("c1", api) as agent:
        await is_refused(agent, "not yet valid")
        hub.present(right)
        agent.configure(hub.config(hub.certificate("c1")))
        await opened(hub)


async def test_a_hub_that_is_away_is_tried_at_intervals_and_logged_once(api: str):
    hub = TunnelHub()
    hub.accept("c1")
    with capture_logs() as lines:
        async with hub.agent("c1", api) as agent:
            await until(lambda: agent.failures > 20, "the agent has tried again and again")
            assert len(messages(lines, "no tunnel to the hub")) == 1
            assert "refused" in agent.state.reason.lower()
            assert max(HASTE.delay(failures, 1.0) for failures in range(4000)) <= 0.2
            async with hub.running():
                await opened(hub)


def messages(lines: Iterable[Any], message: str) -> list[Any]:
    """The lines of a log with a message."""
    return [each for each in lines if each["event"] == message]
