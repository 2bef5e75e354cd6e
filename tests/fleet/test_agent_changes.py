"""What changes around an agent that runs: its certificate, the hub's address, clocks, wishes."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from knfleet.agent.registration import client_certificate
from knfleet.agent.registration.credential_store import secret_of
from knfleet.agent.registration.identity import HubCredentials
from knfleet.agent.status.managed_namespaces import hub_label
from knfleet.api.cluster.access import ACCESS_SECRET
from knfleet.api.cluster.clusterset import CLUSTER_SETS
from knfleet.api.cluster.managedcluster import (
    AVAILABLE,
    CERTIFICATE_ROTATED,
    CLOCK_SYNCED,
    CLUSTERS,
    LEASE_NAME,
    PROPERTIES,
)
from knfleet.api.conditions import StandardCondition, find, put
from knfleet.api.core import CRDS, EVENTS, LEASES, NAMESPACES, SECRETS
from knfleet.api.meta import Key, Object
from knfleet.api.operator import AGENT_NAMESPACE, HUB_SECRET
from knfleet.kube.client.verbs import Client
from testbed import hubs
from testbed.agent_process import (
    Scene,
    bootstrap_token,
    cluster_of,
    condition,
    hub_secret,
    lasting,
)
from testbed.fakes.proxies import HttpProxy, Wire
from testbed.waiting import until

pytestmark = pytest.mark.xdist_group("agent")
SHORT = timedelta(seconds=12)
C1 = Key("", "c1")
QUICKLY = {"spec": {"leaseDurationSeconds": 1}}


@pytest.mark.full
async def test_a_certificate_is_renewed_before_it_ends(scene: Scene):
    """Seen with one that lasts for seconds: the hub hears of the cluster all the time."""
    await scene.joined()
    await scene.hub.patch(CLUSTERS, C1, QUICKLY)
    held = HubCredentials.of(await hub_secret(scene.spoke))
    short = replace(held, certificate=lasting(scene.hub_lent, held, SHORT))
    ends = datetime.now(UTC) + SHORT
    secret = secret_of(short, Key(AGENT_NAMESPACE, HUB_SECRET))
    await scene.spoke.apply(SECRETS, secret, manager="knfleet-agent")
    await scene.agent.says("took over credentials")

    async def is_new() -> bool:
        return (await hub_secret(scene.spoke))["tls.crt"] != short.certificate

    await until(is_new, f"a new certificate: {scene.agent.said()}")
    assert datetime.now(UTC) < ends
    renewed = client_certificate.read((await hub_secret(scene.spoke))["tls.crt"])
    assert renewed is not None
    assert renewed.ends > datetime.now(UTC) + timedelta(hours=1)
    assert await scene.pending() == []

    await until(lambda: beats_after(scene.hub, ends), "it is heard of after the old one has ended")
    await condition(scene.hub, CERTIFICATE_ROTATED, "True")
    await condition(scene.hub, AVAILABLE, "True")
    assert "joining" not in scene.agent.said().split("took over credentials")[1]


async def beats_after(hub: Client, moment: datetime) -> bool:
    """Whether the Lease was renewed after a moment."""
    found = await hub.get(LEASES, LEASE_NAME, "c1")
    return datetime.fromisoformat(found["spec"]["renewTime"]) > moment


async def test_a_hub_behind_a_proxy_is_joined_through_it_and_followed_to_another_port(
    scene: Scene,
):
    """The proxy carries everything; at the new address, without one, no person is needed."""
    endpoint = scene.hub_lent.connection.endpoint
    async with HttpProxy() as proxy, Wire(endpoint.server) as old, Wire(endpoint.server) as new:
        behind = replace(endpoint, server=old.url, proxy_url=proxy.url)
        scene.agent.point_to(behind, await bootstrap_token(scene.hub))
        await scene.joined()
        before = await hub_secret(scene.spoke)
        assert proxy.url in before["kubeconfig"].decode()
        assert set(proxy.asked) == {f"CONNECT {old.url.removeprefix('https://')}"}
        assert 0 < old.connections <= proxy.connections
        await proxy.cut()
        await scene.hub.delete(SECRETS, Key("c1", ACCESS_SECRET))
        await until(scene.handed, "the agent comes back through the proxy")

        old.refusing = True
        await old.cut()
        scene.agent.point_to(replace(endpoint, server=new.url), "a-token-that-is-not-needed")

        await scene.agent.says("the hub has moved", new.url)

        async def is_kept() -> bool:
            return new.url in (await hub_secret(scene.spoke))["kubeconfig"].decode()

        await until(is_kept, "the new address is kept")
        await scene.hub.delete(SECRETS, Key("c1", ACCESS_SECRET))
        await until(scene.handed, "access is handed over at the new address")
        assert (await hub_secret(scene.spoke))["tls.crt"] == before["tls.crt"]
        assert await scene.pending() == []
        await scene.agent.end()


@pytest.mark.full
async def test_a_clock_that_is_an_hour_off_is_told_and_nothing_is_reported(scene: Scene):
    """The hub's clock is moved, for this machine has only one; to the agent it is the same."""
    await scene.joined()
    await scene.hub.patch(CLUSTERS, C1, QUICKLY)
    await scene.running.aclose()
    async with hubs.running(scene.hub_lent.connection, ahead=timedelta(hours=1)):
        assert "60 min behind" in await condition(scene.hub, CLOCK_SYNCED, "False")
        await scene.agent.says("out of step", "synchronise the clocks")
        await say(scene.hub, StandardCondition(type=AVAILABLE, status="Unknown", reason="Test"))
        for _ in range(2):
            now = datetime.now(UTC)
            await until(lambda now=now: beats_after(scene.hub, now), "it goes on to be heard of")
        said = find((await cluster_of(scene.hub)).status.conditions, AVAILABLE)
        assert said is not None
        assert said.reason == "Test"
    async with hubs.running(scene.hub_lent.connection):
        await condition(scene.hub, CLOCK_SYNCED, "True")
        await condition(scene.hub, AVAILABLE, "True")


