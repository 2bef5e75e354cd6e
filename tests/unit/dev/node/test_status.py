"""The status of pods, computed from what their containers do."""

from datetime import timedelta

import pytest

from knfleet.api.meta import Object
from knfleet.dev.node.annotations import Behaviour
from knfleet.dev.node.pods.pod_manifests import condition_is_true
from knfleet.dev.node.pods.pod_status import (
    ContainerReport,
    PodReport,
    differs,
    phase_from,
    pod_status,
    running,
    terminated,
    waiting,
)
from knfleet.dev.node.pods.simulated_pod import simulate
from tests.unit.dev.node.manifests import NOW, NOW_TEXT, pod

NORMAL = Behaviour()


def status_after(manifest: Object, behaviour: Behaviour = NORMAL, *, later: float = 0) -> Object:
    """The status of a simulated pod, as the server would hold it afterwards."""
    now = NOW + timedelta(seconds=later)
    simulation = simulate(manifest, behaviour, now)
    assert simulation is not None
    return pod_status(manifest, simulation.report, pod_ip="198.19.1.1", now=now)


def reason_of(status: Object, kind: str) -> str:
    """The reason of a condition."""
    [found] = [each for each in status["conditions"] if each["type"] == kind]
    return found.get("reason", "")


def report(state: Object, last: Object | None = None) -> PodReport:
    """One container in a state."""
    return PodReport([ContainerReport("main", "nginx", state, last or {})])


def test_a_simulated_pod_is_ready_in_one_step() -> None:
    """One patch takes it from pending to ready."""
    status = status_after(pod())

    assert status["phase"] == "Running"
    assert all(each["status"] == "True" for each in status["conditions"])
    assert status["startTime"] == NOW_TEXT
    assert status["observedGeneration"] == 2


def test_a_status_that_was_written_is_not_written_again() -> None:
    """However much later somebody looks, and whatever conditions others added."""
    status = status_after(pod())
    status["conditions"].append({"type": "example.com/fed", "status": "True"})
    status["qosClass"] = "BestEffort"

    assert not differs(status, status_after(pod(status=status), later=100))


def test_only_a_condition_that_turned_has_a_new_transition_time() -> None:
    """Since when something holds is what people look for."""
    status = status_after(pod())
    held = status_after(pod(status=status), Behaviour(hold=True), later=60)

    times = {each["type"]: each["lastTransitionTime"] for each in held["conditions"]}
    assert times["Initialized"] == NOW_TEXT
    assert times["Ready"] == "2026-01-02T03:05:05Z"
    assert held["containerStatuses"][0]["state"] == running(NOW)


def test_a_jobs_pod_succeeds_and_stays_so() -> None:
    """The end is not looked at twice."""
    status = status_after(pod(job=True))

    assert status["phase"] == "Succeeded"
    assert reason_of(status, "Ready") == "PodCompleted"
    assert simulate(pod(job=True, status=status), NORMAL, NOW) is None


def test_a_pod_that_is_slow_says_when_to_look_again() -> None:
    """And is ready when that time has come."""
    behaviour = Behaviour(slow_seconds=30)
    first = simulate(pod(), behaviour, NOW)
    status = status_after(pod(), behaviour)
    second = simulate(pod(status=status), behaviour, NOW + timedelta(seconds=20))

    assert first is not None
    assert first.again_seconds == 30
    assert second is not None
    assert second.again_seconds == 10
    assert condition_is_true(status_after(pod(status=status), behaviour, later=30), "Ready")


def test_a_pod_that_became_ready_does_not_become_slow() -> None:
    """Slowness is about the way up."""
    status = status_after(pod())

    later = status_after(pod(status=status), Behaviour(slow_seconds=3600))

    assert condition_is_true(later, "Ready")


@pytest.mark.parametrize(
    ("reason", "phase", "restarts"),
    [("CrashLoopBackOff", "Running", 1), ("ImagePullBackOff", "Pending", 0)],
)
def test_a_broken_pod_is_in_the_phase_that_its_reason_implies(
    reason: str, phase: str, restarts: int
) -> None:
    """A container whose image cannot be pulled never ran."""
    status = status_after(pod(), Behaviour(broken=reason))

    assert status["phase"] == phase
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == reason
    assert status["containerStatuses"][0]["restartCount"] == restarts


def test_a_broken_pod_is_written_once() -> None:
    """The time of the crash does not move with every look."""
    broken = Behaviour(broken="CrashLoopBackOff")
    status = status_after(pod(), broken)

    assert not differs(status, status_after(pod(status=status), broken, later=100))


def test_readiness_waits_for_readiness_gates() -> None:
    """Containers are ready, the pod is not until the gate's condition is true."""
    gates = [{"conditionType": "example.com/fed"}]
    status = status_after(pod(readinessGates=gates))

    assert condition_is_true(status, "ContainersReady")
    assert reason_of(status, "Ready") == "ReadinessGatesNotReady"

    status["conditions"].append({"type": "example.com/fed", "status": "True"})
    opened = status_after(pod(readinessGates=gates, status=status))
    assert condition_is_true(opened, "Ready")


def test_sidecars_run_and_other_init_containers_are_done() -> None:
    """A sidecar is an init container that stays."""
    inits = [{"name": "prepare"}, {"name": "proxy", "restartPolicy": "Always"}]
    status = status_after(pod(initContainers=inits))

    states = [list(each["state"]) for each in status["initContainerStatuses"]]
    assert states == [["terminated"], ["running"]]
    assert condition_is_true(status, "Initialized")


@pytest.mark.parametrize(
    ("policy", "state", "last", "phase"),
    [
        ("Always", waiting("ContainerCreating"), {}, "Pending"),
        ("Always", waiting("CrashLoopBackOff"), terminated(1, NOW, NOW), "Running"),
        ("Always", terminated(0, NOW, NOW), {}, "Running"),
        ("OnFailure", terminated(1, NOW, NOW), {}, "Running"),
        ("OnFailure", terminated(0, NOW, NOW), {}, "Succeeded"),
        ("Never", terminated(0, NOW, NOW), {}, "Succeeded"),
        ("Never", terminated(2, NOW, NOW), {}, "Failed"),
        ("Never", running(NOW), {}, "Running"),
    ],
)
def test_the_phase_follows_from_states_and_policy(
    policy: str, state: Object, last: Object, phase: str
) -> None:
    """By the kubelet's rules."""
    assert phase_from(pod(restartPolicy=policy), report(state, last)) == phase


def test_a_failed_init_container_fails_the_pod_only_if_it_is_not_tried_again() -> None:
    """With restarts the pod stays pending."""
    inits = [{"name": "prepare"}]
    failed = ContainerReport("prepare", "i", terminated(1, NOW, NOW))
    reports = PodReport(
        [ContainerReport("main", "i", waiting("PodInitializing"))], [failed], phase=""
    )

    assert phase_from(pod(initContainers=inits, restartPolicy="Never"), reports) == "Failed"
    assert phase_from(pod(initContainers=inits), reports) == "Pending"


def test_a_signal_shows_in_the_terminated_state() -> None:
    """Exit codes above 128 are signals."""
    assert terminated(137, NOW, NOW)["terminated"]["signal"] == 9
