"""The support bundle: everything that helps, and nothing that is secret."""

import base64
import tarfile
from pathlib import Path

import pytest

from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.clusterset import BINDINGS, CLUSTER_SETS
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.core import CONFIG_MAPS, CRDS, DEPLOYMENTS, EVENTS, LEASES, PODS, SECRETS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.conditions import READY
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Object
from knfleet.cli.knative.support_bundle import write
from knfleet.kube.client.verbs import Client
from knfleet.kube.secret_text import GONE, clean
from knfleet.view.redaction import redacted
from knfleet.view.support_bundle import SupportFiles
from testbed.fakes.fleet import Fleet
from tests.support.overview_samples import condition, install, managed, profile

HOME = "knative-operator"
JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJpc3MiOiJrdWJlIn0"
PEM = "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----\n"


class Planted:
    """Secrets that are put somewhere, and must not be found again."""

    def __init__(self) -> None:
        self.secrets: list[str] = []

    def one(self) -> str:
        """A new secret."""
        self.secrets.append(f"hunter{len(self.secrets):02}xyz")
        return self.secrets[-1]

    def encoded(self, form: str = "{}") -> str:
        """A new secret in base64."""
        text = base64.b64encode(form.format(self.one()).encode()).decode()
        self.secrets.append(text)
        return text

    def kubeconfig(self) -> str:
        """A kubeconfig with a token and a key."""
        return (
            "apiVersion: v1\nkind: Config\nusers:\n- name: me\n  user:\n"
            f"    token: {self.one()}\n    client-key-data: {self.encoded(PEM)}\n"
        )

    def found_in(self, text: str) -> list[str]:
        """Those that are in a text."""
        return [secret for secret in self.secrets if secret in text]


def named(name: str, namespace: str = HOME, **fields: object) -> Object:
    """An object."""
    return {"metadata": {"name": name, "namespace": namespace, "annotations": {}}, **fields}


def plant(fleet: Fleet, planted: Planted) -> None:
    """Fill a hub with secrets, in all places that people put them."""
    put = fleet.hub.put
    one, encoded = planted.one, planted.encoded
    secret = named("edge-1", "fleet", data={"token": encoded()}, stringData={"more": one()})
    secret["metadata"]["annotations"] = {"note": one(), "applied": f'{{"data": "{encoded()}"}}'}
    put(SECRETS, secret)
    data = {
        "password": one(),
        "db.yaml": f"host: db\npassword: {one()} {one()}\nport: 5432\n",
        "block.yaml": f"tls.key: |\n  {one()}\n  {one()}\nafter: visible\n",
        "json": f'{{"apiKey": "{one()}", "inner": "{{\\"token\\": \\"{one()}\\"}}"}}',
        "config": planted.kubeconfig(),
        "encoded": encoded("apiVersion: v1\nkind: Config\n{}"),
        "pem": PEM.format(one()),
        "cut": f'{{"token": "{one()}',
        "url": f"see https://bob:{one()}@proxy.example:8080/path",
        "signed": f"https://store.example/x?sig={one()}&y=1",
        "docker.json": f'{{"auths": {{"registry.example": {{"auth": "{encoded()}"}}}}}}',
        "database": f"DB_PASS={one()} DSN='me:{one()}@tcp(db)/x'",
        "list": f"tokens: {one()}\nssh_key: {one()}",
        "harmless": "loglevel.controller: debug",
    }
    put(CONFIG_MAPS, named("settings", data=data, binaryData={"store": encoded()}))
    serving = install("s", condition(READY, "False", "Error", f"Bearer {one()} was refused"))
    serving["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": f'{{"note": "{one()}"}}',
        "example.com/note": f"token={one()}",
        "example.com/jwt": f"{JWT}.{one()}",
    }
    serving["spec"]["config"] = {"registry": {"registry-password": one(), "tokens": [one()]}}
    serving["spec"]["password"] = {"value": one(), "deeper": [{"still": one()}]}
    serving["spec"]["workloads"] = [{"env": [{"envVars": [{"name": "PLAIN", "value": one()}]}]}]
    put(SERVINGS, serving)
    cluster = managed("edge-1", "Unknown")
    cluster["spec"]["managedClusterClientConfigs"] = [
        {"url": f"https://me:{one()}@10.0.0.1:6443", "caBundle": encoded(PEM)}
    ]
    cluster["status"]["clusterClaims"] = [
        {"name": "id.k8s.io", "value": "claims-are-told"},
        {"name": "registry-token", "value": one()},
    ]
    put(CLUSTERS, cluster)
    offered: Object = {
        "server": "https://10.0.0.1:6443",
        "certificate-authority-data": encoded(PEM),
        "proxy-url": f"http://:{one()}@proxy:1",
        "extensions": [
            {"name": "args", "extension": ["--token", one(), f"--password={one()}", "--verbose"]},
            {"name": "envs", "extension": {"API_KEY": one(), "DB_PASSWORD": one()}},
        ],
    }
    published = profile("edge-1")
    published["status"]["accessProviders"] = [{"name": "secretreader", "cluster": offered}]
    put(PROFILES, published)
    container: Object = {
        "name": "operator",
        "args": [f"--hub-token={one()}", "--client-secret", one(), "--v", "4"],
        "env": [{"name": "ANYTHING", "value": one()}, {"name": "SYSTEM_NAMESPACE", "value": HOME}],
    }
    template = {"spec": {"containers": [container]}}
    labels = {"matchLabels": {"name": HOME}}
    put(DEPLOYMENTS, named(HOME, spec={"selector": labels, "template": template}))
    pod = named("operator-1", spec={"containers": [container]})
    pod["metadata"]["labels"] = {"name": HOME}
    # The fake server answers with the pod itself when asked for its log.
    pod["status"] = {
        "log": f'level=error msg="login failed" password={one()}',
        "more": f"Authorization: Basic {encoded()}\n{PEM.format(one())}",
    }
    put(PODS, pod)
    event = named("e", message=f"plugin printed token: {one()}")
    put(EVENTS, event | {"involvedObject": {"kind": "KnativeServing"}})
    put(LEASES, named("lease", spec={"holderIdentity": f"{JWT}.{one()}"}))


