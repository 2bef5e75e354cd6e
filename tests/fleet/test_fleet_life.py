"""A cluster that joined by itself, with Serving on it: what its token may do, and how it is lost.

Everything is real: the hub's process with the rights of `init`, the agent's process, the role that
`join` gives to the account whose token the hub gets.
"""

import asyncio
import base64
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.managedcluster import AVAILABLE, CLUSTERS, UNREACHABLE
from knfleet.api.core import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    NODES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.operator import AGENT_NAMESPACE, CLUSTER_MANAGER, OPERATOR_NAMESPACE
from knfleet.apply.manifest_fields import items
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Forbidden
from knfleet.workflows.accept_clusters import accept
from knfleet.workflows.detach import StillAttached, detach
from testbed import hubs
from testbed.agent_process import Agent, bootstrap_token, condition, prepare_spoke
from testbed.clusters import Lend, Lent
from testbed.hub_process import HubProcess, kubeconfig
from testbed.operators import Hub
from testbed.small_rights import small_rights
from testbed.waiting import until
from tests.support.commands import done
from tests.support.fleets import SMALL
from tests.support.reviews import rights, single

pytestmark = pytest.mark.xdist_group("agent")
FOLLOWS_SECONDS = 5.0
"""How soon after the cluster's own condition everything else says the same."""

Attempt = Callable[[Client], Awaitable[object]]


class Life(Struct):
    """A hub and a spoke, both with their processes."""

    hub: Hub
    spoke_lent: Lent
    spoke: Client
    process: HubProcess
    agent: Agent

    async def token(self) -> str:
        """The token beside the cluster's profile."""
        found = await self.hub.client.get(SECRETS, "c1", OPERATOR_NAMESPACE)
        return base64.b64decode(found["data"]["token"]).decode()

    async def restart_hub(self) -> None:
        """End the hub's process as a rollout does, and start it again."""
        assert await self.process.stop() == 0
        await self.process.start(SYSTEM_NAMESPACE=OPERATOR_NAMESPACE)


@pytest.fixture
async def life(lend: Lend, small_root: Path, tmp_path: Path) -> AsyncIterator[Life]:
    """Both processes run; the cluster has not been accepted yet."""
    hub_lent, spoke_lent = await lend(2, definitions=True)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(hub_lent.connection))
        spoke = await stack.enter_async_context(Client(spoke_lent.connection))
        await hubs.install(hub_lent.connection)
        await prepare_spoke(spoke)
        serving = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "knative-serving"}}
        await client.apply(await client.discovery.resource("v1", "Namespace"), serving)
        account = await hubs.as_account(hub_lent.connection, CLUSTER_MANAGER)
        process = HubProcess(kubeconfig(tmp_path, account), small_root, tmp_path / "hub.log")
        agent = Agent(spoke_lent, tmp_path)
        agent.point_to(hub_lent.connection.endpoint, await bootstrap_token(client))
        stack.push_async_callback(process.kill)
        stack.push_async_callback(agent.end, signal.SIGKILL)
        await process.start(SYSTEM_NAMESPACE=OPERATOR_NAMESPACE)
        await agent.start()
        yield Life(Hub(hub_lent, client), spoke_lent, spoke, process, agent)


def named(resource: Resource, name: str, **more: object) -> Object:
    """A small object of a kind."""
    meta = {"name": name}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **more}


