"""Asks the hub's API server who a caller is and what it may do; answers are kept for seconds."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Literal, TypeVar

from knfleet.api.meta import Resource
from knfleet.apply.manifest_fields import part
from knfleet.hub.grpc.calls.access_rules import REVIEWS, Access
from knfleet.hub.grpc.calls.caller import Caller, reviewed
from knfleet.kube.client.verbs import Client

TOKEN_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False
)
KEEP_SECONDS = 10.0
"""How long an answer counts: a right that is taken away ends so much later."""
MOST_ANSWERS = 4096
TOKEN_BYTES = 16 * 1024
REVIEWS_AT_ONCE = 8
"""Tokens that the API server is asked about at once."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class AnswerCache(Generic[K, V]):
    """Answers of the last seconds, the newest last; no more than a number of them."""

    def __init__(self) -> None:
        self.answers: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """A recent answer."""
        found = self.answers.get(key)
        now = asyncio.get_running_loop().time()
        return None if found is None or found[0] < now else found[1]

    def put(self, key: K, value: V) -> None:
        """Keep an answer."""
        self.answers[key] = (asyncio.get_running_loop().time() + KEEP_SECONDS, value)
        self.answers.move_to_end(key)
        while len(self.answers) > MOST_ANSWERS:
            self.answers.popitem(last=False)


class AccessCheck:
    """Authenticates tokens and authorises calls."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.tokens: AnswerCache[bytes, Caller | Literal[False]] = AnswerCache()
        """Whose each token is; False when it is not accepted."""
        self.reviews = asyncio.Semaphore(REVIEWS_AT_ONCE)
        self.allowed: AnswerCache[tuple[Caller, Access], bool] = AnswerCache()

    async def caller(self, token: str) -> Caller | None:
        """The user of a token; None when it is not accepted. Never kept: the token itself."""
        if len(token) > TOKEN_BYTES:
            return None
        digest = hashlib.sha256(token.encode()).digest()
        known = self.tokens.get(digest)
        if known is not None:
            return known or None
        body = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "spec": {"token": token},
        }
        # Anybody may show tokens: so few are looked at at once, and the same one not again.
        async with self.reviews:
            found = reviewed(await self.client.create(TOKEN_REVIEWS, body))
        self.tokens.put(digest, found or False)
        return found

    async def may(self, caller: Caller, access: Access) -> bool:
        """Whether RBAC lets a caller do something; refusals are not kept."""
        if self.allowed.get((caller, access)):
            return True
        answer = await self.client.create(REVIEWS, access.review(caller))
        allowed = part(answer, "status").get("allowed") is True
        if allowed:
            self.allowed.put((caller, access), allowed)
        return allowed

    def forget(self, cluster: str) -> None:
        """Ask again about the agents of a cluster, whose rights have changed."""
        for key in [each for each in self.allowed.answers if each[0].cluster == cluster]:
            del self.allowed.answers[key]
