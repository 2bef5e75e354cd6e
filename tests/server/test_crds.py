"""Our CRDs on a real API server: what it takes, what it refuses, what it shows."""

import asyncio
import base64
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from knfleet.api.core import CRDS, NAMESPACES
from knfleet.api.crds.generator import definitions
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.kube.auth.credentials import Credential
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import ApiError, BadRequest, Invalid, NotFound
from testbed import clusters as ground
from testbed.clusters import Pool
from testbed.waiting import PATIENCE_SECONDS
from tests.server import samples

NAMESPACE = "samples"
REFERENCE = {"name": "north", "namespace": "fleet"}
OTHER = {"name": "south", "namespace": "fleet"}
REFUSED_TARGET = (
    r": spec\.clusterProfileRef: Invalid value: .*"
    r"spec\.clusterProfileRef (is immutable|cannot be added)"
)
"""A refusal names the field before it says what is wrong, as `kubectl` shows it."""
KINDS: dict[str, Resource] = {"KnativeServing": SERVINGS, "KnativeEventing": EVENTINGS}


@pytest.fixture(scope="module")
def crds(pool: Pool) -> Connection:
    """Our CRDs, served by the hub, and a namespace for objects of theirs."""

    async def install() -> Connection:
        (lent,) = await pool.lend(1)
        async with Client(lent.connection) as hub:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            await hub.apply(NAMESPACES, namespace)
            for definition in definitions():
                await hub.apply(CRDS, definition)
                await established(hub, definition["metadata"]["name"])
        return lent.connection

    return asyncio.run(install())


@pytest.fixture
async def cluster(crds: Connection) -> AsyncGenerator[Client, None]:
    """The hub with our CRDs, and no objects of theirs."""
    async with Client(crds) as hub:
        yield hub
        for resource in (SERVINGS, EVENTINGS, PROFILES):
            await hub.delete_collection(resource, NAMESPACE)


