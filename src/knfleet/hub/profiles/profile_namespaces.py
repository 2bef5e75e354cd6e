"""The namespaces in which profiles are published: the hub's right to them, and their Secrets.

In a namespace in which a set is bound the hub gives itself the right to Secrets, and watches their
metadata: so a copy that a client removed comes back, and a Secret of another client is left alone.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from knfleet.api.core import ROLE_BINDINGS, SECRETS
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.rbac_rules import RBAC_GROUP
from knfleet.hub.context import remove
from knfleet.hub.informers import labels_of
from knfleet.hub.profiles.cluster_profile import TOKEN_LABEL, digest
from knfleet.hub.profiles.rights import TOKENS_ROLE
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from knfleet.runtime.manager import Lifetime

SELF_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
)
SYNC_SECONDS = 20.0


class NotOurs(Exception):
    """There is a Secret of that name which we did not make; the message names it."""


class ProfileNamespace(Struct, frozen=True):
    """A namespace in which profiles are published."""

    secrets: Informer
    lifetime: Lifetime


class WrittenSecret(Struct, frozen=True):
    """What we last wrote, distinguished without keeping it."""

    digest: str
    resource_version: str


async def own_subject(client: Client) -> Object | None:
    """Who we are, as a binding names it; None for one who may do everything anyway."""
    asked = {"apiVersion": SELF_REVIEWS.api_version, "kind": SELF_REVIEWS.kind}
    answer = await client.create(SELF_REVIEWS, asked)
    user: Object = answer["status"]["userInfo"]
    groups: list[str] = user.get("groups") or []
    if "system:masters" in groups:
        return None
    return {"apiGroup": RBAC_GROUP, "kind": "User", "name": user["username"]}


class ProfileNamespaces:
    """Keeps the copies of tokens in all namespaces in which profiles are published."""

    def __init__(self, client: Client, lifetime: Callable[[str], Lifetime]) -> None:
        self.client = client
        self.lifetime = lifetime
        self.places: dict[str, ProfileNamespace] = {}
        self.written: dict[Key, WrittenSecret] = {}
        self.handlers: list[Callable[[StoreChange], None]] = []
        self.entering = asyncio.Lock()

    def on_change(self, handler: Callable[[StoreChange], None]) -> None:
        """Call a function with every change of a Secret in one of the namespaces."""
        self.handlers.append(handler)

    def notify(self, change: StoreChange) -> None:
        for handler in self.handlers:
            handler(change)

    async def enter(self, namespace: str) -> ProfileNamespace:
        """Take hold of a namespace: the right first, then the sight."""
        async with self.entering:
            if namespace not in self.places:
                subject = await own_subject(self.client)
                if subject is not None:
                    await self.client.apply(ROLE_BINDINGS, token_binding(namespace, subject))
                secrets = Informer(self.client, SECRETS, namespace, metadata_only=True)
                secrets.on_change(self.notify)
                lifetime = self.lifetime(f"tokens in {namespace}")
                lifetime.add(secrets, "secrets")
                self.places[namespace] = ProfileNamespace(secrets, lifetime)
        place = self.places[namespace]
        async with asyncio.timeout(SYNC_SECONDS):
            await place.secrets.synced.wait()
        return place

    async def leave(self, namespace: str) -> None:
        """Let go of a namespace, and of the right to it."""
        place = self.places.pop(namespace, None)
        if place is None:
            return
        place.lifetime.end()
        self.written = {
            key: copy for key, copy in self.written.items() if key.namespace != namespace
        }
        await remove(self.client, ROLE_BINDINGS, Key(namespace, TOKENS_ROLE))

    async def write(self, manifest: Object) -> None:
        """Write a copy unless it is there as we wrote it; `NotOurs` when its name is taken."""
        key = Key.of(manifest)
        place = await self.enter(key.namespace)
        there = place.secrets.get(key)
        if there is not None and TOKEN_LABEL not in labels_of(there):
            raise NotOurs(
                f"Secret {key} exists and is not managed by knfleet; remove it, and the token is"
                " copied"
            )
        known, wanted = self.written.get(key), digest(manifest)
        if (
            there is not None
            and known is not None
            and (known.digest, known.resource_version)
            == (wanted, there["metadata"]["resourceVersion"])
        ):
            return
        made = await self.client.apply(SECRETS, manifest)
        self.written[key] = WrittenSecret(wanted, made["metadata"]["resourceVersion"])

    async def erase(self, key: Key) -> None:
        """Remove a copy, if it is there and ours."""
        self.written.pop(key, None)
        place = await self.enter(key.namespace)
        there = place.secrets.get(key)
        if there is not None and TOKEN_LABEL in labels_of(there):
            with suppress(NotFound):
                await self.client.delete(SECRETS, key, uid=there["metadata"]["uid"])


def token_binding(namespace: str, subject: Object) -> Object:
    """The hub's right to Secrets in a namespace."""
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": TOKENS_ROLE, "namespace": namespace},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": TOKENS_ROLE},
        "subjects": [subject],
    }
