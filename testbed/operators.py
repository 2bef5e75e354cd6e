"""The operator as a process, and a hub that tests look at it through."""

import asyncio
import os
import signal
import sys
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import psutil

from knfleet.api.core import CRDS, EVENTS, NAMESPACES
from knfleet.api.crds.generator import definitions
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import items, part
from knfleet.dev import ports
from knfleet.dev.cluster_contents import ContentsEntry, contents
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from testbed.clusters import Lent, kubectl
from testbed.waiting import PATIENCE_SECONDS, until

HOME = {SERVINGS: "knative-serving", EVENTINGS: "knative-eventing"}


class Operator:
    """`knfleet operator`, started as often as a test wants."""

    command: ClassVar[str] = "operator"
    module: ClassVar[str] = "knfleet"

    def __init__(self, kubeconfig: Path, releases: Path, log: Path) -> None:
        self.kubeconfig = kubeconfig
        self.releases = releases
        self.log = log
        self.port = 0
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, *flags: str, **environment: str) -> None:
        """Start it, without waiting for anything."""
        (self.port,) = ports.reserve(1, ports.DEFAULT_RANGE, self.log)
        hidden = ("KUBECONFIG", "KO_DATA_PATH", "SYSTEM_NAMESPACE")
        inherited = {name: value for name, value in os.environ.items() if name not in hidden}
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self.module, self.command),
                *("-kubeconfig", str(self.kubeconfig), f"--health-port={self.port}"),
                *(flags or ("--disable-ha",)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=inherited | {"KO_DATA_PATH": str(self.releases)} | environment,
            )

    async def kill(self) -> None:
        """End it as the kernel does when memory runs out."""
        await self.end(signal.SIGKILL)

    async def stop(self) -> int:
        """Ask it to end; its exit code."""
        return await self.end(signal.SIGTERM)

    async def end(self, blow: signal.Signals) -> int:
        """Send a signal and wait."""
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.returncode is None:
            process.send_signal(blow)
        return await asyncio.wait_for(process.wait(), 30)

    @property
    def memory(self) -> int:
        """Bytes that it holds."""
        assert self.process is not None
        return psutil.Process(self.process.pid).memory_info().rss

    def said(self) -> str:
        """Everything that it logged."""
        return self.log.read_text()

    async def fetch(self, path: str) -> str:
        """What it answers over HTTP."""
        url = f"http://127.0.0.1:{self.port}{path}"
        return await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())

    async def metrics(self) -> dict[str, float]:
        """What it counted, by name and labels."""
        lines = (await self.fetch("/metrics")).splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    async def requests(self) -> dict[str, float]:
        """How many requests it sent, by verb."""
        found: dict[str, float] = {}
        for name, value in (await self.metrics()).items():
            if name.startswith("knfleet_client_requests_total"):
                verb = name.split('verb="')[1].split('"')[0]
                found[verb] = found.get(verb, 0) + value
        return found

    async def passes(self) -> float:
        """How many passes it made."""
        return sum(
            value
            for name, value in (await self.metrics()).items()
            if name.startswith("knfleet_reconcile_total")
        )


