"""The Lease by which the hub sees that the agent is alive."""

import random
from datetime import UTC, datetime

from knfleet.agent.seat import Seat
from knfleet.agent.status import is_accepted
from knfleet.api.cluster import LEASE_NAME
from knfleet.api.core import LEASES
from knfleet.api.meta import Key, Request
from knfleet.runtime.controller import Again
from knfleet.runtime.election import microtime

JITTER = 0.2
"""The part of the time between two beats that is left to chance."""


class Heartbeat:
    """Renews the cluster's Lease."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat

    async def reconcile(self, _request: Request) -> Again:
        """Renew it once, if the cluster is accepted; the next time before it is due."""
        cluster = self.seat.cluster()
        if cluster is None or not is_accepted(cluster):
            return Again.never()
        renewed = {"spec": {"renewTime": microtime(datetime.now(UTC))}}
        await self.seat.hub.urgent.patch(LEASES, Key(cluster.name, LEASE_NAME), renewed)
        return Again.after(cluster.lease_seconds * (1 - JITTER * random.random()))  # noqa: S311