@pytest.fixture
def full(fleet: Fleet) -> Fleet:
    """A fake hub with all kinds that matter, but Knative Eventing."""
    kinds = (CLUSTERS, SERVINGS, CLUSTER_SETS, BINDINGS, LEASES, CONFIG_MAPS, CRDS, DEPLOYMENTS)
    for resource in (*kinds, EVENTS, PODS, SECRETS, CSRS):
        fleet.hub.resources[resource.group, resource.version, resource.plural] = resource
        fleet.hub.objects[resource] = {}
    return fleet


async def test_no_planted_secret_is_in_the_bundle(hub: Client, full: Fleet, tmp_path: Path) -> None:
    """Whatever the place and the form; and what helps is still there."""
    planted = Planted()
    plant(full, planted)
    evidence = SupportFiles(hub, lambda _: None)
    archive = tmp_path / "bundle.tar.gz"

    write(archive, await evidence.collect())

    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "out", filter="data")
    paths = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    texts = {str(path.relative_to(tmp_path / "out")): path.read_text() for path in paths}
    assert len(planted.secrets) > 40
    assert {name: found for name, text in texts.items() if (found := planted.found_in(text))} == {}
    assert archive.stat().st_mode & 0o777 == 0o600
    whole = "\n".join(texts.values())
    for word in (
        *("edge-1", "keys:\n- more\n- token", "loglevel.controller: debug", "after: visible"),
        *("https://10.0.0.1:6443", "Kubernetes v1.35.0-fake", "login failed", "SYSTEM_NAMESPACE"),
        *("claims-are-told", "heartbeat", "--verbose", "proxy.example:8080/path"),
    ):
        assert word in whole, word
    assert any(name.endswith("operator-1/operator.log") for name in texts)
    assert "knativeeventings" in texts["bundle/notes.txt"]


@pytest.mark.parametrize(
    "text",
    [
        "ClusterProfile fleet/edge-1: getting credentials: the plugin printed nothing",
        "Secret fleet/edge-1 has no key token; put one there",
        "applyset-0eFHV8ySqp7XoShsGvyWFQD3s96yqwHmzc4e0HR1dsY-v1",
        "image: registry.example/serving/activator@sha256:" + "0f" * 32,
        "uid: 0e6a3b70-1111-4bbb-8ccc-123456789012",
        "ManagedClusterKubeAPIServerUnavailable",
        "secretName: webhook-certs",
        "https://10.0.0.1:6443/api/v1/namespaces/x",
    ],
)
def test_what_is_not_secret_stays(text: str) -> None:
    """A bundle in which nothing can be read helps nobody."""
    assert clean(text) == text


def test_a_long_word_does_not_take_long() -> None:
    """What is linear takes milliseconds here; what is not would take hours."""
    assert clean("ab" * 200_000 + "_-." * 100_000).startswith("ab")


def test_of_a_secret_only_names_stay() -> None:
    manifest = named("s", kind="Secret", type="Opaque", data={"b": "x", "a": "y"})
    manifest["metadata"]["labels"] = {"owner": "me"}

    assert redacted(manifest) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": HOME, "name": "s"},
        "type": "Opaque",
        "keys": ["a", "b"],
    }


def test_references_to_secrets_stay_readable() -> None:
    """Which Secret is meant is often the answer."""
    manifest = named("d", kind="Deployment")
    reference = {"secretKeyRef": {"name": "s", "key": "token"}}
    manifest["spec"] = {"env": [{"name": "TOKEN", "valueFrom": reference}], "token": "abc"}

    found = redacted(manifest)["spec"]

    assert found["env"][0]["valueFrom"] == reference
    assert found["token"] == GONE
