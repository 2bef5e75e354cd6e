"""What stands in for Knative on a target: controllers that set statuses, an ingress and a Broker.

Ingress and Broker are pods of our own image, so that they run as processes and are reached through
the API server's proxy. The ingress answers by the host that it is asked for: NAME.MODE.example.com.
The Broker brings an event to the subscribers of its Triggers, unless its path begins with /lost.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from knfleet.api.core import CLUSTER_ROLE_BINDINGS, PODS, SERVICES
from knfleet.api.knative.verification import BROKERS, KINGRESSES, KSERVICES, TRIGGERS
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
import json, os, pathlib, ssl, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVER = "https://{KUBERNETES_SERVICE_HOST}:{KUBERNETES_SERVICE_PORT}".format(**os.environ)
TRUST = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")

def call(path, body=None, headers=()):
    given = {"Authorization": "Bearer " + (ACCOUNT / "token").read_text(), **dict(headers)}
    request = urllib.request.Request(SERVER + path, body, given)
    with urllib.request.urlopen(request, timeout=10, context=TRUST) as response:
        return response.read()

def deliver(namespace, broker, event, headers):
    path = f"/apis/eventing.knative.dev/v1/namespaces/{namespace}/triggers"
    for trigger in json.loads(call(path))["items"]:
        spec = trigger["spec"]
        wanted = spec["filter"]["attributes"]["type"]
        if spec["broker"] == broker and wanted == headers["ce-type"]:
            to = spec["subscriber"]
            name = f"{to['ref']['name']}:80"
            service = f"/api/v1/namespaces/{namespace}/services/{name}/proxy"
            call(service + to["uri"], event, headers)

class Ingress(BaseHTTPRequestHandler):
    def do_GET(self):
        name, _, rest = self.headers.get("Host", "").partition(".")
        mode = rest.partition(".")[0]
        code = {"works": 200, "fails": 503, "foreign": 200, "silent": 204}.get(mode, 404)
        self.answer(code, name if mode == "works" else "something else")

    def do_POST(self):
        event = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        _, kind, namespace, broker = self.path.split("/")
        known = self.headers.get("ce-id") == broker
        if known and kind == "space":
            attributes = {name.lower(): value for name, value in self.headers.items()}
            kept = {name: attributes[name] for name in attributes if name.startswith("ce-")}
            deliver(namespace, broker, event, kept)
        self.answer(202 if known else 400, "")

    def answer(self, code, text):
        self.send_response(code)
        self.send_header("Content-Type", "text/plain")
        body = b"" if code == 204 else text.encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

ThreadingHTTPServer((os.environ["KNFLEET_BIND_ADDRESS"], 8080), Ingress).serve_forever()
"""
KINDS = (KSERVICES, KINGRESSES, BROKERS, TRIGGERS)
POD_SERVICES = (("knative-serving", "kourier"), ("knative-eventing", "broker-ingress"))


class KnativeDouble:
    """Sets the statuses of Knative Services, Brokers and Triggers."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.mode = "works"
        """The second label of hosts; what the ingress does follows from it."""
        self.problem = ""
        """Why nothing becomes ready, if that is so."""
        self.seen: list[str] = []
        """The names of all that was made."""
        self.informers = [Informer(client, each) for each in (KSERVICES, BROKERS, TRIGGERS)]
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
            kind = "space" if self.mode == "works" else "lost"
            path = f"{kind}/{key.namespace}/{key.name}"
            address = f"http://broker-ingress.knative-eventing.svc.cluster.local/{path}"
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


def administrator(namespace: str) -> Object:
    """All rights for the Broker of a namespace, which calls Services and reads Triggers."""
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    made = manifest(CLUSTER_ROLE_BINDINGS, f"broker-of-{namespace}")
    return {**made, "roleRef": role, "subjects": [subject]}


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
    await client.apply(CLUSTER_ROLE_BINDINGS, administrator("knative-eventing"))
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
