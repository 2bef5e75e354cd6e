"""What of the hub a user may see: asked of the hub itself, kind by kind.

Who may list a kind everywhere sees all of it; who may list it in some namespaces sees those. The
objects are read once, by the process; this decides which of them are shown to whom.
"""

import asyncio
from collections.abc import Iterable, Mapping

from msgspec import Struct

from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Object, Resource
from knfleet.api.work.manifestwork import WORKS
from knfleet.apply.act.missing_rights import ACCESS_REVIEWS
from knfleet.kube.client.verbs import Client

KINDS = (SERVINGS, EVENTINGS, PROFILES, CLUSTERS)
"""What a fleet is made of."""
SHOWN_KINDS = (*KINDS, WORKS, CLUSTER_ADDONS, ADDONS)
"""What is watched and shown; of works and add-ons only pages about them say that they are missing.
"""
SELF_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
)
MOST_NAMESPACES = 300
"""In so many namespaces at most it is asked what a user may see."""


class VisibleObjects(Struct, frozen=True):
    """Which objects a user may see."""

    everywhere: frozenset[Resource] = frozenset()
    inside: frozenset[tuple[Resource, str]] = frozenset()
    """Kinds that are seen in single namespaces."""

    def sees(self, resource: Resource, namespace: str = "") -> bool:
        """Whether objects of a kind are seen in a namespace."""
        return resource in self.everywhere or (resource, namespace) in self.inside

    def namespaces(self, resource: Resource) -> list[str]:
        """Where a kind is seen, if not everywhere."""
        return sorted(namespace for kind, namespace in self.inside if kind == resource)

    def notes(self) -> list[str]:
        """What is not shown, a sentence each."""
        return [self.note(kind) for kind in KINDS if kind not in self.everywhere]

    def note(self, resource: Resource) -> str:
        """What is not shown of a kind."""
        missing = f"You may not list {resource} in all namespaces"
        if not resource.namespaced:
            return f"You may not list {resource}, so none are shown."
        if seen := self.namespaces(resource):
            return f"{missing}; shown are those in {', '.join(seen)}."
        return f"{missing}, nor in one that has any; none are shown."


EVERYTHING = VisibleObjects(frozenset(SHOWN_KINDS))


async def visible_objects(
    client: Client, candidates: Mapping[Resource, Iterable[str]]
) -> VisibleObjects:
    """What a client's user may see, of kinds in the namespaces in which there are any."""
    answers = await asyncio.gather(*(may(client, "list", kind) for kind in SHOWN_KINDS))
    everywhere = frozenset(kind for kind, yes in zip(SHOWN_KINDS, answers, strict=True) if yes)
    places = [
        (kind, namespace)
        for kind in SHOWN_KINDS
        if kind.namespaced and kind not in everywhere
        for namespace in sorted(set(candidates.get(kind, ())))[:MOST_NAMESPACES]
    ]
    allowed = await asyncio.gather(
        *(may(client, "list", kind, namespace) for kind, namespace in places)
    )
    inside = frozenset(pair for pair, yes in zip(places, allowed, strict=True) if yes)
    return VisibleObjects(everywhere, inside)


async def may(
    client: Client, verb: str, resource: Resource, namespace: str = "", *, subresource: str = ""
) -> bool:
    """Whether a client's user may do something."""
    attributes = {
        "group": resource.group,
        "resource": resource.plural,
        "subresource": subresource,
        "verb": verb,
        "namespace": namespace,
    }
    review: Object = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": attributes},
    }
    answer = await client.create(ACCESS_REVIEWS, review)
    return answer.get("status", {}).get("allowed") is True


async def user_of(client: Client) -> str:
    """Who a client is to the hub; raises `Unauthorized` for a token that it does not know."""
    review: Object = {"apiVersion": SELF_REVIEWS.api_version, "kind": SELF_REVIEWS.kind}
    answer = await client.create(SELF_REVIEWS, review)
    name = answer.get("status", {}).get("userInfo", {}).get("username")
    return str(name or "unknown")
