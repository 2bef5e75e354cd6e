"""What `init`, `join` and the chart install, as a real API server judges it."""

import pytest

from knfleet.api.core import NAMESPACES, PODS, SERVICE_ACCOUNTS
from knfleet.api.meta import Object, Resource
from knfleet.install.agent_manifests import AgentInstall, home_objects
from knfleet.install.deployments import HubInstall, hub_deployment
from knfleet.install.hub_manifests import hub_objects
from knfleet.install.operator_manifests import everything
from knfleet.install.operator_options import OperatorInstall
from knfleet.kube.client.verbs import Client

NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
PLACE = "restricted-pods"
HUB = HubInstall("knfleet:1", namespace=PLACE)
AGENT = AgentInstall(cluster="c1", bootstrap=b"", image="knfleet:1", namespace=PLACE)
INSTALLED: dict[str, list[Object]] = {
    "hub": [*hub_objects(HUB), hub_deployment(HUB)],
    "agent": home_objects(AGENT),
    "operator": everything(OperatorInstall(namespace=PLACE)),
}


def of_kind(who: str, kind: str) -> Object:
    """The one object of a kind in our own namespace that is installed."""
    (found,) = (
        each
        for each in INSTALLED[who]
        if each["kind"] == kind and each["metadata"].get("namespace") == PLACE
    )
    return found


@pytest.mark.parametrize("who", INSTALLED)
async def test_pods_are_let_into_a_restricted_namespace_and_have_limits(
    fleet: Client, who: str
) -> None:
    """By the strictest pod security standard; and with an end to the memory that they may take."""
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    place = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": PLACE, "labels": enforced},
    }
    pod = of_kind(who, "Deployment")["spec"]["template"]
    name = {"name": pod["spec"]["serviceAccountName"], "namespace": PLACE}
    await fleet.apply(NAMESPACES, place)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": name}
    await fleet.apply(SERVICE_ACCOUNTS, account)
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**pod["metadata"], "name": who, "namespace": PLACE},
        "spec": pod["spec"],
    }

    made = await fleet.apply(PODS, manifest, dry_run=True)

    (container,) = made["spec"]["containers"]
    assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("who", INSTALLED)
async def test_pods_are_reached_on_their_declared_ports_only(fleet: Client, who: str) -> None:
    """The policy fits the pods and their probes, and closes the rest."""
    policy, pod = of_kind(who, "NetworkPolicy"), of_kind(who, "Deployment")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    policy = {**policy, "metadata": {**policy["metadata"], "namespace": "default"}}

    made = await fleet.apply(NETWORK_POLICIES, policy, dry_run=True)

    spec = made["spec"]
    assert spec["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert spec["policyTypes"] == ["Ingress"]
    assert {each["port"] for each in spec["ingress"][0]["ports"]} == {
        each["containerPort"] for each in container["ports"]
    }
