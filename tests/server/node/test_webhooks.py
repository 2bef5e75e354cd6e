"""API servers reach the webhooks of their cluster through the node, simulated and real ones."""

import base64

from knfleet.api.core import CONFIG_MAPS, CRDS, DEPLOYMENTS, SERVICES, VALIDATING_WEBHOOKS
from knfleet.api.meta import Key, Object, Resource
from knfleet.kube.errors import ApiError, NotFound
from testbed.fakes.certificates import Authority
from testbed.waiting import until
from tests.server.node.cluster import Cluster, available, script

NAME = "check.example.com"
DENIED = "dev.knfleet.dev/webhook: deny"


async def install(cluster: Cluster) -> "Outcomes":
    """A Service before simulated pods, and a webhook that calls it and is denied everything."""
    await cluster.deploy("hook")
    await cluster.create(SERVICES, service_manifest("hook", webhook="deny"))
    await cluster.when(DEPLOYMENTS, "hook", available)
    await cluster.create(VALIDATING_WEBHOOKS, webhook_manifest("hook"))
    await cluster.when(VALIDATING_WEBHOOKS, NAME, has_bundle)
    return Outcomes(cluster)


def service_manifest(name: str, **annotations: str) -> Object:
    """A Service on port 443 before the pods of a Deployment."""
    marks = {f"dev.knfleet.dev/{key}": value for key, value in annotations.items()}
    ports = [{"port": 443, "targetPort": 8443}]
    return {
        "metadata": {"name": name, "annotations": marks},
        "spec": {"selector": {"app": name}, "ports": ports},
    }


