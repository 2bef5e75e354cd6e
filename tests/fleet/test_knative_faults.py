"""What clusters do to an installation: each is told in a condition, and outlived by itself."""

import signal
import socket
from pathlib import Path

import psutil
import pytest

from knfleet.api.core import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    NAMESPACES,
    SERVICE_ACCOUNTS,
    VALIDATING_WEBHOOKS,
)
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import part
from knfleet.dev import ports, processes
from knfleet.kube.yaml import dump_all, load_all
from testbed.clusters import Pool
from testbed.operators import Hub, Operator
from testbed.waiting import until

QUOTAS = Resource("", "v1", "ResourceQuota", "resourcequotas")
RBAC = "rbac.authorization.k8s.io"


async def test_edits_and_a_deletion_in_the_middle_are_followed(
    knative_hub: Hub, small: Operator
) -> None:
    """Five edits within a second: the last counts. A deletion before it is ready ends cleanly."""
    hub = knative_hub
    await hub.create(SERVINGS, version="1.22", ingress={})
    for number in range(5):
        await hub.change(SERVINGS, config={"features": {"number": str(number)}})
    await hub.ready(SERVINGS, "1.22.0")

    found = await hub.client.get(CONFIG_MAPS, "config-features", "knative-serving")
    assert found["data"] == {"number": "4"}

    await hub.change(SERVINGS, version="1.23")
    await hub.delete(SERVINGS)
    await hub.gone(SERVINGS)
    await hub.clean()


@pytest.mark.full
async def test_missing_rights_are_named_one_by_one(
    knative_hub: Hub, small_root: Path, tmp_path: Path
) -> None:
    """The condition lists exactly what is forbidden; once it is granted, the rest is installed."""
    hub = knative_hub
    kubeconfig = await restricted(hub, tmp_path / "kubeconfig")
    operator = Operator(kubeconfig, small_root, tmp_path / "operator.log")
    await operator.start()
    try:
        await hub.create(SERVINGS, version="1.23", ingress={})

        said = await hub.says(SERVINGS, "InstallSucceeded", "not allowed")

        verbs = "create, delete, list, patch, watch"
        assert f"{verbs} deployments.apps in knative-serving" in said
        assert f"{verbs} services in knative-serving" in said
        for allowed in ("configmaps", "clusterroles", "serviceaccounts"):
            assert allowed not in said
        assert await hub.exists(CONFIG_MAPS, "config-network")
        await hub.tells("InternalError", "deployments.apps")

        await allow(hub, ["*"], name="more")
        await hub.ready(SERVINGS, "1.23.0")
    finally:
        await operator.kill()


