"""Add-ons on a real hub and a real spoke: delivered, registered, healthy, and removed."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from knfleet.api.addon.addontemplate import ADDON_TEMPLATES
from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.addon.names import DEFAULT_NAMESPACE, KUBE_CLIENT_SIGNER
from knfleet.api.core import CONFIG_MAPS, CRDS, LEASES, NAMESPACES, SECRETS
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.operator import AGENT_NAMESPACE, HUB_NAMESPACE
from knfleet.kube.auth.kubeconfig import connect, parse
from knfleet.kube.auth.kubeconfig_entries import EntryOrigin
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from knfleet.runtime.leader.lease_rules import microtime
from testbed import hubs
from testbed.agent_process import Scene
from testbed.waiting import until
from tests.support import addons
from tests.support.addon_authority import authority, permit_authority, secret

pytestmark = pytest.mark.xdist_group("agent")
REVIEWS = Resource(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
)
KUBE_CLIENT: list[Object] = [{"type": "KubeClient", "kubeClient": {"hubPermissions": []}}]
GROUP = "system:open-cluster-management:cluster:c1:addon:hello"


async def secret_of(scene: Scene, name: str, namespace: str) -> dict[str, bytes]:
    """What a Secret on the spoke holds, as soon as it is there."""

    async def exists() -> bool:
        try:
            await scene.spoke.get(SECRETS, name, namespace)
        except NotFound:
            return False
        return True

    await until(exists, f"Secret {namespace}/{name} is there: {scene.agent.said()}")
    found = await scene.spoke.get(SECRETS, name, namespace)
    return {key: base64.b64decode(text) for key, text in found["data"].items()}


async def who_is(content: dict[str, bytes], scene: Scene) -> Object:
    """The identity that the hub sees behind a Secret's kubeconfig."""
    folder = scene.agent.folder / "addon"
    folder.mkdir(exist_ok=True)
    for name, value in content.items():
        (folder / name).write_bytes(value)
    origin = EntryOrigin("the Secret", folder)
    async with Client(connect(parse(content["kubeconfig"], origin))) as client:
        asked = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind}
        return (await client.create(REVIEWS, asked))["status"]["userInfo"]


async def prepare_works(scene: Scene) -> None:
    """Make what works need on the spoke."""
    for each in spoke_definitions():
        await scene.spoke.apply(CRDS, each)
    for each in spoke_definitions():
        await hubs.established(scene.spoke, each["metadata"]["name"])


async def install(scene: Scene, *, registration: list[Object] | None = None) -> Key:
    """Install an add-on whose namespace is not there yet."""
    template = addons.template(
        "hello",
        addons.config_map("settings", "hello", cluster="{{CLUSTER_NAME}}"),
        addons.deployment("hello-agent", "hello"),
        registration=registration or [],
    )
    template["spec"]["agentSpec"]["workload"]["manifests"][1]["spec"]["replicas"] = 0
    await scene.hub.create(ADDON_TEMPLATES, template)
    await scene.hub.create(CLUSTER_ADDONS, addons.cluster_addon("hello"))
    await scene.hub.create(ADDONS, addons.addon("hello", "c1"), "c1")
    return Key("c1", "hello")


async def test_an_add_on_runs_on_its_cluster_with_an_identity_of_its_own(scene: Scene):
    await prepare_works(scene)
    await scene.joined()

    key = await install(scene, registration=KUBE_CLIENT)

    await addons.is_said(scene.hub, key, "Available", "True", "ProbeAvailable")
    await addons.is_said(scene.hub, key, "ClusterCertificateRotated", "True")
    found = await scene.spoke.get(CONFIG_MAPS, "settings", "hello")
    assert found["data"] == {"cluster": "c1"}
    content = await secret_of(scene, "hello-hub-kubeconfig", "hello")
    assert set(content) == {"kubeconfig", "tls.key", "tls.crt", "cluster-name"}
    who = await who_is(content, scene)
    assert who["username"] == f"{GROUP}:agent:hello-agent"
    assert set(who["groups"]) == {
        GROUP,
        "system:open-cluster-management:addon:hello",
        "system:authenticated",
    }

    await scene.spoke.delete(SECRETS, Key("hello", "hello-hub-kubeconfig"))
    await scene.hub.patch(ADDONS, key, {"metadata": {"annotations": {"look": "again"}}})
    await secret_of(scene, "hello-hub-kubeconfig", "hello")

    await scene.hub.delete(CLUSTER_ADDONS, Key("", "hello"))
    await addons.is_gone(scene.hub, ADDONS, key)
    await addons.is_gone(scene.spoke, CONFIG_MAPS, Key("hello", "settings"))
    await addons.is_gone(scene.spoke, SECRETS, Key("hello", "hello-hub-kubeconfig"))
    await scene.spoke.get(NAMESPACES, "hello")


