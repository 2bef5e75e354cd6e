"""Dashboards for tests: one that runs in the test's own loop, and a fleet to show."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
from msgspec import Struct

from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.cluster.managedcluster import CLUSTER_NAME_LABEL, CLUSTERS
from knfleet.api.core import CRDS, NAMESPACES, SERVICE_ACCOUNTS
from knfleet.api.crds.fleet import hub_definitions
from knfleet.api.crds.generator import definitions
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.conditions import DEPENDENTS, READY
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.work.manifestwork import WORKS
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.release.releases import Releases
from knfleet.runtime import served_kinds
from knfleet.runtime.manager import Manager
from knfleet.web.live.feed import HubFeed
from knfleet.web.pages.detail import DetailSources
from knfleet.web.pages.version_matrix import Known
from knfleet.web.server.authorization import SHOWN_KINDS
from knfleet.web.server.main import informers
from knfleet.web.server.server import Dashboard
from knfleet.web.server.settings import WebSettings
from testbed.fakes.sockets import free_port
from testbed.waiting import PATIENCE_SECONDS

MOMENT = "2026-11-16T03:00:00Z"
PLACE = "fleet-system"
KNOWN: Known = {
    "KnativeServing": ["1.23.0", "1.22.1", "1.21.2"],
    "KnativeEventing": ["1.23.0", "1.22.1", "1.21.2"],
}


class Running(Struct, frozen=True):
    """A dashboard that answers."""

    dashboard: Dashboard
    feed: HubFeed

    @property
    def base(self) -> str:
        """Where it is, without a way in."""
        assert self.dashboard.address is not None
        host, port = self.dashboard.address
        return f"http://{host}:{port}"

    @asynccontextmanager
    async def visitor(self, *, key: bool = True) -> AsyncGenerator[aiohttp.ClientSession]:
        """Somebody with a browser's cookies, who is in already if they have the key."""
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(self.base, cookie_jar=jar) as visitor:
            if key:
                async with visitor.get(f"/enter?key={self.dashboard.door.key}") as answer:
                    assert answer.status == 200
            yield visitor


@asynccontextmanager
async def running(
    connection: Connection,
    settings: WebSettings | None = None,
    *,
    known: Known | None = KNOWN,
    namespaces: tuple[str, ...] = (),
    releases: Releases | None = None,
) -> AsyncGenerator[Running]:
    """A dashboard of a hub, with watches of its own."""
    settings = settings or WebSettings(port=free_port())
    manager = Manager(grace_seconds=5)
    client = Client(connection)
    manager.close_last(client.close)
    feed = HubFeed()
    sources = DetailSources(client, feed, None, known, releases)
    dashboard = Dashboard(connection, sources, settings)
    for informer in await informers(client, namespaces):
        feed.follow(informer)
        manager.add(informer)
    manager.add(dashboard)
    task = asyncio.create_task(manager.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await dashboard.listening.wait()
        yield Running(dashboard, feed)
    finally:
        manager.stop()
        await task


def condition(type_: str, status: str = "True", reason: str = "", message: str = "") -> Object:
    """A condition."""
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": MOMENT,
    }


def cluster(name: str, *, available: str = "True", reason: str = "Reported") -> Object:
    """A ManagedCluster that has joined."""
    return {
        "apiVersion": CLUSTERS.api_version,
        "kind": CLUSTERS.kind,
        "metadata": {"name": name},
        "spec": {"hubAcceptsClient": True, "leaseDurationSeconds": 60},
        "status": {
            "version": {"kubernetes": "v1.35.0"},
            "conditions": [
                condition("HubAcceptedManagedCluster", reason="Accepted"),
                condition("ManagedClusterJoined", reason="Joined"),
                condition("ManagedClusterConditionAvailable", available, reason, "it is known"),
            ],
        },
    }


def profile(name: str) -> Object:
    """The ClusterProfile of a cluster that has joined."""
    return {
        "apiVersion": PROFILES.api_version,
        "kind": PROFILES.kind,
        "metadata": {
            "name": name,
            "namespace": PLACE,
            "labels": {CLUSTER_NAME_LABEL: name, "x-k8s.io/cluster-manager": "knfleet"},
        },
        "spec": {"clusterManager": {"name": "knfleet"}, "displayName": name},
        "status": {"conditions": [condition("ControlPlaneHealthy", reason="Healthy")]},
    }


def installation(
    kind: Resource, name: str, namespace: str, *, at: str = "", version: str = "1.22.1"
) -> Object:
    """A custom resource that is ready."""
    reference = {"clusterProfileRef": {"name": at, "namespace": PLACE}} if at else {}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"version": version, **reference},
        "status": ready(version),
    }


def ready(version: str) -> Object:
    """A status that says that all is well."""
    said = [condition(type_) for type_ in sorted((READY, *DEPENDENTS))]
    return {"version": version, "observedGeneration": 1, "conditions": said}


