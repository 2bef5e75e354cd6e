"""Who may open streams: readers of a ClusterProfile by its routing key, users of the hub by RBAC.

A user needs the verb `proxy` on the ManagedCluster. What the hub answered about a token is
remembered for some seconds: a command of kubectl opens several streams.
"""

import asyncio
import hashlib
from collections.abc import Callable
from http import HTTPStatus

from msgspec import Struct

from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.meta import Key, Object
from knfleet.api.reviews import SUBJECT_REVIEWS, TOKEN_REVIEWS
from knfleet.apply.manifest_fields import part
from knfleet.hub.informers import HubInformers
from knfleet.hub.profiles.cluster_profile import is_ours
from knfleet.hub.tunnel.front.connect_request import ConnectRequest, Refusal
from knfleet.hub.tunnel.front.routing_key import is_routing_key, key_namespace
from knfleet.hub.tunnel.key_secret import RoutingSecrets
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError

REMEMBERED_SECONDS = 10.0
REMEMBERED_ANSWERS = 1000
REVIEWS_AT_ONCE = 8
"""Anybody may show tokens: the API server is asked about so many at once."""
VERB = "proxy"


class Answer(Struct, frozen=True):
    """What the hub answered about a token and a cluster."""

    until: float
    user: str
    refusal: str = ""


class FrontAuthorizer:
    """Decides about requests at the front."""

    def __init__(
        self, client: Client, informers: HubInformers, keys: Callable[[], RoutingSecrets | None]
    ) -> None:
        self.client = client
        self.informers = informers
        self.keys = keys
        self.answers: dict[tuple[bytes, str], Answer] = {}
        self.reviews = asyncio.Semaphore(REVIEWS_AT_ONCE)

    async def authorize(self, request: ConnectRequest) -> str:
        """Who asks, for the log; raises `Refusal`."""
        if is_routing_key(request.password):
            return self.check_key(request)
        return await self.check_token(request)

    def check_key(self, request: ConnectRequest) -> str:
        """The profile whose key is used; raises `Refusal`."""
        keys = self.keys()
        accepted = () if keys is None else keys.accepted
        namespace = key_namespace(accepted, request.cluster, request.password)
        place = Key(namespace or "", request.cluster)
        profile = None if namespace is None else self.informers.profiles.get(place)
        if profile is None or not is_ours(profile):
            raise Refusal(
                HTTPStatus.FORBIDDEN,
                f"the routing key for cluster {request.cluster} is not valid;"
                " read proxy-url of its ClusterProfile again",
                "Forbidden",
            )
        return f"ClusterProfile {place}"

    async def check_token(self, request: ConnectRequest) -> str:
        """The user of a token; raises `Refusal`."""
        digest = hashlib.sha256(request.password.encode()).digest()
        key = (digest, request.cluster)
        now = asyncio.get_running_loop().time()
        known = self.answers.get(key)
        if known is None or known.until <= now:
            try:
                async with self.reviews:
                    user, refusal = await self.review(request)
            except KubeError as error:
                raise Refusal(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"the hub's API server did not answer: {type(error).__name__}",
                    "ServiceUnavailable",
                ) from error
            known = Answer(now + REMEMBERED_SECONDS, user, refusal)
            self.remember(key, known, now)
        if known.refusal:
            raise Refusal(HTTPStatus.FORBIDDEN, known.refusal, "Forbidden")
        return known.user

    def remember(self, key: tuple[bytes, str], answer: Answer, now: float) -> None:
        """Keep an answer, and not too many."""
        if len(self.answers) >= REMEMBERED_ANSWERS:
            # Refusals go first: a stranger makes as many of them as there are.
            self.answers = {
                name: each
                for name, each in self.answers.items()
                if each.until > now and not each.refusal
            }
        while len(self.answers) >= REMEMBERED_ANSWERS:
            del self.answers[next(iter(self.answers))]
        self.answers[key] = answer

    async def review(self, request: ConnectRequest) -> tuple[str, str]:
        """The user of a token, and why it may not open streams, if so."""
        asked: Object = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "spec": {"token": request.password},
        }
        status = part(await self.client.create(TOKEN_REVIEWS, asked), "status")
        user: Object = status.get("user") or {}
        name: str = user.get("username") or ""
        if not status.get("authenticated") or not name:
            return "", "the hub does not know this token"
        attributes = {
            "group": CLUSTERS.group,
            "resource": CLUSTERS.plural,
            "name": request.cluster,
            "verb": VERB,
        }
        spec: Object = {
            "user": name,
            "groups": user.get("groups") or [],
            "uid": user.get("uid") or "",
            "extra": user.get("extra") or {},
            "resourceAttributes": attributes,
        }
        review: Object = {
            "apiVersion": SUBJECT_REVIEWS.api_version,
            "kind": SUBJECT_REVIEWS.kind,
            "spec": spec,
        }
        answer = part(await self.client.create(SUBJECT_REVIEWS, review), "status")
        if answer.get("allowed") is True:
            return name, ""
        clusters = f"{CLUSTERS.plural}.{CLUSTERS.group}"
        return name, f"{name} may not {VERB} {clusters} {request.cluster} on the hub"
