"""Add-ons on all pairs of hubs and agents: ours, and those of Open Cluster Management."""

import base64
import shutil
import time
from pathlib import Path

import pytest

from knfleet.api.addon.addondeploymentconfig import CONFIGS
from knfleet.api.addon.addontemplate import ADDON_TEMPLATES
from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.addon.names import DEFAULT_NAMESPACE
from knfleet.api.core import CONFIG_MAPS, NAMESPACES, SECRETS
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.work.manifestwork import WORKS
from knfleet.install.hub_manifests import named
from knfleet.kube.auth.kubeconfig import connect, parse
from knfleet.kube.auth.kubeconfig_entries import EntryOrigin
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from testbed.clusters import Lend
from testbed.waiting import until
from tests.support import addons
from tests.support.pairs import CLUSTER, OCM, OURS, Pair, joined_pair

pytestmark = [pytest.mark.xdist_group("peers"), pytest.mark.full]
REVIEWS = Resource(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
)
KEY = Key(CLUSTER, "greeter")
GROUP = f"system:open-cluster-management:cluster:{CLUSTER}:addon:greeter"
SECRET = "greeter-hub-kubeconfig"


@pytest.mark.parametrize(
    ("hub_side", "agent_side"), [(OCM, OCM), (OURS, OCM), (OCM, OURS), (OURS, OURS)]
)
async def test_an_add_on_is_installed_registered_configured_and_removed(
    lend: Lend, tmp_path: Path, hub_side: str, agent_side: str
):
    """The same add-on lives on every pair."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed, so that Open Cluster Management cannot be built")
    controllers = ("registration", "placement", "work", "addon")
    async with joined_pair(lend, tmp_path, hub_side, agent_side, controllers=controllers) as pair:
        await pair.spoke.apply(NAMESPACES, named("v1", "Namespace", DEFAULT_NAMESPACE))
        began = time.monotonic()
        await install(pair)
        await addons.is_said(pair.hub, KEY, "Available", "True")
        content = await credentials(pair)
        print(f"{hub_side} hub, {agent_side} agent: {time.monotonic() - began:.1f} s")
        await check_installed(pair, content)
        await check_configured(pair)
        await check_removed(pair)


async def install(pair: Pair) -> None:
    """Make the add-on known, and install it on the cluster."""
    registration: list[Object] = [{"type": "KubeClient", "kubeClient": {"hubPermissions": []}}]
    deployment = addons.deployment("greeter-agent")
    deployment["spec"]["replicas"] = 1
    template = addons.template(
        "greeter",
        addons.config_map("greeting", cluster="{{CLUSTER_NAME}}", text="{{TEXT}}"),
        deployment,
        registration=registration,
    )
    await pair.hub.create(ADDON_TEMPLATES, template)
    await pair.hub.create(CONFIGS, config("hello"), "default")
    await pair.hub.create(CLUSTER_ADDONS, addons.cluster_addon("greeter", default_config="greeter"))
    await pair.hub.create(ADDONS, addons.addon("greeter", CLUSTER), CLUSTER)


def config(text: str) -> Object:
    """The configuration of the add-on."""
    variables = [{"name": "TEXT", "value": text}]
    return addons.deployment_config("greeter", customizedVariables=variables)


async def greeting(pair: Pair) -> Object:
    """What the add-on wrote on the cluster; empty when it is not there."""
    try:
        found = await pair.spoke.get(CONFIG_MAPS, "greeting", DEFAULT_NAMESPACE)
    except NotFound:
        return {}
    return found["data"]


async def credentials(pair: Pair) -> dict[str, bytes]:
    """What the agent of the add-on has for the hub, as soon as it is there."""

    async def exists() -> bool:
        try:
            found = await pair.spoke.get(SECRETS, SECRET, DEFAULT_NAMESPACE)
        except NotFound:
            return False
        return {"kubeconfig", "tls.crt", "tls.key"} <= set(found.get("data") or {})

    await until(exists, "the agent of the add-on has its credentials")
    found = await pair.spoke.get(SECRETS, SECRET, DEFAULT_NAMESPACE)
    return {key: base64.b64decode(text) for key, text in found["data"].items()}


async def check_installed(pair: Pair, content: dict[str, bytes]) -> None:
    """Manifests, identity and status are as both projects promise."""
    assert await greeting(pair) == {"cluster": CLUSTER, "text": "hello"}
    for name, value in content.items():
        (pair.folder / name).write_bytes(value)
    connection = connect(parse(content["kubeconfig"], EntryOrigin("the Secret", pair.folder)))
    async with Client(connection) as client:
        asked = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind}
        who = (await client.create(REVIEWS, asked))["status"]["userInfo"]
    assert who["username"] == f"{GROUP}:agent:greeter-agent"
    assert {GROUP, "system:open-cluster-management:addon:greeter"} <= set(who["groups"])
    for type_ in ("ManifestApplied", "RegistrationApplied", "ClusterCertificateRotated"):
        await addons.is_said(pair.hub, KEY, type_, "True")
    await addons.is_said(pair.hub, KEY, "Progressing", "False", "Completed")


async def check_configured(pair: Pair) -> None:
    """A change of the configuration reaches the cluster, and is reported."""
    await pair.hub.patch(CONFIGS, Key("default", "greeter"), {"spec": config("hi")["spec"]})

    async def is_changed() -> bool:
        return (await greeting(pair)).get("text") == "hi"

    await until(is_changed, "the configuration is on the cluster")

    async def is_reported() -> bool:
        found = await pair.hub.get(ADDONS, KEY.name, KEY.namespace)
        references: list[Object] = found["status"]["configReferences"]
        return all(each.get("lastAppliedConfig") == each["desiredConfig"] for each in references)

    await until(is_reported, "the configuration is reported as applied")


async def check_removed(pair: Pair) -> None:
    """With the add-on of the fleet, everything of it goes."""
    await pair.hub.delete(CLUSTER_ADDONS, Key("", "greeter"))
    await addons.is_gone(pair.hub, ADDONS, KEY)
    await addons.is_gone(pair.hub, WORKS, Key(CLUSTER, "addon-greeter-deploy-0"))
    await addons.is_gone(pair.spoke, CONFIG_MAPS, Key(DEFAULT_NAMESPACE, "greeting"))
    await addons.is_gone(pair.spoke, SECRETS, Key(DEFAULT_NAMESPACE, SECRET))
