"""ServiceAccount tokens for the volumes of one pod, bound to it and renewed in time."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from knfleet.api.core import SERVICE_ACCOUNTS
from knfleet.api.meta import Object
from knfleet.dev.node.containers.container_environment import ReferenceMissing
from knfleet.dev.node.pods.pod_manifests import moment, uid_of
from knfleet.dev.node.pods.volumes import TokenProjection, token_projections
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError

USED_PART = 0.8
"""The part of a token's life after which it is renewed."""


class PodToken(Struct, frozen=True):
    """A token and when to renew it; never printed."""

    text: bytes
    renew: datetime

    def __repr__(self) -> str:
        return f"PodToken(renew={self.renew})"


def renewal(issued: datetime, expires: datetime) -> datetime:
    """When a token should be replaced."""
    return issued + min((expires - issued) * USED_PART, timedelta(hours=24))


def token_request(ask: TokenProjection, pod: Object) -> Object:
    """The TokenRequest for a token that dies with the pod."""
    spec: Object = {
        "expirationSeconds": ask.expiration_seconds,
        "boundObjectRef": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod["metadata"]["name"],
            "uid": uid_of(pod),
        },
    }
    if ask.audience:
        spec["audiences"] = [ask.audience]
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


class PodTokens:
    """The tokens that one pod's volumes want."""

    def __init__(
        self, client: Client, pod: Object, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.client = client
        self.pod = pod
        self.now = now
        self.asks = token_projections(pod)
        self.held: dict[TokenProjection, PodToken] = {}

    def get(self, ask: TokenProjection) -> bytes | None:
        """A token, if it was issued."""
        held = self.held.get(ask)
        return held.text if held else None

    def renew_seconds(self) -> float | None:
        """How long all tokens are good; nothing when the pod has none."""
        if not self.asks:
            return None
        first = min((self.held[ask].renew for ask in self.asks if ask in self.held), default=None)
        return max(0.0, (first - self.now()).total_seconds()) if first else 0.0

    async def ensure(self) -> None:
        """Have every token, none of them old; raises `ReferenceMissing` if one cannot be had."""
        for ask in self.asks:
            held = self.held.get(ask)
            if held is None or held.renew <= self.now():
                self.held[ask] = await self.issue(ask)

    async def issue(self, ask: TokenProjection) -> PodToken:
        """A new token from the API server."""
        account = self.pod["spec"].get("serviceAccountName") or "default"
        namespace = self.pod["metadata"]["namespace"]
        issued = self.now()
        try:
            answer = await self.client.create(
                SERVICE_ACCOUNTS,
                token_request(ask, self.pod),
                namespace,
                name=account,
                subresource="token",
            )
        except KubeError as error:
            raise ReferenceMissing(
                f'no token for the ServiceAccount "{account}": {error}'
            ) from error
        status = answer["status"]
        expires = moment(status["expirationTimestamp"])
        return PodToken(status["token"].encode(), renewal(issued, expires))
