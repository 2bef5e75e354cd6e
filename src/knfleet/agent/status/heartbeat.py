"""The Lease by which the hub sees that the agent is alive.

Hubs of Open Cluster Management let an agent get and update it, but not patch it.
"""

import random
from collections.abc import Sequence
from datetime import UTC, datetime

from knfleet.agent.agent_controller import AgentController, Wake
from knfleet.agent.hub_session import HubSession
from knfleet.agent.status.cluster_status import is_accepted, relevant_state
from knfleet.api.cluster.managedcluster import LEASE_NAME
from knfleet.api.core import LEASES
from knfleet.api.meta import Object, Request
from knfleet.apply.manifest_fields import part
from knfleet.kube.errors import Conflict
from knfleet.runtime.controller import Result
from knfleet.runtime.leader.lease_rules import microtime
from knfleet.runtime.manager import Component

CONFLICT_SECONDS = 0.1
JITTER = 0.2
"""The part of the time between two beats that is left to chance."""


class HeartbeatController:
    """Renews the cluster's Lease."""

    def __init__(self, session: HubSession) -> None:
        self.session = session
        self.lease: Object | None = None
        """As the hub last showed it; None when it is to be read."""

    def watch(self, wake: Wake) -> Sequence[Component]:
        """Whether the cluster is accepted, and how often it is to send heartbeats."""
        self.session.on_cluster(wake, relevant_state)
        return []

    async def reconcile(self, _request: Request) -> Result:
        """Renew it once, if the cluster is accepted; the next time before it is due."""
        cluster = self.session.cluster()
        if cluster is None or not is_accepted(cluster):
            return Result.never()
        try:
            await self.renew(cluster.name)
        except Conflict:
            # Another wrote it, so it is read again.
            return Result.after(CONFLICT_SECONDS)
        return Result.after(cluster.lease_seconds * (1 - JITTER * random.random()))  # noqa: S311

    async def renew(self, cluster: str) -> None:
        """Write the Lease with the time of now, as it was last seen or as it is."""
        hub = self.session.hub.urgent
        lease, self.lease = self.lease, None
        if lease is None:
            lease = await hub.get(LEASES, LEASE_NAME, cluster)
        now = {"renewTime": microtime(datetime.now(UTC))}
        written = await hub.replace(LEASES, {**lease, "spec": {**part(lease, "spec"), **now}})
        if written["metadata"].get("resourceVersion"):
            self.lease = written


CONTROLLER = AgentController("heartbeat", HeartbeatController)
