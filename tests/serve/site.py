"""What users do with an installation: they deploy a function, and ask it."""

import asyncio
import http.client
import json
import time
from typing import Any

from knfleet.api.core import PODS, SERVICES
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.knative.verification import BROKERS, KSERVICES
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import items, part
from testbed.serve.ground import FUNCTION
from testbed.serve.programs import RELEASE
from testbed.waiting import until
from tests.support.commands import Printed, type_in
from tests.support.fleets import FLEET, Fleet

NAMESPACE = "default"
DOMAIN = "example.com"
TRIGGERS = Resource("eventing.knative.dev", "v1", "Trigger", "triggers")
SECONDS = 600.0
"""Much longer than anything takes: Knative's own waits add up."""
ASK_SECONDS = 120.0
SERVING: dict[str, Any] = {
    "version": RELEASE,
    "high-availability": {"replicas": 1},
    "ingress": {"kourier": {"enabled": True}},
    "config": {
        "network": {"ingress-class": "kourier.ingress.networking.knative.dev"},
        "domain": {DOMAIN: ""},
        "autoscaler": {"stable-window": "10s", "scale-to-zero-grace-period": "10s"},
    },
}
EVENTING: dict[str, Any] = {"version": RELEASE, "high-availability": {"replicas": 1}}


class Site:
    """A hub with an operator, and a spoke that runs what is installed on it."""

    def __init__(self, fleet: Fleet) -> None:
        self.hub = fleet.hub
        self.spoke = fleet.one

    async def install(self, resource: Resource, spec: dict[str, Any]) -> None:
        """Install a component on the spoke, and wait as users do."""
        profile = {"name": self.spoke.name, "namespace": FLEET}
        await self.hub.create(resource, clusterProfileRef=profile, **spec)
        name = f"{resource.kind}/knative"
        printed = await self.type_in("wait", name, "--timeout", f"{SECONDS:.0f}")
        assert printed.code == 0, f"{printed}\n{await self.unready_pods()}"

    async def type_in(self, *arguments: str) -> Printed:
        """A command of ours, on the hub."""
        return await type_in(self.hub.lent.kubeconfig, *arguments, seconds=SECONDS)

    async def unready_pods(self) -> str:
        """What pods of the spoke wait for, to be read when something failed."""
        found = (await self.spoke.client.list(PODS)).items
        return "\n".join(
            f"{Key.of(pod)}: {each['name']}: {each['state']}"
            for pod in found
            for each in items(pod, "status", "containerStatuses")
            if not each["ready"]
        )

    async def deploy(self, name: str) -> None:
        """Deploy a function of a user, and wait until Serving says that it is ready."""
        spec = {"template": {"spec": {"containers": [{"image": FUNCTION}]}}}
        await self.create(KSERVICES, name, spec)
        await self.is_ready(KSERVICES, name)

    async def create(self, resource: Resource, name: str, spec: Object) -> None:
        """Create an object of Knative on the spoke; its webhooks have their say."""
        manifest: Object = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
        }
        await self.spoke.client.create(resource, manifest)

    async def is_ready(self, resource: Resource, name: str) -> None:
        """Wait until an object of Knative is ready."""
        found: Object = {}

        async def holds() -> bool:
            nonlocal found
            found = await self.spoke.client.get(resource, name, NAMESPACE)
            return any(
                each["type"] == "Ready" and each["status"] == "True"
                for each in items(found, "status", "conditions")
            )

        try:
            await until(holds, f"{resource.kind} {name} is Ready", seconds=SECONDS)
        except AssertionError as error:
            pods = await self.unready_pods()
            raise AssertionError(f"{error}; {found.get('status')}\n{pods}") from error

    async def gateway(self) -> tuple[str, int]:
        """The address of the ingress outside of the cluster."""
        for service in (await self.spoke.client.list(SERVICES)).items:
            if service["metadata"]["name"] == "kourier":
                ingress = items(part(service, "status", "loadBalancer"), "ingress")
                return ingress[0]["ip"], 80
        raise AssertionError("there is no Service kourier")

    async def ask(self, name: str, path: str = "/") -> tuple[int, str, float]:
        """Ask a function through the ingress: status, answer, and the seconds that it took."""
        host, port = await self.gateway()

        def get() -> tuple[int, str]:
            connection = http.client.HTTPConnection(host, port, timeout=ASK_SECONDS)
            try:
                connection.request("GET", path, headers={"Host": f"{name}.{NAMESPACE}.{DOMAIN}"})
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
            finally:
                connection.close()

        started = time.monotonic()
        status, text = await asyncio.to_thread(get)
        return status, text, time.monotonic() - started

    async def pods(self, name: str) -> list[Object]:
        """The pods of a function."""
        labels = f"serving.knative.dev/service={name}"
        return (await self.spoke.client.list(PODS, NAMESPACE, labels=labels)).items

    async def scaled_to_zero(self, name: str) -> None:
        """Wait until a function has no pod."""

        async def holds() -> bool:
            return not await self.pods(name)

        await until(holds, f"{name} has no pod", seconds=SECONDS)

    async def send(self, broker: str, number: str) -> None:
        """Send an event to a Broker, from outside of the cluster."""
        found = await self.spoke.client.get(BROKERS, broker, NAMESPACE)
        url = str(part(found, "status", "address")["url"])
        host, _, path = url.removeprefix("http://").partition("/")
        service, namespace, *_ = host.split(".")
        await self.spoke.client.raw(
            "POST",
            f"/api/v1/namespaces/{namespace}/services/{service}:80/proxy/{path}",
            body=json.dumps({"greeting": "hello"}).encode(),
            headers={
                "Host": host,
                "Content-Type": "application/json",
                "ce-specversion": "1.0",
                "ce-id": number,
                "ce-source": "/tests",
                "ce-type": "dev.knfleet.test",
            },
            deadline=ASK_SECONDS,
        )

    async def received(self, name: str) -> list[Object]:
        """The events that a function received, as soon as there are any."""
        found: list[Object] = []

        async def holds() -> bool:
            nonlocal found
            status, text, _ = await self.ask(name, "/events")
            found = json.loads(text) if status == 200 else []
            return bool(found)

        await until(holds, f"{name} received an event", seconds=SECONDS)
        return found


async def subscribe(site: Site, broker: str, function: str) -> None:
    """Have a function receive the events of a Broker, and wait until it does."""
    reference = {"apiVersion": KSERVICES.api_version, "kind": KSERVICES.kind, "name": function}
    await site.create(TRIGGERS, function, {"broker": broker, "subscriber": {"ref": reference}})
    await site.is_ready(TRIGGERS, function)


__all__ = ["BROKERS", "EVENTING", "EVENTINGS", "SERVING", "SERVINGS", "Site", "subscribe"]
