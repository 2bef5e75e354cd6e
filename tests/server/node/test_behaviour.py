"""Annotations hold, break and slow pods down, and removing them lets the pods go."""

from knfleet.api.core import DEPLOYMENTS, EVENTS, JOBS, PODS
from knfleet.api.meta import Object
from knfleet.dev.node.pods.pod_manifests import is_ready, phase_of, status_of
from tests.server.node.cluster import (
    Cluster,
    all_ready,
    available,
    condition,
    container,
    container_state,
    waits_with,
)


def running_unready(pods: list[Object]) -> bool:
    """Whether there are pods, and all run without being ready."""
    return bool(pods) and all(phase_of(pod) == "Running" and not is_ready(pod) for pod in pods)


async def test_a_held_deployment_is_not_available_until_released(cluster: Cluster) -> None:
    """The annotation stands on the Deployment, two owners above the pod."""
    await cluster.deploy("web", annotations={"dev.knfleet.dev/hold": "true"})
    await cluster.pods_when("app=web", running_unready)

    await cluster.annotate(DEPLOYMENTS, "web", hold=None)

    await cluster.when(DEPLOYMENTS, "web", available)


async def test_a_ready_pod_that_is_held_turns_unready(cluster: Cluster) -> None:
    """A test can take availability away later."""
    await cluster.deploy("web")
    await cluster.when(DEPLOYMENTS, "web", available)

    await cluster.annotate(DEPLOYMENTS, "web", hold="true")

    await cluster.pods_when("app=web", running_unready)


async def test_a_broken_pod_shows_the_reason_and_recovers(cluster: Cluster) -> None:
    """What people see of a crashing container is what the status says."""
    await cluster.deploy("web", annotations={"dev.knfleet.dev/break": "CrashLoopBackOff"})
    [pod] = await cluster.pods_when("app=web", waits_with("CrashLoopBackOff"))
    [status] = status_of(pod)["containerStatuses"]

    assert phase_of(pod) == "Running"
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 1

    await cluster.annotate(DEPLOYMENTS, "web", **{"break": "ImagePullBackOff"})
    [pod] = await cluster.pods_when("app=web", waits_with("ImagePullBackOff"))
    assert phase_of(pod) == "Pending"

    await cluster.annotate(DEPLOYMENTS, "web", **{"break": None})
    await cluster.when(DEPLOYMENTS, "web", available)


async def test_a_broken_job_fails(cluster: Cluster) -> None:
    """Its pod ends with exit code 1."""
    await cluster.job("migrate", annotations={"dev.knfleet.dev/break": "Error"})

    await cluster.when(JOBS, "migrate", condition("Failed"))
    [pod] = await cluster.pods_when("app=migrate", lambda pods: len(pods) == 1)

    assert phase_of(pod) == "Failed"
    assert container_state(pod)["terminated"]["exitCode"] == 1


async def test_a_slow_pod_is_ready_after_its_time(cluster: Cluster) -> None:
    """The pod runs unready first, and nothing else is needed to make it ready."""
    await cluster.deploy("web", annotations={"dev.knfleet.dev/slow": "1s"})

    await cluster.pods_when("app=web", running_unready)
    await cluster.pods_when("app=web", all_ready(1))


async def test_a_very_slow_pod_is_ready_at_once_when_the_annotation_goes(cluster: Cluster) -> None:
    """Nobody waits for an hour that is no longer asked for."""
    await cluster.deploy("web", annotations={"dev.knfleet.dev/slow": "1h"})
    await cluster.pods_when("app=web", running_unready)

    await cluster.annotate(DEPLOYMENTS, "web", slow=None)

    await cluster.pods_when("app=web", all_ready(1))


async def test_an_annotation_on_the_pod_itself_counts(cluster: Cluster) -> None:
    """A pod without an owner can be held too."""
    manifest: Object = {
        "metadata": {"name": "alone", "annotations": {"dev.knfleet.dev/hold": "true"}},
        "spec": {"containers": [container()]},
    }
    await cluster.create(PODS, manifest)
    await cluster.when(PODS, "alone", lambda pod: running_unready([pod]))

    await cluster.annotate(PODS, "alone", hold=None)

    await cluster.when(PODS, "alone", is_ready)


async def test_a_senseless_annotation_is_told_and_ignored(cluster: Cluster) -> None:
    """A typing mistake does not go unnoticed, and does not stop the pod."""
    await cluster.deploy("web", annotations={"dev.knfleet.dev/slow": "a while"})

    [pod] = await cluster.pods_when("app=web", all_ready(1))
    events = (await cluster.client.list(EVENTS, "default")).items

    told = [each for each in events if each["involvedObject"]["name"] == pod["metadata"]["name"]]
    assert [each["reason"] for each in told if each["reason"] == "BadAnnotation"]
    assert any("'a while' is not a duration" in each["message"] for each in told)
