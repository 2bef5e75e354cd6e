"""Events about pods: the node's way to tell people what it cannot say in a status."""

from datetime import UTC, datetime
from uuid import uuid4

import structlog

from knfleet.api.core import EVENTS
from knfleet.api.meta import Object
from knfleet.dev.node.pods.pod_manifests import timestamp, uid_of
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError

log = structlog.get_logger()


class PodEvents:
    """Writes each event about a pod once."""

    def __init__(self, client: Client, node: str) -> None:
        self.client = client
        self.node = node
        self.recorded: dict[str, set[str]] = {}

    def forget(self, uid: str) -> None:
        self.recorded.pop(uid, None)

    async def warn(self, pod: Object, reason: str, message: str) -> None:
        """Tell about something wrong; a failure to do so is only logged."""
        recorded = self.recorded.setdefault(uid_of(pod), set())
        if message in recorded:
            return
        recorded.add(message)
        meta, now = pod["metadata"], timestamp(datetime.now(UTC))
        log.warning(reason, pod=f"{meta['namespace']}/{meta['name']}", problem=message)
        event: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{meta['name'][:200]}.{uuid4().hex[:16]}",
                "namespace": meta["namespace"],
            },
            "type": "Warning",
            "reason": reason,
            "message": message,
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": uid_of(pod),
            },
            "source": {"component": "knfleet-dev-node", "host": self.node},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self.client.create(EVENTS, event, meta["namespace"])
        except KubeError as error:
            log.info("event not written", error=str(error))