POD_SPEC = {"containers": [{"name": "c", "image": "x"}]}
TOKEN_REQUEST = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
NEEDED: dict[str, Attempt] = {
    "make a Deployment": lambda own: own.create(
        DEPLOYMENTS,
        named(
            DEPLOYMENTS,
            "made",
            spec={
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC},
            },
        ),
        "knative-serving",
    ),
    "remove a Deployment": lambda own: own.delete(DEPLOYMENTS, Key("knative-serving", "made")),
    "make a ConfigMap": lambda own: own.apply(
        CONFIG_MAPS,
        {
            **named(CONFIG_MAPS, "made"),
            "metadata": {"name": "made", "namespace": "knative-serving"},
        },
    ),
    "remove a ConfigMap": lambda own: own.delete(CONFIG_MAPS, Key("knative-serving", "made")),
    "list pods": lambda own: own.list(PODS, "knative-serving"),
}
"""What installing Knative takes, and saying why it fails."""
OUTSIDE: dict[str, Attempt] = {
    "list Secrets": lambda own: own.list(SECRETS),
    "read a Secret elsewhere": lambda own: own.list(SECRETS, AGENT_NAMESPACE),
    "list pods elsewhere": lambda own: own.list(PODS),
    "make a role": lambda own: own.apply(CLUSTER_ROLES, named(CLUSTER_ROLES, "made", rules=[])),
    "change a role of Knative": lambda own: own.apply(
        CLUSTER_ROLES, named(CLUSTER_ROLES, "small", rules=[])
    ),
    "make a pod": lambda own: own.create(PODS, named(PODS, "p", spec=POD_SPEC), "default"),
    "enter a pod": lambda own: own.raw(
        "POST", "/api/v1/namespaces/default/pods/p/exec?command=sh&stdout=true"
    ),
    "list nodes": lambda own: own.list(NODES),
    "ask for a token": lambda own: own.create(
        SERVICE_ACCOUNTS, dict(TOKEN_REQUEST), "kube-system", name="default", subresource="token"
    ),
    "ask for its own token": lambda own: own.create(
        SERVICE_ACCOUNTS,
        dict(TOKEN_REQUEST),
        AGENT_NAMESPACE,
        name="knfleet-access",
        subresource="token",
    ),
    "list certificate requests": lambda own: own.list(CSRS),
    "be somebody else": lambda own: own.raw(
        "GET", "/api/v1/namespaces", headers={"Impersonate-User": "kubernetes-admin"}
    ),
    "write an admission policy": lambda own: own.raw(
        "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", body=b"{}"
    ),
    "read metrics": lambda own: own.raw("GET", "/metrics"),
    "reach a service": lambda own: own.raw("GET", "/api/v1/namespaces/default/services/x/proxy/"),
}
"""What it does not take."""


async def refused(attempt: Awaitable[object]) -> bool:
    """Whether the server forbids something."""
    try:
        await attempt
    except Forbidden:
        return True
    return False


async def check_token(life: Life) -> None:
    """The token of the profile may do what its role says: no less, and no more."""
    seen = hubs.with_token(life.spoke_lent.connection, await life.token())
    answer = await life.spoke.create(
        SERVICE_ACCOUNTS, dict(TOKEN_REQUEST), "default", name="default", subresource="token"
    )
    nobody = hubs.with_token(life.spoke_lent.connection, answer["status"]["token"])
    async with Client(seen) as own, Client(nobody) as plain:
        granted = await small_rights()
        assert await rights(own) - await rights(plain) == single(granted.cluster_rules)
        assert await rights(own, AGENT_NAMESPACE) == await rights(own)
        for namespace, rules in granted.namespace_rules.items():
            assert await rights(own, namespace) - await rights(own) <= single(rules)
        assert [what for what, attempt in NEEDED.items() if await refused(attempt(own))] == []
        assert [what for what, attempt in OUTSIDE.items() if not await refused(attempt(own))] == []


