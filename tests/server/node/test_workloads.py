"""Workloads of all kinds come up, end and go away, because the node plays its part."""

import os
import signal

import psutil

from knfleet.api.core import DAEMON_SETS, DEPLOYMENTS, JOBS, NAMESPACES, NODES, PODS, STATEFUL_SETS
from knfleet.api.meta import Key, Object
from knfleet.dev.control_plane import API_SERVER, NODE
from knfleet.dev.node.pods.pod_manifests import is_ready, phase_of, status_of
from testbed.clusters import Pool
from tests.server.node.cluster import (
    Cluster,
    all_ready,
    available,
    condition,
    container,
    deployment,
)


async def test_a_deployment_becomes_available_and_its_pods_look_like_a_kubelets(
    cluster: Cluster,
) -> None:
    """Whoever reads pod status must find what a kubelet would have written."""
    await cluster.deploy("web", replicas=3, initContainers=[container(name="init")])

    await cluster.when(DEPLOYMENTS, "web", available)
    pods = await cluster.pods_when("app=web", all_ready(3))

    for pod in pods:
        status = status_of(pod)
        kinds = {each["type"] for each in status["conditions"] if each["status"] == "True"}
        assert kinds == {
            "PodScheduled",
            "PodReadyToStartContainers",
            "Initialized",
            "ContainersReady",
            "Ready",
        }
        assert status["phase"] == "Running"
        assert status["podIPs"] == [{"ip": status["podIP"]}]
        assert status["observedGeneration"] == pod["metadata"]["generation"]
        assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert len({status_of(pod)["podIP"] for pod in pods}) == 3


async def test_hundreds_of_pods_come_up_together(cluster: Cluster) -> None:
    """Two requests for each pod, many at a time; and the node stays small."""
    await cluster.deploy("many", replicas=200)

    await cluster.when(DEPLOYMENTS, "many", available)

    assert psutil.Process(cluster.pid_of(NODE)).memory_info().rss < 60 * 2**20


async def test_the_node_goes_on_after_its_api_server_was_killed(
    cluster: Cluster, pool: Pool
) -> None:
    """The same process, with what it missed meanwhile."""
    await cluster.deploy("before")
    await cluster.when(DEPLOYMENTS, "before", available)
    node, server = cluster.pid_of(NODE), cluster.pid_of(API_SERVER)

    os.kill(server, signal.SIGKILL)
    psutil.Process(server).wait(10)
    await pool.ground.up(0)
    await cluster.deploy("after")

    await cluster.when(DEPLOYMENTS, "after", available)
    assert cluster.pid_of(NODE) == node


async def test_stateful_sets_come_up_in_order(cluster: Cluster) -> None:
    """Each pod waits for the one before."""
    manifest = deployment("db", replicas=3)
    manifest["spec"]["serviceName"] = "db"
    await cluster.create(STATEFUL_SETS, manifest)

    pods = await cluster.pods_when("app=db", all_ready(3))

    assert {pod["metadata"]["name"] for pod in pods} == {"db-0", "db-1", "db-2"}


async def test_a_daemon_set_runs_on_the_node(cluster: Cluster) -> None:
    """Its pods are bound by node affinity, and the node has no taint that keeps them away."""
    manifest = deployment("agent")
    del manifest["spec"]["replicas"]
    await cluster.create(DAEMON_SETS, manifest)

    await cluster.when(DAEMON_SETS, "agent", lambda each: status_of(each).get("numberReady") == 1)


async def test_a_job_completes(cluster: Cluster) -> None:
    """Its pods end well, at once."""
    await cluster.job("once")

    await cluster.when(JOBS, "once", condition("Complete"))
    [pod] = await cluster.pods_when("app=once", lambda pods: len(pods) == 1)

    assert status_of(pod)["phase"] == "Succeeded"
    assert status_of(pod)["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


async def test_deletion_completes(cluster: Cluster) -> None:
    """Pods go when their Deployment goes, and a namespace with pods in it goes too."""
    space: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "short"}}
    await cluster.client.create(NAMESPACES, space)
    inside = {"apiVersion": "apps/v1", "kind": "Deployment", **deployment("inside", replicas=2)}
    await cluster.client.create(DEPLOYMENTS, inside, "short")
    await cluster.when(DEPLOYMENTS, "inside", available, "short")
    await cluster.deploy("web", replicas=2)
    await cluster.pods_when("app=web", all_ready(2))

    await cluster.client.delete(DEPLOYMENTS, Key("default", "web"))
    await cluster.client.delete(NAMESPACES, Key("", "short"))

    await cluster.pods_when("app=web", lambda pods: not pods)
    await cluster.gone(NAMESPACES, "short")


async def test_a_deleted_pod_of_a_running_job_is_replaced(cluster: Cluster) -> None:
    """The Job's finalizer is on the pod; the node says how it ended, so the finalizer goes."""
    await cluster.job("held", annotations={"dev.knfleet.dev/hold": "true"})

    def running(pods: list[Object]) -> bool:
        return [phase_of(pod) for pod in pods] == ["Running"]

    [pod] = await cluster.pods_when("app=held", running)

    await cluster.client.delete(PODS, Key.of(pod))

    await cluster.gone(PODS, pod["metadata"]["name"])


async def test_a_pod_that_fits_nowhere_says_why(cluster: Cluster) -> None:
    """The pod waits, and is bound once the node has the label."""
    await cluster.deploy("picky", nodeSelector={"disk": "fast"})

    def unschedulable(pods: list[Object]) -> bool:
        conditions = [each for pod in pods for each in status_of(pod).get("conditions") or ()]
        return any(each.get("reason") == "Unschedulable" for each in conditions)

    [pod] = await cluster.pods_when("app=picky", unschedulable)

    assert status_of(pod)["phase"] == "Pending"
    assert "disk=fast" in status_of(pod)["conditions"][0]["message"]
    [node] = (await cluster.client.list(NODES)).items
    key = Key("", node["metadata"]["name"])
    await cluster.client.patch(NODES, key, {"metadata": {"labels": {"disk": "fast"}}})
    await cluster.pods_when("app=picky", all_ready(1))
    await cluster.client.patch(NODES, key, {"metadata": {"labels": {"disk": None}}})


async def test_a_gated_pod_is_not_bound(cluster: Cluster) -> None:
    """Scheduling waits for the gate to be taken away, readiness for its own gate."""
    spec: Object = {
        "containers": [container()],
        "schedulingGates": [{"name": "example.com/wait"}],
        "readinessGates": [{"conditionType": "example.com/fed"}],
    }
    await cluster.create(PODS, {"metadata": {"name": "gated"}, "spec": spec})
    await cluster.create(
        PODS, {"metadata": {"name": "free"}, "spec": {"containers": [container()]}}
    )
    await cluster.when(PODS, "free", is_ready)
    gated = await cluster.client.get(PODS, "gated", "default")

    assert "nodeName" not in gated["spec"]
    key = Key("default", "gated")
    await cluster.client.patch(PODS, key, {"spec": {"schedulingGates": None}})
    unready = await cluster.when(PODS, "gated", condition("ContainersReady"))
    assert not is_ready(unready)

    fed = {"type": "example.com/fed", "status": "True"}
    await cluster.client.patch(
        PODS, key, {"status": {"conditions": [fed]}}, strategic=True, subresource="status"
    )
    await cluster.when(PODS, "gated", is_ready)
