"""What somebody may do, as the API server itself says."""

from collections.abc import Iterable

from knfleet.api.meta import Object, Resource
from knfleet.kube.client.verbs import Client

REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectRulesReview",
    "selfsubjectrulesreviews",
    namespaced=False,
)

Right = tuple[str, str, str, str]
"""Verb, group, resource, and the name of the object, or nothing when it is for all."""


def single(rules: Iterable[Object]) -> set[Right]:
    """What rules allow, one by one."""
    return {
        (verb, group, resource, name)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }


async def rights(client: Client, namespace: str = "default") -> set[Right]:
    """All that the one who asks may do with objects in a namespace, and everywhere."""
    asked: Object = {
        "apiVersion": REVIEWS.api_version,
        "kind": REVIEWS.kind,
        "spec": {"namespace": namespace},
    }
    status = (await client.create(REVIEWS, asked))["status"]
    assert not status["incomplete"]
    return single(status["resourceRules"])