class Sightings:
    """When each thing was first seen to say something, by one clock."""

    def __init__(self, client: Client) -> None:
        self.seen: dict[str, tuple[str, float]] = {}
        self.informers = [
            Informer(client, CLUSTERS, fields="metadata.name=c1"),
            Informer(client, PROFILES, OPERATOR_NAMESPACE, fields="metadata.name=c1"),
            Informer(client, SERVINGS, "knative-serving", fields="metadata.name=knative"),
        ]
        for informer in self.informers:
            informer.on_change(self.look)

    def look(self, change: StoreChange) -> None:
        """Note what is new."""
        if change.new is None:
            return
        kind: str = change.new["kind"]
        said = {each["type"]: each["status"] for each in items(change.new, "status", "conditions")}
        if kind == CLUSTERS.kind:
            taints = {each["key"] for each in items(change.new, "spec", "taints")}
            self.note("cluster", said.get(AVAILABLE, ""))
            self.note("taint", "there" if UNREACHABLE in taints else "gone")
        elif kind == PROFILES.kind:
            self.note("profile", said.get("ControlPlaneHealthy", ""))
        else:
            self.note("serving", said.get("TargetClusterResolved", ""))

    def note(self, what: str, value: str) -> None:
        """Something is so; since when, if that is new."""
        if self.seen.get(what, ("",))[0] != value:
            self.seen[what] = (value, time.monotonic())

    async def follow(self, **wanted: str) -> float:
        """Wait until everything says so; how long after the cluster itself the last one did."""

        def are_so() -> bool:
            return {what: self.seen.get(what, ("",))[0] for what in wanted} == wanted

        try:
            await until(are_so, f"{wanted}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {self.seen}") from error
        times = {what: self.seen[what][1] for what in wanted}
        after = {what: round(moment - times["cluster"], 2) for what, moment in times.items()}
        print(f"after the cluster is {wanted['cluster']}, in seconds: {after}")
        return max(after.values())


@asynccontextmanager
async def watched(client: Client) -> AsyncGenerator[Sightings]:
    """Watch the cluster, its profile and what is installed through it, all at once."""
    sightings = Sightings(client)
    tasks = [asyncio.create_task(each.run()) for each in sightings.informers]
    try:
        yield sightings
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


HERE = {"cluster": "True", "taint": "gone", "profile": "True", "serving": "True"}
LOST = {"cluster": "Unknown", "taint": "there", "profile": "Unknown", "serving": "False"}


async def test_serving_follows_a_cluster_that_joined_by_itself(life: Life):
    """Through the loss and return of its heartbeat, and restarts of hub and agent."""
    await until(lambda: has_asked(life), f"it asks: {life.agent.said()}")
    await accept(life.hub.client, "c1")
    await condition(life.hub.client, AVAILABLE, "True")
    profile = {"name": "c1", "namespace": OPERATOR_NAMESPACE}
    await life.hub.create(SERVINGS, clusterProfileRef=profile, **SMALL)
    await life.hub.ready(SERVINGS, "1.23.0")
    assert await life.token() not in life.process.said() + life.agent.said()
    await check_token(life)
    # A person needs no flag: our own plugin reads the token that the agent handed over.
    config, releases = life.hub.lent.kubeconfig, str(life.process.releases)
    planned = await done(config, "plan", "--all", "--dir", releases)
    assert "c1 (1.23.0)" in planned
    assert "Nothing to do." in planned
    with pytest.raises(StillAttached, match="c1 has Knative by knative-serving/knative"):
        await detach(life.hub.client, "c1", force=False, seconds=20)

    await life.hub.client.patch(CLUSTERS, Key("", "c1"), {"spec": {"leaseDurationSeconds": 1}})
    assert life.agent.process is not None
    async with watched(life.hub.client) as sightings:
        await sightings.follow(**HERE)
        life.agent.process.send_signal(signal.SIGSTOP)
        assert await sightings.follow(**LOST) <= FOLLOWS_SECONDS
        life.agent.process.send_signal(signal.SIGCONT)
        assert await sightings.follow(**HERE) <= FOLLOWS_SECONDS

        await life.restart_hub()
        await life.agent.end(signal.SIGKILL)
        await sightings.follow(**LOST)
        await life.restart_hub()
        await life.agent.start()
        await sightings.follow(**HERE)
    await life.hub.delete(SERVINGS)
    await life.hub.gone(SERVINGS)
    await detach(life.hub.client, "c1", force=False, seconds=20)
    lines = life.process.said().splitlines()
    assert [each for each in lines if "reconcile failed" in each] == []


async def has_asked(life: Life) -> bool:
    """Whether the cluster has asked to join."""
    return bool((await life.hub.client.list(CSRS)).items)