async def established(hub: Client, name: str) -> None:
    """Return when the server serves the kind."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_established(await hub.get(CRDS, name)):
            pass


def is_established(definition: Object) -> bool:
    """Whether the server serves a kind."""
    conditions: list[Object] = definition.get("status", {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


async def strictly(
    client: Client, resource: Resource, body: Object, *, name: str = "", part: str = ""
) -> Any:
    """Create an object, or merge into one, with unknown fields refused."""
    method, kind = ("PATCH", "application/merge-patch+json") if name else ("POST", "")
    answer = await client.raw(
        method,
        f"{resource.path(NAMESPACE, name, part)}?fieldValidation=Strict",
        body=msgspec.json.encode(body),
        headers={"Content-Type": kind or "application/json"},
    )
    return msgspec.json.decode(answer)


def serving(**spec: Any) -> Object:
    """A KnativeServing with a spec, if any is given."""
    manifest: Object = {
        "apiVersion": SERVINGS.api_version,
        "kind": "KnativeServing",
        "metadata": {"name": "one", "namespace": NAMESPACE},
    }
    return {**manifest, "spec": spec} if spec else manifest


def workload(**override: Any) -> Object:
    """A spec with an override of one workload."""
    return {"workloads": [{"name": "activator", **override}]}


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
EXPRESSION = {"matchExpressions": [{"key": "zone", "values": ["a"]}]}
"""A condition on nodes without its operator."""
MISSPELT = workload(
    affinity={
        "nodeAfinity": {},
        "podAntiAffinity": {REQUIRED: [{"topologyKey": "zone", "labelSelectors": {}}]},
    },
    tolerations=[{"kee": "dedicated"}],
    topologySpreadConstraints=[
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "skew": 1}
    ],
    env=[{"container": "c", "envVars": [{"name": "A", "valueFrom": {"secretRef": {}}}]}],
)
"""Typing errors in what Kubernetes itself defines."""


@pytest.mark.parametrize("sample", samples.knatives(), ids=lambda s: s["metadata"]["name"])
async def test_what_the_documents_show_is_accepted_strictly(cluster: Client, sample: Object):
    created = await strictly(cluster, KINDS[sample["kind"]], sample)

    assert created.get("spec") == sample.get("spec")


async def test_the_status_that_operators_write_is_accepted_strictly(cluster: Client):
    await strictly(cluster, SERVINGS, serving())

    status = samples.KNATIVE_STATUS
    written = await strictly(cluster, SERVINGS, {"status": status}, name="one", part="status")

    assert written["status"] == status


@pytest.mark.parametrize("patch", samples.profile_statuses(), ids=["by-hand", "complete"])
async def test_profiles_and_their_status_are_accepted_strictly(cluster: Client, patch: Object):
    await strictly(cluster, PROFILES, samples.profile())

    written = await strictly(cluster, PROFILES, patch, name="north", part="status")

    assert written["status"] == patch["status"]


@pytest.mark.parametrize(
    ("before", "change"),
    [
        ({"clusterProfileRef": REFERENCE}, {"spec": None}),
        ({"clusterProfileRef": REFERENCE}, {"spec": {"clusterProfileRef": None}}),
        ({"clusterProfileRef": REFERENCE}, {"spec": {"clusterProfileRef": OTHER}}),
        ({"clusterProfileRef": REFERENCE}, {"spec": {"clusterProfileRef": {"name": "south"}}}),
        ({}, {"spec": {"clusterProfileRef": REFERENCE}}),
        ({"version": "1.23"}, {"spec": {"clusterProfileRef": REFERENCE}}),
    ],
)
async def test_the_target_cluster_can_never_change(cluster: Client, before: Object, change: Object):
    await strictly(cluster, SERVINGS, serving(**before))

    with pytest.raises(Invalid, match=REFUSED_TARGET):
        await cluster.patch(SERVINGS, Key(NAMESPACE, "one"), change)


async def test_the_target_cluster_cannot_be_changed_by_put_or_apply(cluster: Client):
    created = await strictly(cluster, SERVINGS, serving(clusterProfileRef=REFERENCE))
    without = {name: part for name, part in created.items() if name != "spec"}

    with pytest.raises(Invalid):
        await cluster.replace(SERVINGS, without)
    with pytest.raises(Invalid):
        await cluster.apply(SERVINGS, serving(clusterProfileRef=OTHER))


async def test_everything_else_of_a_remote_object_can_change(cluster: Client):
    await strictly(cluster, SERVINGS, serving(clusterProfileRef=REFERENCE))

    changed = await strictly(
        cluster,
        SERVINGS,
        {"spec": {"version": "1.23", "config": {"network": {"a": "b"}}}},
        name="one",
    )

    assert changed["spec"]["clusterProfileRef"] == REFERENCE


async def test_a_profile_keeps_its_manager(cluster: Client):
    await strictly(cluster, PROFILES, samples.profile())

    for change in ({"spec": None}, {"spec": {"clusterManager": {"name": "another"}}}):
        with pytest.raises(Invalid):
            await cluster.patch(PROFILES, Key(NAMESPACE, "north"), change)


@pytest.mark.parametrize(
    "spec",
    [
        {"high-availability": {"replicas": -1}},
        {"high-availability": {"replicas": 10**9}},
        {"high-availability": {}},
        {"ingress": {"kourier": {"enabled": True, "http-port": 70000}}},
        {"clusterProfileRef": {"name": "", "namespace": "fleet"}},
        {"clusterProfileRef": {"name": "north"}},
        {"workloads": [{"name": "activator", "replicas": 2**40}]},
        {"config": {"network": {"ingress-class": 7}}},
        {"registry": {"default": ["a"]}},
        workload(resources=[{"container": "activator", "limits": {"cpu": "many"}}]),
        workload(resources=[{"container": "activator", "requests": {"memory": "64 MiB"}}]),
        workload(readinessProbes=[{"container": "activator", "periodSeconds": -1}]),
        workload(livenessProbes=[{"container": "activator", "failureThreshold": 2**31}]),
        workload(tolerations=[{"key": "a", "tolerationSeconds": "long"}]),
        workload(topologySpreadConstraints=[{"topologyKey": "zone"}]),
        workload(env=[{"container": "activator", "envVars": [{"value": "nameless"}]}]),
        workload(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [EXPRESSION]}}}),
    ],
    ids=str,
)
async def test_values_that_cannot_work_are_refused(cluster: Client, spec: Object):
    with pytest.raises(Invalid):
        await strictly(cluster, SERVINGS, serving(**spec))


async def test_a_misspelt_field_is_refused(cluster: Client):
    with pytest.raises(BadRequest, match="clusterProfileReference"):
        await strictly(cluster, SERVINGS, serving(clusterProfileReference=REFERENCE))


async def test_typing_errors_in_parts_of_pods_are_refused_or_pruned(cluster: Client):
    with pytest.raises(BadRequest) as refusal:
        await strictly(cluster, SERVINGS, serving(**MISSPELT))
    kept = await cluster.create(SERVINGS, serving(**MISSPELT), NAMESPACE)

    at = "spec.workloads[0]"
    for field in (
        f"{at}.affinity.nodeAfinity",
        f"{at}.affinity.podAntiAffinity.{REQUIRED}[0].labelSelectors",
        f"{at}.tolerations[0].kee",
        f"{at}.topologySpreadConstraints[0].skew",
        f"{at}.env[0].envVars[0].valueFrom.secretRef",
    ):
        assert f'unknown field "{field}"' in str(refusal.value)
    (override,) = kept["spec"]["workloads"]
    assert override["affinity"] == {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}
    assert override["tolerations"] == [{}]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            f"affinity.podAntiAffinity.{PREFERRED}.podAffinityTerm",
            "topologyKey\t<string> -required-",
        ),
        (f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms", "matchFields"),
        ("topologySpreadConstraints", "whenUnsatisfiable\t<string> -required-"),
        ("tolerations.tolerationSeconds", "how long a pod stays"),
        ("env.envVars.valueFrom.resourceFieldRef", "divisor"),
    ],
)
async def test_kubectl_explains_parts_of_pods(
    crds: Connection, tmp_path: Path, path: str, words: str
):
    arguments = ("explain", "--api-version", SERVINGS.api_version)

    shown = await kubectl(crds, tmp_path, *arguments, f"knativeservings.spec.workloads.{path}")

    assert words in shown


async def test_kubectl_shows_what_matters(cluster: Client, crds: Connection, tmp_path: Path):
    await strictly(cluster, SERVINGS, serving(clusterProfileRef=REFERENCE))
    await strictly(cluster, SERVINGS, {"status": samples.KNATIVE_STATUS}, name="one", part="status")
    await strictly(cluster, PROFILES, samples.profile())

    servings = await kubectl(crds, tmp_path, "get", "knativeservings")
    profiles = await kubectl(crds, tmp_path, "get", "clusterprofile")

    header, row = servings.splitlines()
    assert header.split() == [
        *("NAME", "VERSION", "READY", "REASON", "TARGET", "CLUSTER", "AGE"),
    ]
    assert row.split()[:5] == ["one", "1.23.0", "False", "NotReady", "north"]
    assert profiles.splitlines()[0].split() == ["NAME", "MANAGER", "HEALTHY", "VERSION", "AGE"]


async def kubectl(connection: Connection, folder: Path, *arguments: str) -> str:
    """What kubectl prints."""
    credential = await connection.credentials.fetch()
    config = folder / "kubeconfig"
    config.write_bytes(msgspec.json.encode(kubeconfig(connection, credential)))
    command = [ground.kubectl(), "--kubeconfig", str(config), "--namespace", NAMESPACE]
    return await asyncio.to_thread(printed, *command, *arguments)


def printed(*command: str) -> str:
    """What a program that succeeds prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kubeconfig(connection: Connection, credential: Credential) -> Object:
    """A kubeconfig for a connection."""
    user = {
        "token": credential.token,
        "client-certificate-data": encoded(credential.client_certificate),
        "client-key-data": encoded(credential.client_key),
    }
    endpoint = connection.endpoint
    server = {"server": endpoint.server, "certificate-authority-data": encoded(endpoint.ca)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "hub", "cluster": server}],
        "users": [{"name": "admin", "user": {k: v for k, v in user.items() if v}}],
        "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "admin"}}],
        "current-context": "hub",
    }


