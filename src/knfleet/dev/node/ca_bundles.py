"""Keeps the development CA in webhook configurations whose webhooks this process answers.

In a real cluster the webhook's own pods write their CA there; simulated pods cannot. Configurations
that name a URL, or a Service with real pods, are left alone.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from msgspec import Struct

from knfleet.api.core import CRDS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from knfleet.api.meta import Key, Object, Resource
from knfleet.dev.node.pods.pod_manifests import rows, table
from knfleet.dev.node.work_queue import KeyQueue
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.kube.client.verbs import Client

AT_ONCE = 4

log = structlog.get_logger()


class WebhookObject(Struct, frozen=True):
    """One object that may carry our CA."""

    resource: Resource
    name: str

    def __str__(self) -> str:
        return f"{self.resource.plural}/{self.name}"


def conversion_only(crd: Object) -> Object:
    """The part of a CRD that matters here; schemas are large."""
    meta = crd["metadata"]
    return {
        "metadata": {key: meta[key] for key in ("name", "uid", "resourceVersion") if key in meta},
        "spec": {"conversion": table(crd["spec"].get("conversion"))},
    }


def service_of(client_config: Object) -> Key | None:
    """The Service that a webhook's client configuration names."""
    service = client_config.get("service")
    return Key(service["namespace"], service["name"]) if service else None


def wanted_changes(manifest: Object, ours: Callable[[Key], bool], bundle: str) -> list[Object]:
    """The JSON patch that puts our bundle where our webhooks are called; empty if it is there."""
    operations: list[Object] = []
    for path, guard, config in client_configs(manifest):
        service = service_of(config)
        if service is None or not ours(service) or config.get("caBundle") == bundle:
            continue
        operations.append({"op": "test", **guard})
        operations.append({"op": "add", "path": f"{path}/caBundle", "value": bundle})
    return operations


def client_configs(manifest: Object) -> list[tuple[str, Object, Object]]:
    """Path, a guard that tells whether the path still means the same, and the configuration."""
    found: list[tuple[str, Object, Object]] = []
    for index, webhook in enumerate(rows(manifest.get("webhooks"))):
        guard: Object = {"path": f"/webhooks/{index}/name", "value": webhook["name"]}
        found.append((f"/webhooks/{index}/clientConfig", guard, webhook["clientConfig"]))
    conversion: Object = table(manifest.get("spec")).get("conversion") or {}
    if conversion.get("strategy") == "Webhook":
        config: Object = table(conversion.get("webhook")).get("clientConfig") or {}
        guard = {"path": "/spec/conversion/strategy", "value": "Webhook"}
        found.append(("/spec/conversion/webhook/clientConfig", guard, config))
    return found


class CaBundles:
    """Looks at webhook configurations whenever they, their Services or their pods change."""

    def __init__(
        self,
        client: Client,
        bundle: str,
        *,
        ours: Callable[[Key], bool],
        prepare: Callable[[Key], Awaitable[object]],
    ) -> None:
        self.client = client
        self.bundle = bundle
        self.ours = ours
        """Whether this process answers for a Service."""
        self.prepare = prepare
        """Called for a Service before API servers are configured to trust it."""
        self.informers = {
            resource: Informer(
                client,
                resource,
                trim=conversion_only if resource is CRDS else without_managed_fields,
            )
            for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, CRDS)
        }
        self.work = KeyQueue(self.reconcile, at_once=AT_ONCE)
        self.namespaces: dict[WebhookObject, frozenset[str]] = {}
        """Where the Services are that a subject names."""
        for resource, informer in self.informers.items():
            informer.on_change(self.noticing(resource))

    def noticing(self, resource: Resource) -> Callable[[StoreChange], None]:
        """A handler for changes of one kind."""

        def notice(change: StoreChange) -> None:
            subject = WebhookObject(resource, change.key.name)
            configs = client_configs(change.new or {})
            services = [service_of(config) for _, _, config in configs]
            self.namespaces[subject] = frozenset(each.namespace for each in services if each)
            if not self.namespaces[subject]:
                del self.namespaces[subject]
            self.work.add(subject)

        return notice

    def namespace_changed(self, namespace: str) -> None:
        """A Service or pod came, went or changed sides."""
        for subject, namespaces in self.namespaces.items():
            if namespace in namespaces:
                self.work.add(subject)

    async def run(self) -> None:
        """Keep the bundles until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers.values():
                group.create_task(informer.run())
            group.create_task(self.work.run())

    async def reconcile(self, subject: WebhookObject) -> float | None:
        """Put our bundle into one object, where it should be and is not."""
        manifest = self.informers[subject.resource].get(Key("", subject.name))
        if manifest is None:
            return None
        operations = wanted_changes(manifest, self.ours, self.bundle)
        if operations:
            for _, _, config in client_configs(manifest):
                service = service_of(config)
                if service is not None and self.ours(service):
                    await self.prepare(service)
            await self.client.patch(subject.resource, Key("", subject.name), operations)
            log.info("bundle written", subject=str(subject))
        return None