def webhook_manifest(service: str, ca: str = "") -> Object:
    """A webhook on labelled ConfigMaps that must answer within a second."""
    config: Object = {"service": {"namespace": "default", "name": service, "path": "/check"}}
    if ca:
        config["caBundle"] = ca
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    webhook: Object = {
        "name": NAME,
        "clientConfig": config,
        "rules": [rule],
        "objectSelector": {"matchLabels": {"checked": "yes"}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    return {"metadata": {"name": NAME}, "webhooks": [webhook]}


def has_bundle(manifest: Object) -> bool:
    """Whether the webhook configuration has a CA."""
    return bool(manifest["webhooks"][0]["clientConfig"].get("caBundle"))


class Outcomes:
    """Creates ConfigMaps that the webhook is asked about, and looks at what comes back."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.count = 0

    async def next(self) -> str:
        """The API server's words about one more ConfigMap; nothing when it was created."""
        self.count += 1
        meta = {"name": f"checked-{self.count}", "labels": {"checked": "yes"}}
        try:
            await self.cluster.create(CONFIG_MAPS, {"metadata": meta})
        except ApiError as error:
            return error.message
        return ""

    async def until_said(self, words: str) -> None:
        """Wait until a ConfigMap is refused with these words; API servers learn late."""

        async def said() -> bool:
            return words in await self.next()

        await until(said, words)

    async def until_admitted(self) -> None:
        """Wait until a ConfigMap is created."""

        async def admitted() -> bool:
            return not await self.next()

        await until(admitted, "a ConfigMap is created")


async def test_a_webhook_with_simulated_pods_denies_and_admits(cluster: Cluster) -> None:
    """The API server is satisfied with CA, certificate and answer; a denial names its reason."""
    outcomes = await install(cluster)

    await outcomes.until_said(DENIED)
    await cluster.annotate(SERVICES, "hook", webhook=None)

    await outcomes.until_admitted()


async def test_a_webhook_hangs_when_told_to(cluster: Cluster) -> None:
    """The API server gives up after the webhook's own timeout."""
    outcomes = await install(cluster)
    await outcomes.until_said(DENIED)

    await cluster.annotate(SERVICES, "hook", webhook="hang")

    await outcomes.until_said("deadline exceeded")


async def test_the_ca_is_put_back_when_somebody_takes_it_away(cluster: Cluster) -> None:
    """Whoever applies the release again must not break the webhook."""
    outcomes = await install(cluster)
    ours = await cluster.client.get(VALIDATING_WEBHOOKS, NAME)
    other = base64.b64encode(Authority().pem).decode()

    path = "/webhooks/0/clientConfig/caBundle"
    await cluster.client.patch(
        VALIDATING_WEBHOOKS, Key("", NAME), [{"op": "replace", "path": path, "value": other}]
    )

    await cluster.when(VALIDATING_WEBHOOKS, NAME, lambda each: each["webhooks"] == ours["webhooks"])
    await outcomes.until_said(DENIED)


async def test_a_webhook_without_ready_pods_is_refused_with_the_reason(cluster: Cluster) -> None:
    """The error says what is missing."""
    outcomes = await install(cluster)
    await outcomes.until_said(DENIED)

    await cluster.annotate(DEPLOYMENTS, "hook", hold="true")

    await outcomes.until_said("no ready pod behind the Service default/hook")


async def test_custom_resources_are_converted(cluster: Cluster) -> None:
    """What was stored in one version can be read in the other."""
    await cluster.deploy("hook")
    await cluster.create(SERVICES, service_manifest("hook"))
    await cluster.when(DEPLOYMENTS, "hook", available)
    await cluster.create(CRDS, crd_manifest())
    name = "things.example.com"

    def ready(crd: Object) -> bool:
        config = crd["spec"]["conversion"]["webhook"]["clientConfig"]
        conditions = crd.get("status", {}).get("conditions") or ()
        established = any(each["type"] == "Established" for each in conditions)
        return bool(config.get("caBundle")) and established

    await cluster.when(CRDS, name, ready)
    old = Resource("example.com", "v1alpha1", "Thing", "things")
    new = Resource("example.com", "v1", "Thing", "things")
    for attempt in range(100):
        try:
            await cluster.create(old, {"metadata": {"name": f"a{attempt}"}, "spec": {"size": 3}})
            break
        except NotFound:
            continue

    [read] = (await cluster.client.list(new, "default")).items

    assert read["apiVersion"] == "example.com/v1"
    assert read["spec"] == {"size": 3}
    # As long as somebody can convert them: the namespace could not be emptied otherwise.
    await cluster.client.delete(CRDS, Key("", name))
    await cluster.gone(CRDS, name)


def crd_manifest() -> Object:
    """A kind with two versions, converted by a webhook."""
    anything: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [
        {
            "name": name,
            "served": True,
            "storage": name == "v1",
            "schema": {"openAPIV3Schema": anything},
        }
        for name in ("v1alpha1", "v1")
    ]
    service = {"namespace": "default", "name": "hook", "path": "/convert"}
    webhook: Object = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
    return {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Thing", "plural": "things"},
            "scope": "Namespaced",
            "versions": versions,
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        },
    }


SERVE = """
import http.server, json, os, ssl
class Answer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = {"message": "the real pod says no"}
        response = {"uid": review["request"]["uid"], "allowed": False, "status": status}
        body = json.dumps({**review, "request": None, "response": response}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body)))
        self.end_headers(); self.wfile.write(body)
server = http.server.HTTPServer((os.environ["KNFLEET_BIND_ADDRESS"], 8443), Answer)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tls/tls.crt", "/tls/tls.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


async def test_a_real_pod_gets_the_calls_to_its_service(cluster: Cluster) -> None:
    """Its own certificate counts, and its CA is left alone."""
    authority = Authority()
    pair = authority.server("hook.default.svc")
    secret: Object = {
        "metadata": {"name": "tls"},
        "stringData": {"tls.crt": pair.certificate.decode(), "tls.key": pair.key.decode()},
    }
    await cluster.create(Resource("", "v1", "Secret", "secrets"), secret)
    container = script(
        SERVE,
        volumeMounts=[{"name": "tls", "mountPath": "/tls"}],
        readinessProbe={"tcpSocket": {"port": 8443}, "periodSeconds": 1},
    )
    volume = {"name": "tls", "secret": {"secretName": "tls"}}
    await cluster.deploy("hook", containers=[container], volumes=[volume])
    await cluster.create(SERVICES, service_manifest("hook"))
    await cluster.when(DEPLOYMENTS, "hook", available)
    ca = base64.b64encode(authority.pem).decode()
    await cluster.create(VALIDATING_WEBHOOKS, webhook_manifest("hook", ca))

    await Outcomes(cluster).until_said("the real pod says no")
    held = await cluster.client.get(VALIDATING_WEBHOOKS, NAME)
    assert held["webhooks"][0]["clientConfig"]["caBundle"] == ca
