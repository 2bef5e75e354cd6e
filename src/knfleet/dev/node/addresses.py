"""The addresses of pods: what is reported, and where a real pod listens.

A pod's reported address is 198.19.x.y, from a range reserved for tests, because the API server
refuses loopback addresses in EndpointSlices; nothing ever dials it. A real pod listens on
127.<net>.x.y with the same last two octets, so that pods of all clusters can use the same ports.
Clusters of other sets on the same machine have the same nets: where one begins follows from the
port of its API server, which no two have.
"""

from collections.abc import Iterable
from urllib.parse import urlsplit

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.dev.node.pods.pod_manifests import status_of, uid_of

PREFIX = "198.19."
NODE_ADDRESS = "198.19.255.254"
KUBELET_PORT = 10250
FIRST, LAST = 257, 254 * 256
BLOCK = 61
"""So many pods of two clusters whose ports are neighbours have no number in common."""


class PodAddress(Struct, frozen=True):
    """One pod's address, as reported and as listened on."""

    reported: str
    loopback: str


def pod_address(index: int, loopback_net: int) -> PodAddress:
    """The address with this number."""
    high, low = divmod(index, 256)
    return PodAddress(f"{PREFIX}{high}.{low}", f"127.{loopback_net}.{high}.{low}")


def index_of(reported: str) -> int | None:
    """The number of a reported address, if it is one of ours for pods."""
    if not reported.startswith(PREFIX) or reported == NODE_ADDRESS:
        return None
    high, low = reported.removeprefix(PREFIX).split(".")
    return int(high) * 256 + int(low)


def first_for(server: str) -> int:
    """The first number for the pods of the cluster whose API server has this address."""
    port = urlsplit(server).port or 0
    return FIRST + port * BLOCK % (LAST - FIRST)


class Addresses:
    """Who has which address; a pod keeps the one that its status shows."""

    def __init__(self, loopback_net: int, first: int = FIRST) -> None:
        self.loopback_net = loopback_net
        self.by_uid: dict[str, int] = {}
        self.taken: set[int] = set()
        self.following = first

    def of(self, pod: Object) -> PodAddress:
        """The pod's address, chosen now if it has none."""
        uid = uid_of(pod)
        if uid not in self.by_uid:
            shown = index_of(status_of(pod).get("podIP", ""))
            self.claim(uid, self.free() if shown is None or shown in self.taken else shown)
        return pod_address(self.by_uid[uid], self.loopback_net)

    def claim_shown(self, pods: Iterable[Object]) -> None:
        """Give every pod the address that its status shows, before others get new ones."""
        for pod in pods:
            if index_of(status_of(pod).get("podIP", "")) is not None:
                self.of(pod)

    def release(self, uid: str) -> None:
        """The pod is gone."""
        if (index := self.by_uid.pop(uid, None)) is not None:
            self.taken.discard(index)

    def claim(self, uid: str, index: int) -> None:
        self.by_uid[uid] = index
        self.taken.add(index)

    def free(self) -> int:
        """The next free number; recently released ones come last."""
        for _ in range(LAST - FIRST):
            index, self.following = self.following, self.following + 1
            if self.following >= LAST:
                self.following = FIRST
            if index not in self.taken and index % 256 not in {0, 255}:
                return index
        raise RuntimeError("every pod address of this cluster is taken")
