"""The work controller in process, on one API server that is both hub and cluster."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec.structs import replace

from knfleet.agent.work.controller import WorkController
from knfleet.agent.work.source import KubeSource
from knfleet.agent.work.work_settings import WorkSettings
from knfleet.api.core import CONFIG_MAPS, NAMESPACES
from knfleet.api.meta import ClusterName, Key, Object, Resource
from knfleet.api.work.appliedmanifestwork import APPLIED_WORKS
from knfleet.api.work.manifestwork import WORKS
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import KubeError, NotFound
from testbed.waiting import until

CLUSTER = "c1"
SETTINGS = WorkSettings()


class Requests:
    """Counts what clients ask for, by verb; watches apart."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.refused: Counter[int] = Counter()
        self.total = 0
        self.limit = 0
        self.reached = asyncio.Event()

    def request(self, cluster: ClusterName, verb: str, code: int, seconds: float) -> None:
        """One attempt ended."""
        del seconds
        self.counts[cluster, verb] += 1
        if verb not in ("watch", "raw"):
            self.total += 1
            if self.total == self.limit:
                self.reached.set()
        if code >= 400:
            self.refused[code] += 1

    def watch_restarted(
        self, cluster: ClusterName, resource: Resource, error: KubeError | None
    ) -> None:
        """A watch is opened again."""

    def credential_refreshed(self, cluster: ClusterName) -> None:
        """A new credential was fetched."""

    def of(self, cluster: str) -> dict[str, int]:
        """Requests to a cluster beside watches and discovery."""
        return {
            verb: count
            for (name, verb), count in sorted(self.counts.items())
            if name == cluster and verb not in ("watch", "raw")
        }

    def stop_after(self, count: int) -> None:
        """Have `reached` set after so many further requests."""
        self.limit = self.total + count
        self.reached.clear()

    async def cost(self, *, hub: Mapping[str, int], spoke: Mapping[str, int]) -> None:
        """Wait until exactly so much was asked for: what an answer shows may count later."""
        expected = (dict(hub), dict(spoke))

        def found() -> tuple[dict[str, int], dict[str, int]]:
            return dict(self.of("hub")), dict(self.of("spoke"))

        with suppress(AssertionError):
            await until(lambda: found() == expected, "the cost")
        assert found() == expected

    def clear(self) -> None:
        """Begin to count anew."""
        self.counts.clear()
        self.refused.clear()


def config_map(name: str, namespace: str = "default", **data: str) -> Object:
    """A ConfigMap."""
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def work(name: str, *manifests: Object, **spec: Any) -> Object:
    """A work."""
    return {
        "apiVersion": WORKS.api_version,
        "kind": WORKS.kind,
        "metadata": {"name": name, "namespace": CLUSTER},
        "spec": {"workload": {"manifests": list(manifests)}, **spec},
    }


def config(plural: str, name: str, group: str = "", **options: Any) -> Object:
    """The options for one manifest of a work, in the namespace `default`."""
    identifier = {"group": group, "resource": plural, "name": name, "namespace": "default"}
    return {"resourceIdentifier": identifier, **options}


