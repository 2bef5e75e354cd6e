"""The two clusters that the suite runs on, by the variables that the guide names.

| Variable | Meaning | Default |
|---|---|---|
| `KUBECONFIG` | the hub, where an operator runs | current context |
| `SPOKE_HOST_KUBECONFIG` | the spoke, as seen from here | none: dev clusters are made |
| `SPOKE_CLUSTER_NAME` | name of the spoke's ClusterProfile | `spoke` |
| `SPOKE_CLUSTER_NAMESPACE` | its namespace | `default` |
| `TEST_NAMESPACE`, `TEST_EVENTING_NAMESPACE` | where Knative goes | as upstream |
| `TEST_RESOURCE` | name of the custom resources | `knative` |
"""

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, SERVICES
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import items
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, NotFound


class Names(Struct, frozen=True):
    """What things are called on the two clusters."""

    profile: Key
    homes: Mapping[Resource, str]
    custom_resource: str

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Names":
        """The names that the environment gives, else upstream's."""
        get = environment.get
        homes = {
            SERVINGS: get("TEST_NAMESPACE") or "knative-operator-testing",
            EVENTINGS: get("TEST_EVENTING_NAMESPACE") or "knative-eventing",
        }
        namespace = get("SPOKE_CLUSTER_NAMESPACE") or "default"
        profile = Key(namespace, get("SPOKE_CLUSTER_NAME") or "spoke")
        return cls(profile, homes, get("TEST_RESOURCE") or "knative")


def spoke_kubeconfig() -> Path | None:
    """The spoke that the reader names."""
    path = os.environ.get("SPOKE_HOST_KUBECONFIG")
    return Path(path) if path else None


class Site:
    """A hub with an operator, and a spoke that a ClusterProfile on the hub leads to."""

    def __init__(self, names: Names, hub: Client, spoke: Client) -> None:
        self.names = names
        self.hub = hub
        self.spoke = spoke

    async def create(self, resource: Resource, **spec: object) -> None:
        """Ask for Knative on the spoke; the namespace may be on both clusters already."""
        home, profile = self.names.homes[resource], self.names.profile
        for client in (self.hub, self.spoke):
            await ensure_namespace(client, home)
        manifest: Object = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": self.names.custom_resource, "namespace": home},
            "spec": {
                "clusterProfileRef": {"name": profile.name, "namespace": profile.namespace},
                **spec,
            },
        }
        await self.hub.create(resource, manifest)

    async def delete(self, resource: Resource) -> None:
        """Ask for its removal."""
        key = Key(self.names.homes[resource], self.names.custom_resource)
        try:
            await self.hub.delete(resource, key)
        except NotFound:
            return

    async def is_gone(self, resource: Resource) -> bool:
        """Whether the custom resource is gone."""
        try:
            await self.hub.get(resource, self.names.custom_resource, self.names.homes[resource])
        except NotFound:
            return True
        return False

    async def condition(self, resource: Resource, type_: str) -> str:
        """The status of one condition; empty while there is none."""
        key = Key(self.names.homes[resource], self.names.custom_resource)
        found = await self.hub.get(resource, key.name, key.namespace)
        said = [each for each in items(found, "status", "conditions") if each["type"] == type_]
        return said[0]["status"] if said else ""

    async def deployments(self, resource: Resource) -> list[Object]:
        """The Deployments of Knative on the spoke."""
        return (await self.spoke.list(DEPLOYMENTS, self.names.homes[resource])).items

    async def are_available(self, resource: Resource) -> bool:
        """Whether there are Deployments on the spoke, all of them available."""
        found = await self.deployments(resource)
        return bool(found) and all(map(is_available, found))

    async def services(self, resource: Resource) -> list[Object]:
        """The Services of Knative on the spoke."""
        label = f"app.kubernetes.io/name={resource.kind.lower().replace('knative', 'knative-')}"
        found = await self.spoke.list(SERVICES, self.names.homes[resource], labels=label)
        return found.items

    async def anchors(self, resource: Resource) -> list[Object]:
        """The helper objects of the custom resource on the spoke."""
        label = f"operator.knative.dev/cr-name={self.names.custom_resource}"
        found = await self.spoke.list(CONFIG_MAPS, self.names.homes[resource], labels=label)
        return found.items


async def ensure_namespace(client: Client, name: str) -> None:
    """Make a namespace, unless it is there."""
    manifest: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    try:
        await client.create(NAMESPACES, manifest)
    except AlreadyExists:
        return


def is_available(deployment: Object) -> bool:
    """Whether a Deployment says that it is available."""
    conditions = items(deployment, "status", "conditions")
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)