async def say(hub: Client, said: StandardCondition) -> None:
    """Write a condition of the cluster."""
    conditions = put((await cluster_of(hub)).status.conditions, said, datetime.now(UTC))
    patch = {"status": {"conditions": msgspec.to_builtins(conditions)}}
    await hub.patch(CLUSTERS, C1, patch, subresource="status")


PROPERTY_CRD: Object = {
    "apiVersion": CRDS.api_version,
    "kind": CRDS.kind,
    "metadata": {
        "name": f"{PROPERTIES.plural}.{PROPERTIES.group}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
    },
    "spec": {
        "group": PROPERTIES.group,
        "scope": "Cluster",
        "names": {"kind": PROPERTIES.kind, "plural": PROPERTIES.plural},
        "versions": [
            {
                "name": PROPERTIES.version,
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"value": {"type": "string"}},
                            }
                        },
                    }
                },
            }
        ],
    },
}


@pytest.mark.full
async def test_namespaces_of_sets_properties_and_events_go_both_ways(scene: Scene):
    await scene.spoke.apply(CRDS, PROPERTY_CRD)
    await hubs.established(scene.spoke, PROPERTY_CRD["metadata"]["name"])
    about: Object = {
        "apiVersion": PROPERTIES.api_version,
        "kind": PROPERTIES.kind,
        "metadata": {"name": "zone"},
        "spec": {"value": "north"},
    }
    await scene.spoke.create(PROPERTIES, about)
    await scene.agent.start("--feature-gates=ClusterProperty=true")
    await scene.accept()
    await condition(scene.hub, AVAILABLE, "True")

    async def is_told() -> bool:
        claims = (await cluster_of(scene.hub)).status.cluster_claims
        return [(each.name, each.value) for each in claims] == [("zone", "north")]

    await until(is_told, "the property is told")

    async def is_recorded() -> bool:
        found = await scene.hub.list(EVENTS, "c1", fields="reason=Available")
        return bool(found.items)

    await until(is_recorded, "an Event says that it is available")
    label = hub_label(scene.hub_lent.connection.endpoint.server)

    async def labelled(value: str) -> bool:
        found = await scene.spoke.list(NAMESPACES, labels=f"{label}={value}")
        return [each["metadata"]["name"] for each in found.items] == ["apps"]

    async def is_said() -> bool:
        wanted = (await cluster_of(scene.hub)).status.managed_namespaces
        return [each.conditions[0].status for each in wanted if each.conditions] == ["True"]

    wishes = {"spec": {"managedNamespaces": [{"name": "apps"}]}}
    await scene.hub.patch(CLUSTER_SETS, Key("", "default"), wishes)
    await until(lambda: labelled("true"), "the namespace is made")
    await until(is_said, "the hub is told")
    await scene.hub.patch(CLUSTER_SETS, Key("", "default"), {"spec": {"managedNamespaces": []}})
    await until(lambda: labelled("false"), "the namespace is let go, and kept")
