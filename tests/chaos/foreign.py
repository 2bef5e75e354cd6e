"""Objects that are nobody's business but their owner's, and look much like Knative's own."""

import time
from collections.abc import Iterable

from knfleet.api.core import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    SECRETS,
    SERVICE_ACCOUNTS,
    VALIDATING_WEBHOOKS,
)
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply import well_known
from knfleet.kube.client.verbs import Client
from testbed.operators import HOME
from testbed.waiting import until
from tests.chaos.evidence import Foreign
from tests.chaos.judges import Sighting

MARK = "chaos.example.com/foreign"
ALIKE = {
    "app.kubernetes.io/name": "knative-serving",
    "app.kubernetes.io/part-of": "knative",
    "app.kubernetes.io/version": "1.22.0",
    MARK: "true",
}
KINDS = (CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, DEPLOYMENTS, CLUSTER_ROLES, VALIDATING_WEBHOOKS)
READ_SECONDS = 5.0


def made(resource: Resource, name: str, namespace: str = "", **fields: object) -> Object:
    """A foreign object; its labels are those of a release."""
    meta: Object = {"name": name, "labels": dict(ALIKE)}
    if namespace:
        meta["namespace"] = namespace
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": meta,
        **fields,
    }


def objects() -> list[tuple[Resource, Object]]:
    """What stands beside Knative on every cluster."""
    found: list[tuple[Resource, Object]] = []
    for namespace in HOME.values():
        found += [
            (CONFIG_MAPS, made(CONFIG_MAPS, "config-network-mine", namespace, data={"a": "b"})),
            (SECRETS, made(SECRETS, "webhook-certs-mine", namespace)),
            (SERVICE_ACCOUNTS, made(SERVICE_ACCOUNTS, "controller-mine", namespace)),
            (DEPLOYMENTS, made(DEPLOYMENTS, "activator-mine", namespace, spec=idle("mine"))),
        ]
    other_set = made(CONFIG_MAPS, "config-of-others", HOME[next(iter(HOME))])
    other_set["metadata"]["labels"][well_known.PART_OF] = "applyset-others-v1"
    found.append((CONFIG_MAPS, other_set))
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    found.append((CLUSTER_ROLES, made(CLUSTER_ROLES, "knative-serving-mine", rules=rules)))
    hook = made(VALIDATING_WEBHOOKS, "config.webhook.mine", webhooks=[deaf("mine.example.com")])
    found.append((VALIDATING_WEBHOOKS, hook))
    return found


def idle(name: str) -> Object:
    """A Deployment without pods, so that nobody writes it once it is seen."""
    chosen = {"app": name}
    container = {"name": name, "image": "example.com/mine:1"}
    template = {"metadata": {"labels": chosen}, "spec": {"containers": [container]}}
    return {"replicas": 0, "selector": {"matchLabels": chosen}, "template": template}


def deaf(name: str) -> Object:
    """A webhook that is asked about nothing that there is."""
    return {
        "name": name,
        "clientConfig": {"url": "https://127.0.0.1:9/never"},
        "rules": [
            {
                "apiGroups": ["never.example.com"],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["nothings"],
            }
        ],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "admissionReviewVersions": ["v1"],
    }


async def place(client: Client) -> None:
    """Put foreign objects on a cluster, and wait until nobody has to write them any more."""
    for name in HOME.values():
        await client.apply(NAMESPACES, made(NAMESPACES, name))
    for resource, manifest in objects():
        await client.apply(resource, manifest)

    async def are_seen() -> bool:
        found = (await client.list(DEPLOYMENTS, labels=MARK)).items
        return len(found) == len(HOME) and all(
            each.get("status", {}).get("observedGeneration") == 1 and has_settled(each)
            for each in found
        )

    await until(are_seen, "the Deployments are seen")


def has_settled(deployment: Object) -> bool:
    """Whether the controller has said everything about a Deployment."""
    conditions = deployment["status"].get("conditions", [])
    return {each["type"] for each in conditions} >= {"Available", "Progressing"}


async def sight(client: Client, cluster: str) -> Sighting:
    """The foreign objects of a cluster as they are now."""
    found: dict[str, Foreign] = {}
    for resource in KINDS:
        listing = await client.list(
            resource, labels=MARK, metadata_only=True, deadline=READ_SECONDS
        )
        found |= {each.name: each for each in foreign(resource, cluster, listing.items)}
    return Sighting(time.time(), cluster, found)


def foreign(resource: Resource, cluster: str, manifests: Iterable[Object]) -> list[Foreign]:
    """Objects of one kind, by what tells whether they were touched."""
    return [
        Foreign(
            cluster,
            f"{resource.plural} {Key.of(each)}",
            each["metadata"]["uid"],
            each["metadata"]["resourceVersion"],
        )
        for each in manifests
    ]