def encoded(content: bytes | None) -> str:
    """Bytes as a kubeconfig has them."""
    return base64.b64encode(content or b"").decode()


async def test_the_definitions_have_no_complaint_from_the_server(cluster: Client):
    for definition in definitions():
        served = await cluster.get(CRDS, definition["metadata"]["name"])
        problems = [
            condition
            for condition in served["status"]["conditions"]
            if condition["type"] == "NonStructuralSchema" and condition["status"] == "True"
        ]
        assert problems == []


async def test_an_object_the_knative_operator_left_without_spec_gets_no_target(cluster: Client):
    """A late `spec` is a change too, although there is no old one to compare with."""
    await strictly(cluster, SERVINGS, serving())

    with pytest.raises(ApiError, match="cannot be added or removed after creation"):
        await cluster.apply(SERVINGS, serving(clusterProfileRef=REFERENCE))


async def test_the_knative_operators_definitions_become_ours(cluster: Client):
    """Its CRDs convert through a webhook; after the change nobody needs to be there for it."""
    name = f"{SERVINGS.plural}.{SERVINGS.group}"
    ours = next(one for one in definitions() if one["metadata"]["name"] == name)
    theirs: Object = msgspec.json.decode(msgspec.json.encode(ours))
    version = theirs["spec"]["versions"][0]
    del version["additionalPrinterColumns"]
    del version["schema"]["openAPIV3Schema"]["x-kubernetes-validations"]
    theirs["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhook": {
            "conversionReviewVersions": ["v1beta1"],
            "clientConfig": {"service": {"namespace": "gone", "name": "gone", "path": "/convert"}},
        },
    }
    await cluster.delete(CRDS, Key("", name))
    await gone(cluster, name)
    await cluster.create(CRDS, theirs)
    await established(cluster, name)
    await strictly(cluster, SERVINGS, serving(clusterProfileRef=REFERENCE))

    await cluster.apply(CRDS, ours)

    kept = await cluster.get(SERVINGS, "one", NAMESPACE)
    assert kept["spec"] == {"clusterProfileRef": REFERENCE}
    await refused(cluster, {"spec": None})


async def gone(hub: Client, name: str) -> None:
    """Return when the server has forgotten a kind."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await hub.get(CRDS, name)
            except NotFound:
                return


async def refused(hub: Client, change: Object) -> None:
    """Return when a change is refused; a server takes a moment to follow a new schema."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await hub.patch(SERVINGS, Key(NAMESPACE, "one"), change, dry_run=True)
            except Invalid:
                return