def waiting(done: int, total: int, *, name: str = "activator", version: str = "") -> Object:
    """A status that says that workloads are on their way."""
    names = ", ".join([name, "controller", "webhook"][: total - done] or [name])
    message = f"Waiting on deployments: {names}; {done} of {total} ready: {name} 0/1"
    status = ready(version)
    status["conditions"] = [
        condition(each["type"], "False", "NotReady", message)
        if each["type"] in (READY, "DeploymentsAvailable")
        else each
        for each in status["conditions"]
    ]
    return status


def lost(message: str) -> Object:
    """A status that says that the target cannot be used."""
    status = ready("1.22.1")
    status["conditions"] = [
        condition(each["type"], "False", "RemoteClientCreationFailed", message)
        if each["type"] in (READY, "TargetClusterResolved")
        else each
        for each in status["conditions"]
    ]
    return status


def fleet(count: int) -> list[tuple[Resource, Object]]:
    """So many clusters, each with a profile and both components."""
    found: list[tuple[Resource, Object]] = []
    for number in range(count):
        name = f"cluster-{number:03}"
        found.append((CLUSTERS, cluster(name)))
        found.append((PROFILES, profile(name)))
        found.append((SERVINGS, installation(SERVINGS, name, "knative-serving", at=name)))
        found.append((EVENTINGS, installation(EVENTINGS, name, "knative-eventing", at=name)))
    return found


class RealHub:
    """A real API server with a fleet in it, and the operator that the test itself is."""

    def __init__(self, client: Client, connection: Connection) -> None:
        self.client = client
        self.connection = connection

    async def prepare(self, count: int) -> None:
        """Install the definitions, and write a fleet."""
        for manifest in [*definitions(), *hub_definitions()]:
            await self.client.apply(CRDS, manifest)
        await served_kinds.wait_for(self.client, SHOWN_KINDS)
        for kind in SHOWN_KINDS:
            # Refused at first ("storage is (re)initializing"), and then sent again by the client.
            await self.client.list(kind)
        for name in ("knative-serving", "knative-eventing", PLACE):
            await self.client.apply(
                NAMESPACES,
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
            )
        for resource, manifest in fleet(count):
            await self.write(resource, manifest)

    async def send(self, cluster: str, work: Object) -> Key:
        """Make a work of a cluster, whose namespace is made if it is not there."""
        meta = {"name": cluster}
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        await self.client.apply(NAMESPACES, made)
        key = Key(cluster, work["metadata"]["name"])
        await self.client.apply(
            WORKS, {**work, "metadata": {"name": key.name, "namespace": cluster}}
        )
        return key

    async def install_addon(self, name: str, *clusters: str) -> None:
        """An add-on on clusters, which is not available on the last, and whose rollout waits."""
        said = condition("Progressing", "True", "Progressing", "waits for canaries")
        progression = {"namespace": "default", "name": "all", "conditions": [said]}
        fleet: Object = {
            "apiVersion": CLUSTER_ADDONS.api_version,
            "kind": CLUSTER_ADDONS.kind,
            "metadata": {"name": name},
            "spec": {},
            "status": {"installProgressions": [progression]},
        }
        await self.write(CLUSTER_ADDONS, fleet)
        for cluster in clusters:
            meta = {"name": cluster}
            made = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
            await self.client.apply(NAMESPACES, made)
            is_last = cluster == clusters[-1]
            status, reason = (
                ("False", "ProbeUnavailable") if is_last else ("True", "ProbeAvailable")
            )
            addon: Object = {
                "apiVersion": ADDONS.api_version,
                "kind": ADDONS.kind,
                "metadata": {"name": name, "namespace": cluster},
                "spec": {},
                "status": {"conditions": [condition("Available", status, reason, "by a test")]},
            }
            await self.write(ADDONS, addon)

    async def write(self, resource: Resource, manifest: Object) -> None:
        """Write an object and its status."""
        spec = {name: value for name, value in manifest.items() if name != "status"}
        await self.client.apply(resource, spec)
        await self.say(resource, Key.of(manifest), manifest["status"])

    async def say(self, resource: Resource, key: Key, status: Object) -> None:
        """Write a status, as the operator does."""
        await self.client.patch(resource, key, {"status": status}, subresource="status")

    async def account(self, name: str, *rules: Object, inside: str = "") -> str:
        """A ServiceAccount with some rights, everywhere or in a namespace; its token."""
        scope = "Role" if inside else "ClusterRole"
        place = {"namespace": inside} if inside else {}
        api = "rbac.authorization.k8s.io/v1"
        meta: Object = {"name": name, **place}
        subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": scope, "name": name}
        wanted: list[Object] = [
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": name, "namespace": "default"},
            },
            {"apiVersion": api, "kind": scope, "metadata": meta, "rules": list(rules)},
            {
                "apiVersion": api,
                "kind": f"{scope}Binding",
                "metadata": meta,
                "roleRef": reference,
                "subjects": [subject],
            },
        ]
        for manifest in wanted:
            resource = await self.client.discovery.resource(
                manifest["apiVersion"], manifest["kind"]
            )
            await self.client.apply(resource, manifest)
        asked: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        answer = await self.client.create(
            SERVICE_ACCOUNTS, asked, "default", name=name, subresource="token"
        )
        return str(answer["status"]["token"])
