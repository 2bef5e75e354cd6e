"""What stands in for Knative on a target: controllers that set statuses, and an ingress.

The ingress is a pod of our own image, so that it runs as a process and is reached through the API
server's proxy. It answers by the host that it is asked for: NAME.MODE.example.com.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from knfleet.api.core import PODS, SERVICES
from knfleet.api.knative.verification import BROKERS, KINGRESSES, KSERVICES
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import part
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import ApiError, NotFound
from testbed.peers.surroundings import define, ensure_namespace, stand_in
from testbed.waiting import until
from tests.support.objects import manifest

HOMES = ("knative-serving", "knative-eventing")
SERVER = """
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Ingress(BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        name, _, rest = self.headers.get("Host", "").partition(".")
        mode = rest.partition(".")[0]
        code = {"works": 200, "fails": 503, "foreign": 200, "silent": 204}.get(mode, 404)
        text = name if mode == "works" else "something else"
        if self.command == "POST":
            known = self.headers.get("ce-id", "")
            code = 202 if known and self.path == f"/space/{known}" else 400
        self.send_response(code)
        self.send_header("Content-Type", "text/plain")
        body = b"" if code == 204 else text.encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer

ThreadingHTTPServer((os.environ["KNFLEET_BIND_ADDRESS"], 8080), Ingress).serve_forever()
"""
KINDS = (KSERVICES, KINGRESSES, BROKERS)
POD_SERVICES = (("knative-serving", "kourier"), ("knative-eventing", "broker-ingress"))


class KnativeDouble:
    """Sets the statuses of Knative Services and Brokers."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.mode = "works"
        """The second label of hosts; what the ingress does follows from it."""
        self.problem = ""
        """Why nothing becomes ready, if that is so."""
        self.seen: list[str] = []
        """The names of all that was made."""
        self.informers = [Informer(client, each) for each in (KSERVICES, BROKERS)]
        self.changed = asyncio.Event()
        for each in self.informers:
            each.on_change(self.note)

    def note(self, change: StoreChange) -> None:
        """Something was made or changed."""
        if change.old is None:
            self.seen.append(change.key.name)
        self.changed.set()

    async def run(self) -> None:
        """Work for ever."""
        async with asyncio.TaskGroup() as group:
            for each in self.informers:
                group.create_task(each.run())
            group.create_task(self.work())

    async def work(self) -> None:
        """Set statuses whenever something changed."""
        while True:
            await self.changed.wait()
            self.changed.clear()
            for informer in self.informers:
                for each in informer.items():
                    with suppress(NotFound):
                        await self.report(informer.resource, each)

    async def report(self, resource: Resource, found: Object) -> None:
        """Say that an object is ready, or why it is not."""
        if part(found, "status"):
            return
        key = Key.of(found)
        host = f"{key.name}.{self.mode}.example.com"
        ready = {"type": "Ready", "status": "False", "reason": "Held", "message": self.problem}
        status: Object = {"observedGeneration": found["metadata"]["generation"]}
        if not self.problem:
            ready = {"type": "Ready", "status": "True"}
            status["url"] = f"http://{host}"
            address = f"http://broker-ingress.knative-eventing.svc.cluster.local/space/{key.name}"
            status["address"] = {"url": address}
            if resource == KSERVICES:
                balancer = {"domainInternal": "kourier.knative-serving.svc.cluster.local"}
                shown = {"publicLoadBalancer": {"ingress": [balancer]}}
                made = manifest(KINGRESSES, key.name, key.namespace, status=shown)
                await self.client.apply(KINGRESSES, made)
        told: Object = {"status": {**status, "conditions": [ready]}}
        await self.client.patch(resource, key, told, subresource="status")


def pod(name: str, namespace: str) -> Object:
    """The pod of an ingress."""
    container = {
        "name": name,
        "image": "knfleet:test",
        "command": ["python", "-c", SERVER],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    }
    made = manifest(PODS, name, namespace, spec={"containers": [container]})
    made["metadata"]["labels"] = {"app": name}
    return made


def definition(resource: Resource) -> Object:
    """The CRD of a kind; an Ingress is written with its status here."""
    made = stand_in(resource.group, resource.version, resource.kind, resource.plural)
    if resource != KINGRESSES:
        made["spec"]["versions"][0]["subresources"] = {"status": {}}
    return made


async def install(client: Client) -> None:
    """What Knative would have installed."""
    await define(client, [definition(each) for each in KINDS])
    for home in HOMES:
        await ensure_namespace(client, home)
    for namespace, name in POD_SERVICES:
        await client.create(PODS, pod(name, namespace))
        ports = [{"port": 80, "targetPort": 8080}]
        spec = {"selector": {"app": name}, "ports": ports}
        await client.create(SERVICES, manifest(SERVICES, name, namespace, spec=spec))

    async def answers(namespace: str, name: str) -> bool:
        path = f"/api/v1/namespaces/{namespace}/services/{name}:80/proxy/"
        with suppress(ApiError):
            await client.raw("GET", path, headers={"Host": "x.works.example.com"}, deadline=5)
            return True
        return False

    for each in POD_SERVICES:
        await until(lambda place=each: answers(*place), f"{each} answers")


@asynccontextmanager
async def knative(client: Client) -> AsyncGenerator[KnativeDouble]:
    """A cluster on which Knative seems to work."""
    await install(client)
    made = KnativeDouble(client)
    task = asyncio.create_task(made.run())
    try:
        for each in made.informers:
            await asyncio.wait_for(each.synced.wait(), 60)
        yield made
    finally:
        ended = task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if ended:
            task.result()
