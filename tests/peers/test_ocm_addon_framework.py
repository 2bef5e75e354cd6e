"""An add-on of others, whose own manager is built with the addon-framework, on our hub."""

import shutil
from pathlib import Path

import pytest

from knfleet.api.addon.addondeploymentconfig import CONFIGS
from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.addon.names import DEFAULT_NAMESPACE
from knfleet.api.core import DEPLOYMENTS, NAMESPACES, SECRETS
from knfleet.api.meta import Key, Object
from knfleet.api.operator import OPERATOR_NAMESPACE
from knfleet.apply.manifest_fields import part
from knfleet.hub.addon.spec_hash import spec_hash
from knfleet.install.hub_manifests import named
from knfleet.kube.errors import NotFound
from testbed.clusters import Lend
from testbed.peers import addon_framework
from testbed.printed import Printed
from testbed.waiting import until
from tests.support import addons
from tests.support.pairs import CLUSTER, OCM, OURS, Pair, joined_pair

pytestmark = [pytest.mark.xdist_group("peers"), pytest.mark.full]
KEY = Key(CLUSTER, "helloworld")


@pytest.mark.parametrize("agent_side", [OURS, OCM])
async def test_an_add_on_with_a_manager_of_its_own_is_installed_configured_and_reported(
    lend: Lend, tmp_path: Path, agent_side: str
):
    if shutil.which("go") is None:
        pytest.skip("go is not installed, so that the add-on cannot be built")
    binary = await addon_framework.helloworld(Printed())
    async with (
        joined_pair(lend, tmp_path, OURS, agent_side) as pair,
        addon_framework.running(binary, pair.hub_lent, tmp_path),
    ):
        await pair.spoke.apply(NAMESPACES, named("v1", "Namespace", DEFAULT_NAMESPACE))
        for each in await addon_framework.objects(OPERATOR_NAMESPACE):
            resource = await pair.hub.discovery.resource(each["apiVersion"], each["kind"])
            await pair.hub.apply(resource, each)

        await addons.is_said(pair.hub, KEY, "Available", "True")
        await addons.is_said(pair.hub, KEY, "ClusterCertificateRotated", "True")
        await pair.spoke.get(SECRETS, "helloworld-hub-kubeconfig", DEFAULT_NAMESPACE)
        selector: Object = {"nodeSelector": {"kubernetes.io/os": "linux"}}
        await pair.hub.patch(
            CONFIGS, Key(OPERATOR_NAMESPACE, "global"), {"spec": {"nodePlacement": selector}}
        )
        await until(lambda: is_placed(pair, selector), "the configuration is on the cluster")
        await until(lambda: is_applied(pair), "the configuration is reported as applied")

        await pair.hub.delete(CLUSTER_ADDONS, Key("", "helloworld"))
        await addons.is_gone(pair.hub, ADDONS, KEY)
        await addons.is_gone(pair.spoke, DEPLOYMENTS, Key(DEFAULT_NAMESPACE, "helloworld-agent"))


async def is_placed(pair: Pair, selector: Object) -> bool:
    """Whether the agent of the add-on runs on the nodes that the configuration names."""
    try:
        found = await pair.spoke.get(DEPLOYMENTS, "helloworld-agent", DEFAULT_NAMESPACE)
    except NotFound:
        return False
    return found["spec"]["template"]["spec"].get("nodeSelector") == selector["nodeSelector"]


async def is_applied(pair: Pair) -> bool:
    """Whether the status has the hash of the configuration, desired and applied."""
    config = await pair.hub.get(CONFIGS, "global", OPERATOR_NAMESPACE)
    found = await pair.hub.get(ADDONS, KEY.name, KEY.namespace)
    (reference,) = found["status"]["configReferences"]
    states = (part(reference, name) for name in ("desiredConfig", "lastAppliedConfig"))
    return {each.get("specHash") for each in states} == {spec_hash(config)}
