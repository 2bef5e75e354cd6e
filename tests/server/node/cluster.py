"""What tests of the dev node do with a cluster: create things, and wait for what follows."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

from knfleet.api.core import DEPLOYMENTS, JOBS, PODS
from knfleet.api.meta import Key, Object, Resource
from knfleet.dev import processes
from knfleet.dev.control_plane import process_name
from knfleet.dev.node.pods.pod_manifests import condition_is_true, is_ready, rows, status_of, table
from knfleet.kube.cache.watch import WatchEvent
from knfleet.kube.client.verbs import Client
from testbed.clusters import Lent

NAMESPACE = "default"
LIMIT_SECONDS = 60


class Cluster:
    """A real cluster with its node."""

    def __init__(self, client: Client, lent: Lent) -> None:
        self.client = client
        self.lent = lent

    def pid_of(self, component: str) -> int:
        """The number of one of the cluster's processes."""
        return processes.recorded(self.lent.folder)[process_name(self.lent.name, component)].pid

    async def create(self, resource: Resource, manifest: Object) -> Object:
        """Create an object in the default namespace."""
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        return await self.client.create(resource, {**head, **manifest}, NAMESPACE)

    async def when(
        self, resource: Resource, name: str, holds: Callable[[Object], bool], namespace: str = ""
    ) -> Object:
        """The object, as soon as something holds for it."""
        selector = f"metadata.name={name}"
        last: Object = {}
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                async with self.events(resource, namespace, fields=selector) as events:
                    async for event in events:
                        last = event.object
                        if event.type in {"ADDED", "MODIFIED"} and holds(last):
                            return last
        except TimeoutError:
            raise AssertionError(f"{resource} {name} stays {last.get('status')}") from None
        raise AssertionError("the watch ended")

    async def gone(self, resource: Resource, name: str) -> None:
        """Wait until there is no object of that name."""
        found = False
        async with asyncio.timeout(LIMIT_SECONDS):
            async with self.events(resource, "", fields=f"metadata.name={name}") as events:
                async for event in events:
                    came = event.type in {"ADDED", "MODIFIED"}
                    found = came or (found and event.type == "BOOKMARK")
                    if not found:
                        return

    async def pods_when(self, labels: str, holds: Callable[[list[Object]], bool]) -> list[Object]:
        """All pods with the labels, as soon as something holds for them together."""
        pods: dict[str, Object] = {}
        complete = False
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                async with self.events(PODS, "", labels=labels) as events:
                    async for event in events:
                        if event.type == "BOOKMARK":
                            complete = True
                        elif event.type == "DELETED":
                            pods.pop(event.object["metadata"]["name"], None)
                        else:
                            pods[event.object["metadata"]["name"]] = event.object
                        if complete and holds(list(pods.values())):
                            return list(pods.values())
        except TimeoutError:
            states = [status_of(pod) for pod in pods.values()]
            raise AssertionError(f"the pods {labels} stay {states}") from None
        raise AssertionError("the watch ended")

    def events(
        self, resource: Resource, namespace: str, *, labels: str = "", fields: str = ""
    ) -> AbstractAsyncContextManager[AsyncGenerator[WatchEvent, None]]:
        """Everything that is and happens in a collection."""
        where = (namespace or NAMESPACE) if resource.namespaced else ""
        return aclosing(self.client.watch(resource, where, labels=labels, fields=fields))

    async def deploy(self, name: str, *, replicas: int = 1, **options: Any) -> None:
        """Create a Deployment."""
        await self.create(DEPLOYMENTS, deployment(name, replicas=replicas, **options))

    async def job(
        self, name: str, *, annotations: dict[str, str] | None = None, **pod: Any
    ) -> None:
        """Create a Job of one pod that is not tried again."""
        spec = {"restartPolicy": "Never", "containers": [container()], **pod}
        manifest: Object = {
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": {
                "backoffLimit": 0,
                "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
            },
        }
        await self.create(JOBS, manifest)

    async def annotate(self, resource: Resource, name: str, **annotations: str | None) -> None:
        """Set or remove annotations of the dev node; underscores stand for dashes."""
        changes = {
            f"dev.knfleet.dev/{key.replace('_', '-')}": value for key, value in annotations.items()
        }
        await self.client.patch(
            resource, Key(NAMESPACE, name), {"metadata": {"annotations": changes}}
        )

    async def log(self, pod: str, query: str = "") -> str:
        """A pod's log, as kubectl gets it: through the API server."""
        path = PODS.path(NAMESPACE, pod, "log")
        return (await self.client.raw("GET", f"{path}?{query}")).decode()


def container(**options: Any) -> Object:
    """A container of an image that is not ours, unless told otherwise."""
    return {"name": "main", "image": "nginx", **options}


def script(text: str, **options: Any) -> Object:
    """A container of our image that runs a few lines of Python."""
    image = "registry.example/team/knfleet:v1"
    return container(**{"image": image, "command": ["python", "-c", text], **options})


def deployment(
    name: str,
    *,
    replicas: int = 1,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **pod: Any,
) -> Object:
    """A Deployment whose pods have the label app."""
    labels = {"app": name, **(labels or {})}
    return {
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container()], **pod},
            },
        },
    }


def available(manifest: Object) -> bool:
    """Whether a Deployment has all of its replicas, of this very generation, available."""
    status = status_of(manifest)
    return (
        status.get("observedGeneration") == manifest["metadata"]["generation"]
        and condition_is_true(status, "Available")
        and status.get("availableReplicas", 0) == manifest["spec"]["replicas"]
    )


def condition(kind: str) -> Callable[[Object], bool]:
    """A function that tells whether a condition is true."""
    return lambda manifest: condition_is_true(status_of(manifest), kind)


def all_ready(count: int) -> Callable[[list[Object]], bool]:
    """A function that tells whether there are so many pods, all ready."""
    return lambda pods: len(pods) == count and all(map(is_ready, pods))


def container_state(pod: Object) -> Object:
    """The state of a pod's only container."""
    for status in rows(status_of(pod).get("containerStatuses")):
        return table(status.get("state"))
    return {}


def waits_with(reason: str) -> Callable[[list[Object]], bool]:
    """A function that tells whether every pod's container waits for that reason."""
    return lambda pods: (
        bool(pods)
        and all(container_state(pod).get("waiting", {}).get("reason") == reason for pod in pods)
    )