class Hub:
    """A cluster with custom resources."""

    def __init__(self, lent: Lent, client: Client) -> None:
        self.lent = lent
        self.client = client
        self.before: set[ContentsEntry] = set()

    async def prepare(self) -> None:
        """Install our CRDs and the namespaces, and remember what there is."""
        for manifest in definitions():
            await self.client.apply(CRDS, manifest)
        for name in HOME.values():
            await self.client.apply(
                NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )
        for resource in HOME:
            await until(lambda each=resource: self.serves(each), f"{resource} is served")
        await until(self.is_settled, "the namespaces have their accounts")
        self.before = set(await contents(self.client))

    async def serves(self, resource: Resource) -> bool:
        """Whether a kind can be listed."""
        try:
            await self.client.list(resource)
        except NotFound:
            return False
        return True

    async def is_settled(self) -> bool:
        """Whether the cluster has put into the namespaces what it puts into each."""
        found = {(each.resource.plural, each.key) for each in await contents(self.client)}
        return all(
            (plural, Key(namespace, name)) in found
            for namespace in HOME.values()
            for plural, name in (("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt"))
        )

    async def create(
        self, resource: Resource, name: str = "knative", *, at: str = "", **spec: Any
    ) -> Object:
        """Create a custom resource."""
        manifest: Object = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "namespace": at or HOME[resource]},
            "spec": spec,
        }
        return await self.client.create(resource, manifest)

    async def get(self, resource: Resource, name: str = "knative", *, at: str = "") -> Object:
        """A custom resource as it is."""
        return await self.client.get(resource, name, at or HOME[resource])

    async def change(self, resource: Resource, name: str = "knative", **spec: Any) -> None:
        """Change fields of a custom resource's spec."""
        await self.client.patch(resource, Key(HOME[resource], name), {"spec": spec})

    async def delete(self, resource: Resource, name: str = "knative") -> None:
        """Ask for the deletion of a custom resource."""
        await self.client.delete(resource, Key(HOME[resource], name))

    async def condition(self, resource: Resource, type_: str, name: str = "knative") -> Object:
        """One condition of a custom resource."""
        conditions = items(await self.get(resource, name), "status", "conditions")
        found = [each for each in conditions if each["type"] == type_]
        return found[0] if found else {"status": "", "message": "", "reason": ""}

    async def says(
        self,
        resource: Resource,
        type_: str,
        *words: str,
        status: str = "False",
        name: str = "knative",
    ) -> str:
        """Wait until a condition has a status, and a message with some words; the message."""
        said: Object = {}

        async def holds() -> bool:
            nonlocal said
            said = await self.condition(resource, type_, name)
            message = said.get("message", "")
            return said["status"] == status and all(word in message for word in words)

        try:
            await until(holds, f"{type_} is {status} with {words}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it says {said}") from error
        return said.get("message", "")

    async def ready(self, resource: Resource, version: str, name: str = "knative") -> Object:
        """Wait until a custom resource is ready at a version."""
        found: Object = {}

        async def holds() -> bool:
            nonlocal found
            found = await self.get(resource, name)
            status = part(found, "status")
            return (
                status.get("version") == version
                and status.get("observedGeneration") == found["metadata"]["generation"]
                and (await self.condition(resource, "Ready", name))["status"] == "True"
            )

        try:
            await until(holds, f"{resource.kind} is ready at {version}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {found.get('status')}") from error
        return found

    async def gone(self, resource: Resource, name: str = "knative") -> None:
        """Wait until a custom resource is gone."""

        async def holds() -> bool:
            found = await self.client.list(resource, fields=f"metadata.name={name}")
            return not found.items

        try:
            await until(holds, f"{resource.kind} {name} is gone")
        except AssertionError as error:
            said = part(await self.get(resource, name), "status").get("conditions")
            raise AssertionError(f"{error}; it says {said}") from error

    async def left(self) -> list[str]:
        """What is there that was not there before, CRDs and what others write aside."""
        noise = {"events", "leases", "endpointslices", "endpoints", "customresourcedefinitions"}
        found = await contents(self.client)
        return sorted(
            f"{each.resource.plural} {each.key}"
            for each in found.keys() - self.before
            if each.resource.plural not in noise and each.resource.group != "apiregistration.k8s.io"
        )

    async def clean(self) -> None:
        """Wait until nothing is left, or fail with what is."""
        left: list[str] = []

        async def holds() -> bool:
            nonlocal left
            left = await self.left()
            return not left

        try:
            await until(holds, "nothing is left")
        except AssertionError:
            raise AssertionError(f"there is still {left}") from None

    async def events(self, reason: str) -> list[str]:
        """What Events of a reason say."""
        found = await self.client.list(EVENTS, fields=f"reason={reason}")
        return [each["message"] for each in found.items]

    async def tells(self, reason: str, *words: str) -> None:
        """Wait for an Event."""

        async def holds() -> bool:
            said = await self.events(reason)
            return any(all(word in message for word in words) for message in said)

        await until(holds, f"an Event {reason} says {words}")

    async def kubectl(self, *arguments: str) -> str:
        """Run kubectl as people do."""
        process = await asyncio.create_subprocess_exec(
            *(kubectl(), "--kubeconfig", str(self.lent.kubeconfig), *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, error = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
        assert process.returncode == 0, error.decode()
        return out.decode()

    async def exists(self, resource: Resource, name: str, at: str = "knative-serving") -> bool:
        """Whether there is an object."""
        namespace = at if resource.namespaced else ""
        found = await self.client.list(resource, namespace, fields=f"metadata.name={name}")
        return bool(found.items)


def names(manifests: Iterable[Object]) -> list[str]:
    """The names of some objects."""
    return sorted(each["metadata"]["name"] for each in manifests)


Start = Callable[..., Any]
