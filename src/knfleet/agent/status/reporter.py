"""Tells the hub how the cluster is: when something changes, and now and then."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from knfleet.agent.agent_controller import AgentController, Wake
from knfleet.agent.hub_session import HubSession
from knfleet.agent.status.cluster_status import ClusterFacts, is_accepted, is_clock_off, patch_of
from knfleet.api.cluster.managedcluster import (
    AVAILABLE,
    CLAIMS,
    CLUSTERS,
    PROPERTIES,
    ManagedCluster,
)
from knfleet.api.conditions import find
from knfleet.api.core import NODES
from knfleet.api.meta import Key, Object, Request
from knfleet.api.rbac_rules import READ, rule
from knfleet.api.schema import decode
from knfleet.apply.manifest_fields import part
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import ApiError, Conflict, Forbidden, KubeError, NotFound
from knfleet.runtime.controller import Result
from knfleet.runtime.logs import log
from knfleet.runtime.manager import Component

TRIES = 4
TRY_SECONDS = 5.0
"""A cluster that does not answer is asked so often, with such pauses, before it counts as sick."""
PROBE_SECONDS = 5.0


class ClusterStatusController:
    """Writes the parts of the ManagedCluster's status that are the agent's."""

    def __init__(self, session: HubSession) -> None:
        self.session = session
        self.nodes = Informer(session.spoke, NODES, trim=sizes)
        self.claims = Informer(session.spoke, CLAIMS, trim=claim)
        self.properties = Informer(session.spoke, PROPERTIES, trim=claim)
        self.told_clock = False

    @property
    def watched(self) -> list[Informer]:
        settings = self.session.settings
        claims = [self.claims] if settings.has_claims else []
        return [self.nodes, *claims, *([self.properties] if settings.has_properties else [])]

    def watch(self, wake: Wake) -> Sequence[Component]:
        """The ManagedCluster, the agent's own condition, and what is reported of the cluster."""

        def handle(change: StoreChange) -> None:
            if without_metadata(change.old) != without_metadata(change.new):
                wake()

        self.session.own.on_change(lambda _: wake())
        self.session.condition_handlers.append(wake)
        for informer in self.watched:
            informer.on_change(handle)
        return self.watched

    async def reconcile(self, _request: Request) -> Result:
        """Look at the cluster, and write what changed."""
        cluster = self.session.cluster()
        if cluster is None or not is_accepted(cluster):
            return Result.never()
        self.log_clock(off=is_clock_off(cluster))
        facts = await self.observe_cluster()
        cluster = self.session.cluster() or cluster
        patch = patch_of(
            cluster,
            facts,
            datetime.now(UTC),
            further=self.session.condition,
            claim_filter=self.session.settings.claim_filter,
        )
        if patch:
            key = Key("", cluster.name)
            try:
                written = await self.session.hub.patch(CLUSTERS, key, patch, subresource="status")
            except Conflict:
                return Result.after(0.1)
            self.announce(cluster, decode(written, ManagedCluster))
        return Result.after(self.session.settings.health_seconds)

    def announce(self, old: ManagedCluster, new: ManagedCluster) -> None:
        """Tell by an Event when the cluster became available, or is not any more."""
        before, after = (find(each.status.conditions, AVAILABLE) for each in (old, new))
        if after is None or (before is not None and before.status == after.status):
            return
        if after.status == "True":
            self.session.events.normal(self.session.regarding(new), "Available", after.message)
        elif after.status == "False":
            self.session.events.warning(self.session.regarding(new), "Unavailable", after.message)

    def log_clock(self, *, off: bool) -> None:
        """Log once that the hub does not trust our clock, and once that it does again."""
        if off and not self.told_clock:
            log.error(
                "the hub finds this cluster's clock out of step; nothing is reported meanwhile",
                remedy="synchronise the clocks of hub and cluster, for instance by NTP",
            )
        self.told_clock = off

    async def observe_cluster(self) -> ClusterFacts:
        """What is seen of the cluster now."""
        problem = await self.health_problem()
        if problem:
            return ClusterFacts(problem=problem)
        for informer in self.watched:
            await wait_for_sync(informer)
        return ClusterFacts(
            version=await self.session.spoke.version(),
            nodes=tuple(self.nodes.items()),
            claims=tuple(self.claims.items()),
            properties=tuple(self.properties.items()),
        )

    async def health_problem(self) -> str:
        """Why the API server is not well; asked several times before it is believed."""
        reported = ""
        for number in range(TRIES):
            reported = await probe_health(self.session.spoke)
            if not reported:
                break
            if number < TRIES - 1:
                await asyncio.sleep(TRY_SECONDS)
        return reported


async def wait_for_sync(informer: Informer, seconds: float = 5.0) -> None:
    """Wait a little for an informer's first list; one that cannot have it has an empty one."""
    ends = asyncio.get_running_loop().time() + seconds
    while not informer.synced.is_set() and informer.failing is None:
        if asyncio.get_running_loop().time() > ends:
            return
        await asyncio.sleep(0.05)


async def probe_health(spoke: Client) -> str:
    """What an API server says about its own health when it is not well; empty when it is."""
    for path in ("/livez", "/healthz"):
        try:
            await spoke.urgent.raw("GET", path, deadline=PROBE_SECONDS)
        except (NotFound, Forbidden):
            continue
        except ApiError as error:
            return f"{path} answers {error.code}"
        except KubeError as error:
            return str(error)
        return ""
    return ""


def sizes(node: Object) -> Object:
    """Of a node only what is added up."""
    return {
        "metadata": identity(node),
        "spec": {"unschedulable": bool(part(node, "spec").get("unschedulable"))},
        "status": {
            "capacity": part(node, "status", "capacity"),
            "allocatable": part(node, "status", "allocatable"),
        },
    }


def claim(manifest: Object) -> Object:
    """Of a claim only what is reported."""
    meta = {**identity(manifest), "labels": part(manifest, "metadata", "labels")}
    return {"metadata": meta, "spec": part(manifest, "spec")}


def identity(manifest: Object) -> Object:
    """Of an object's metadata what tells it, and its states, apart."""
    meta = manifest["metadata"]
    return {name: meta.get(name, "") for name in ("name", "uid", "resourceVersion")}


def without_metadata(manifest: Object | None) -> Object:
    """An object without what changes each time it is written."""
    return {name: value for name, value in (manifest or {}).items() if name != "metadata"}


CONTROLLER = AgentController(
    "report",
    ClusterStatusController,
    managed_rules=(
        rule("", ["nodes"], READ),
        rule(CLAIMS.group, [CLAIMS.plural], READ),
        rule(PROPERTIES.group, [PROPERTIES.plural], READ),
        {"nonResourceURLs": ["/livez", "/healthz", "/version"], "verbs": ["get"]},
    ),
)