async def restricted(hub: Hub, path: Path) -> Path:
    """A kubeconfig for an account that may do everything but Deployments and Services."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "knfleet"}}
    await hub.client.create(SERVICE_ACCOUNTS, account, "default")
    await allow(
        hub,
        [
            "configmaps",
            "events",
            "namespaces",
            "serviceaccounts",
            "clusterroles",
            "clusterrolebindings",
            "leases",
            "knativeservings",
            "knativeservings/status",
            "knativeeventings",
            "selfsubjectaccessreviews",
        ],
        name="some",
    )
    request: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = await hub.client.create(
        SERVICE_ACCOUNTS, request, "default", name="knfleet", subresource="token"
    )
    (config,) = load_all(hub.lent.kubeconfig.read_bytes(), source="kubeconfig")
    config["users"][0]["user"] = {"token": token["status"]["token"]}
    path.write_text(dump_all([config]))
    path.chmod(0o600)
    return path


async def allow(hub: Hub, plurals: list[str], *, name: str) -> None:
    """Let the account do everything with some kinds."""
    role: Object = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [{"apiGroups": ["*"], "resources": plurals, "verbs": ["*"]}],
    }
    binding: Object = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "knfleet", "namespace": "default"}],
    }
    await hub.client.create(CLUSTER_ROLES, role)
    await hub.client.create(CLUSTER_ROLE_BINDINGS, binding)


@pytest.mark.full
async def test_a_quota_is_named_and_outlived(knative_hub: Hub, small: Operator) -> None:
    """No room for a Service; when there is, it is made."""
    hub = knative_hub
    quota: Object = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": "knative-serving"},
        "spec": {"hard": {"services": "0"}},
    }
    await hub.client.create(QUOTAS, quota)
    await until(lambda: quota_counts(hub), "the quota counts")
    await hub.create(SERVINGS, version="1.23", ingress={})

    said = await hub.says(SERVINGS, "InstallSucceeded", "exceeded quota")

    assert "Service knative-serving/controller" in said
    await hub.client.delete(QUOTAS, Key("knative-serving", "none"))
    await hub.ready(SERVINGS, "1.23.0")


async def quota_counts(hub: Hub) -> bool:
    """Whether the quota controller has seen the quota."""
    found = await hub.client.get(QUOTAS, "none", "knative-serving")
    return "hard" in part(found, "status")


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.full
async def test_a_webhook_in_the_way_is_named_and_outlived(
    knative_hub: Hub, small: Operator, hangs: bool
) -> None:
    """One that nobody answers for, and one that does not answer in time."""
    hub = knative_hub
    (port,) = ports.reserve(1, ports.DEFAULT_RANGE, small.log)
    silent = socket.create_server(("127.0.0.1", port)) if hangs else None
    webhook: Object = {
        "name": "way.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/"},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["services"],
            }
        ],
        "timeoutSeconds": 1,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    manifest: Object = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "in-the-way"},
        "webhooks": [webhook],
    }
    await hub.client.create(VALIDATING_WEBHOOKS, manifest)
    try:
        await hub.create(SERVINGS, version="1.23", ingress={})

        said = await hub.says(SERVINGS, "InstallSucceeded", "way.example.com")

        assert "Service knative-serving/controller" in said
        await hub.client.delete(VALIDATING_WEBHOOKS, Key("", "in-the-way"))
        await hub.ready(SERVINGS, "1.23.0")
    finally:
        if silent is not None:
            silent.close()


@pytest.mark.full
async def test_what_cannot_be_removed_is_named_until_it_can(
    knative_hub: Hub, small: Operator
) -> None:
    """A finalizer that nobody takes off holds an object, and with it the custom resource."""
    hub = knative_hub
    await hub.create(SERVINGS, version="1.23", ingress={})
    await hub.ready(SERVINGS, "1.23.0")
    key = Key("knative-serving", "config-network")
    await hub.client.patch(CONFIG_MAPS, key, {"metadata": {"finalizers": ["example.com/held"]}})
    await hub.delete(SERVINGS)

    said = await hub.says(SERVINGS, "Ready", "Uninstall failed with message: ")

    assert "ConfigMap knative-serving/config-network" in said
    assert "example.com/held" in said
    await hub.tells("InternalError", "example.com/held")
    await hub.client.patch(CONFIG_MAPS, key, {"metadata": {"finalizers": None}})
    await hub.gone(SERVINGS)
    await hub.clean()


@pytest.mark.full
async def test_an_api_server_that_goes_away_is_outlived(
    knative_hub: Hub, operator: Operator, pool: Pool
) -> None:
    """It is killed in the middle of an installation, and comes back."""
    hub = knative_hub
    await operator.start()
    await hub.create(SERVINGS, version="1.23", ingress={"kourier": {"enabled": True}})
    await until(lambda: has_applied(operator, 30), "the installation is under way")
    recorded = processes.recorded(hub.lent.folder)["hub.kube-apiserver"]
    psutil.Process(recorded.pid).send_signal(signal.SIGKILL)
    assert processes.wait_until_gone([recorded], 10) == []

    await pool.ground.up(0)

    await hub.ready(SERVINGS, "1.23.0")
    assert operator.process is not None
    assert operator.process.returncode is None


async def has_applied(operator: Operator, count: int) -> bool:
    """Whether so many objects were sent."""
    try:
        return (await operator.requests()).get("apply", 0) >= count
    except OSError:
        return False


@pytest.mark.full
async def test_a_namespace_that_goes_takes_everything_with_it(
    knative_hub: Hub, small: Operator
) -> None:
    """Also what lies outside of it, though the inventory goes; a new one is installed anew."""
    hub = knative_hub
    await hub.create(SERVINGS, version="1.23", ingress={})
    await hub.ready(SERVINGS, "1.23.0")

    await hub.client.delete(NAMESPACES, Key("", "knative-serving"))

    await hub.gone(SERVINGS)
    assert not await hub.exists(CLUSTER_ROLES, "small")
    assert not await hub.exists(CLUSTER_ROLE_BINDINGS, "small")
    await until(lambda: is_gone(hub), "the namespace is gone")
    await hub.client.create(
        NAMESPACES,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "knative-serving"}},
    )
    await hub.create(SERVINGS, version="1.23", ingress={})
    await hub.ready(SERVINGS, "1.23.0")


async def is_gone(hub: Hub) -> bool:
    """Whether the namespace is gone."""
    return not await hub.exists(NAMESPACES, "knative-serving")