class WorkBench:
    """A hub with works, and a cluster that they are applied to."""

    def __init__(self, admin: Client, connection: Connection) -> None:
        self.admin = admin
        self.connection = connection
        self.requests = Requests()
        self.controller: WorkController | None = None

    @asynccontextmanager
    async def agent(
        self, settings: WorkSettings = SETTINGS, *, server: str = "https://hub", agent: str = "a1"
    ) -> AsyncGenerator[WorkController]:
        """The controller, running."""
        options = ClientOptions(concurrency=18, observe=self.requests)
        hub = Client(replace(self.connection, cluster=ClusterName("hub")), options)
        spoke = Client(replace(self.connection, cluster=ClusterName("spoke")), options)
        controller = WorkController(KubeSource(hub, server, CLUSTER), spoke, agent, settings)
        self.controller = controller
        task = asyncio.create_task(controller.run())
        try:
            yield controller
            if task.done():
                task.result()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await hub.close()
            await spoke.close()

    async def create(self, manifest: Object) -> Object:
        """Create a work."""
        return await self.admin.create(WORKS, manifest)

    async def change(self, name: str, **spec: Any) -> Object:
        """Change the spec of a work."""
        return await self.admin.patch(WORKS, Key(CLUSTER, name), {"spec": spec})

    async def delete(self, name: str) -> None:
        """Delete a work, and return when it and its record are gone."""
        await self.admin.delete(WORKS, Key(CLUSTER, name))
        await self.until_gone(name)

    async def until_gone(self, name: str) -> None:
        """Wait until a work and its AppliedManifestWork are gone."""

        async def is_gone() -> bool:
            return (
                await self.found(WORKS, name, CLUSTER) is None and await self.applied(name) is None
            )

        await until(is_gone, f"work {name} is gone")

    async def applied(self, name: str) -> Object | None:
        """The AppliedManifestWork of a work."""
        every = (await self.admin.list(APPLIED_WORKS)).items
        return next((each for each in every if each["spec"]["manifestWorkName"] == name), None)

    async def found(
        self, resource: Resource, name: str, namespace: str = "default"
    ) -> Object | None:
        """An object, if it is there."""
        try:
            return await self.admin.get(resource, name, namespace)
        except NotFound:
            return None

    async def data(self, name: str) -> Object | None:
        """The data of a ConfigMap, if it is there."""
        manifest = await self.found(CONFIG_MAPS, name)
        return None if manifest is None else manifest.get("data") or {}

    async def until_data(self, name: str, data: Object | None) -> None:
        """Wait until a ConfigMap has some data, or is gone."""

        async def holds() -> bool:
            return await self.data(name) == data

        await until(holds, f"ConfigMap {name} has {data}")

    async def until_condition(self, name: str, type_: str, status: str) -> Object:
        """Wait until a work has a condition for its newest generation; the work."""
        last: Object = {}

        async def holds() -> bool:
            nonlocal last
            last = await self.admin.get(WORKS, name, CLUSTER)
            found = conditions(last).get(type_, {})
            return (found.get("status"), found.get("observedGeneration")) == (
                status,
                last["metadata"]["generation"],
            )

        try:
            await until(holds, f"condition {type_} of work {name} is {status}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {last.get('status')}") from None
        return last

    async def until_values(self, name: str, values: dict[str, Any], ordinal: int = 0) -> Object:
        """Wait until a manifest has reported some values; the work."""
        last: Object = {}

        async def holds() -> bool:
            nonlocal last
            last = await self.admin.get(WORKS, name, CLUSTER)
            return bool(last.get("status")) and feedback(last, ordinal) == values

        try:
            await until(holds, f"feedback of work {name}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {last.get('status')}") from None
        return last


def conditions(manifest: Object, ordinal: int | None = None) -> dict[str, Object]:
    """The conditions of a work, or of one of its manifests, by type."""
    status: Object = manifest.get("status") or {}
    if ordinal is not None:
        every: list[Object] = status.get("resourceStatus", {}).get("manifests") or []
        found = [each for each in every if each["resourceMeta"].get("ordinal", 0) == ordinal]
        status = found[0] if found else {}
    listed: list[Object] = status.get("conditions") or []
    return {each["type"]: each for each in listed}


def feedback(manifest: Object, ordinal: int = 0) -> dict[str, Any]:
    """The feedback values of one manifest, by name."""
    every: list[Object] = manifest["status"].get("resourceStatus", {}).get("manifests") or []
    if ordinal >= len(every):
        return {}
    values: list[Object] = every[ordinal].get("statusFeedback", {}).get("values") or []
    fields = {"Integer": "integer", "String": "string", "Boolean": "boolean", "JsonRaw": "jsonRaw"}
    found: dict[str, Any] = {}
    for each in values:
        value: Object = each["fieldValue"]
        found[each["name"]] = value[fields[value["type"]]]
    return found


async def prepare(admin: Client) -> None:
    """Make the namespace of the cluster on the hub."""
    meta = {"name": CLUSTER}
    await admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
