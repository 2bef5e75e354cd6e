"""Which rights are missing: asked of the server itself, so that all are named at once."""

import asyncio
from collections.abc import Iterable

from knfleet.api.meta import Object, Resource
from knfleet.apply.change_set import MissingRight
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError

ACCESS_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    namespaced=False,
)
VERBS = ("create", "delete", "list", "patch", "watch")
"""What we do with objects of every kind."""


async def missing_rights(
    client: Client, places: Iterable[tuple[Resource, str]]
) -> dict[tuple[Resource, str], tuple[MissingRight, ...]]:
    """What of all that we need we may not do, for kinds in namespaces.

    A question that is not answered counts as a yes: nothing is claimed without an answer.
    """
    wanted = list(dict.fromkeys(places))
    answers = await asyncio.gather(
        *(denied(client, place, verb) for place in wanted for verb in VERBS)
    )
    found: dict[tuple[Resource, str], list[MissingRight]] = {place: [] for place in wanted}
    pairs = ((place, verb) for place in wanted for verb in VERBS)
    for (place, verb), is_denied in zip(pairs, answers, strict=True):
        if is_denied:
            resource, namespace = place
            found[place].append(MissingRight(resource.plural, resource.group, verb, namespace))
    return {place: tuple(denials) for place, denials in found.items()}


async def denied(client: Client, place: tuple[Resource, str], verb: str) -> bool:
    """Whether the server says that we may not do something."""
    resource, namespace = place
    review: Object = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {
            "resourceAttributes": {
                "group": resource.group,
                "resource": resource.plural,
                "verb": verb,
                "namespace": namespace,
            }
        },
    }
    try:
        answer = await client.create(ACCESS_REVIEWS, review)
    except KubeError:
        return False
    return answer.get("status", {}).get("allowed") is False