@pytest.mark.full
async def test_an_add_on_does_not_get_the_place_of_the_agents_own_secrets(scene: Scene):
    """Its Secret would be called bootstrap-hub-kubeconfig."""
    await scene.joined()
    key = Key("c1", "bootstrap")
    made = addons.addon(key.name, "c1", installNamespace=AGENT_NAMESPACE)
    await scene.hub.create(ADDONS, made, "c1")
    registration: Object = {"signerName": KUBE_CLIENT_SIGNER, "subject": {"user": "", "groups": []}}

    status: Object = {"status": {"registrations": [registration]}}
    await scene.hub.patch(ADDONS, key, status, subresource="status")

    await addons.is_said(scene.hub, key, "ClusterCertificateRotated", "False")
    found = await scene.hub.get(ADDONS, key.name, key.namespace)
    said = {each["type"]: each["message"] for each in found["status"]["conditions"]}
    assert "has the name of one of the agent's own" in said["ClusterCertificateRotated"]
    await scene.hub.delete(ADDONS, key)


@pytest.mark.full
async def test_an_add_on_gets_a_certificate_of_a_custom_signer(scene: Scene):
    """Signed by the CA that the template names, for the subject that it names."""
    await prepare_works(scene)
    await scene.joined()
    contents = authority()
    await scene.hub.create(SECRETS, secret("custom-ca", contents), HUB_NAMESPACE)
    await permit_authority(scene.hub, "custom-ca")
    signer: Object = {
        "signerName": "example.com/hello",
        "subject": {"user": "hello", "groups": ["greeters"], "organizationUnit": ["unit"]},
        "signingCA": {"name": "custom-ca"},
    }

    key = await install(scene, registration=[{"type": "CustomSigner", "customSigner": signer}])

    content = await secret_of(scene, "hello-example.com-hello-client-cert", "hello")
    assert set(content) == {"tls.key", "tls.crt"}
    certificate = x509.load_pem_x509_certificate(content["tls.crt"])
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(contents["tls.crt"]))
    assert certificate.subject.rfc4514_string() == "CN=hello,OU=unit,O=greeters"
    await addons.is_said(scene.hub, key, "ClusterCertificateRotated", "True")


@pytest.mark.full
async def test_an_add_on_reaches_the_hub_by_tokens_of_an_account(scene: Scene):
    await scene.agent.start("--addon-kubeclient-registration-auth=token")
    await scene.accept()

    key = await install(scene, registration=KUBE_CLIENT)

    content = await secret_of(scene, "hello-hub-kubeconfig", "hello")
    assert set(content) == {"kubeconfig", "token", "cluster-name"}
    who = await who_is(content, scene)
    assert who["username"] == "system:serviceaccount:c1:hello-agent"
    await addons.is_said(scene.hub, key, "TokenInfrastructureReady", "True")
    await addons.is_said(scene.hub, key, "TokenRefreshed", "True")


@pytest.mark.full
async def test_an_add_on_of_another_manager_is_healthy_by_its_lease(scene: Scene):
    await scene.joined()
    await scene.hub.create(
        CLUSTER_ADDONS, addons.thing(CLUSTER_ADDONS, "foreign", {"addOnMeta": {}})
    )
    await scene.hub.create(ADDONS, addons.addon("foreign", "c1"), "c1")
    key = Key("c1", "foreign")

    await addons.is_said(scene.hub, key, "Available", "Unknown", "ManagedClusterAddOnLeaseNotFound")
    now = datetime.now(UTC)
    for renewed, status, reason in (
        (now, "True", "ManagedClusterAddOnLeaseUpdated"),
        (now - timedelta(minutes=6), "False", "ManagedClusterAddOnLeaseUpdateStopped"),
    ):
        lease: Object = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": "foreign", "namespace": DEFAULT_NAMESPACE},
            "spec": {"renewTime": microtime(renewed)},
        }
        meta = {"name": DEFAULT_NAMESPACE}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        await scene.spoke.apply(NAMESPACES, namespace)
        await scene.spoke.apply(LEASES, lease)
        await scene.hub.patch(ADDONS, key, {"metadata": {"annotations": {"look": reason}}})
        await addons.is_said(scene.hub, key, "Available", status, reason)
