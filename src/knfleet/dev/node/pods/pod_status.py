"""A pod's status, computed from what its containers do.

Simulated and real pods differ only in where the container reports come from; phase, conditions and
addresses follow from the reports by the same rules, which are the kubelet's.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, cast

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.dev.node.addresses import NODE_ADDRESS
from knfleet.dev.node.pods.pod_manifests import (
    TERMINAL,
    condition_is_true,
    init_containers_of,
    is_sidecar,
    restart_policy,
    rows,
    status_of,
    timestamp,
)


class ContainerReport(Struct, frozen=True):
    """What one container does."""

    name: str
    image: str
    state: Object
    """One of waiting, running and terminated, as in a container status."""
    last_state: Object = {}
    ready: bool = False
    started: bool = False
    restart_count: int = 0
    container_id: str = ""

    @property
    def exit_code(self) -> int | None:
        return self.state["terminated"]["exitCode"] if "terminated" in self.state else None

    def manifest(self) -> Object:
        """The container status."""
        status: Object = {
            "name": self.name,
            "image": self.image,
            "imageID": "" if "waiting" in self.state and not self.last_state else self.image,
            "state": self.state,
            "lastState": self.last_state,
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restart_count,
        }
        if self.container_id:
            status["containerID"] = self.container_id
        return status


class PodReport(Struct, frozen=True):
    """What all containers of a pod do."""

    containers: Sequence[ContainerReport]
    init_containers: Sequence[ContainerReport] = ()
    phase: str = ""
    """Set where the rules cannot know it; otherwise it follows from the containers."""
    reason: str = ""
    message: str = ""


class PodCondition(Struct, frozen=True):
    """One condition as it should be."""

    is_true: bool
    reason: str = ""
    message: str = ""


def waiting(reason: str, message: str = "") -> Object:
    """The state of a container that does not run yet, or not now."""
    return {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}


def running(started: datetime) -> Object:
    """The state of a container that runs."""
    return {"running": {"startedAt": timestamp(started)}}


def terminated(exit_code: int, started: datetime, finished: datetime, message: str = "") -> Object:
    """The state of a container that ended."""
    ended: Object = {
        "exitCode": exit_code,
        "reason": "Completed" if exit_code == 0 else "Error",
        "startedAt": timestamp(started),
        "finishedAt": timestamp(finished),
    }
    if exit_code > 128:
        ended["signal"] = exit_code - 128
    if message:
        ended["message"] = message
    return {"terminated": ended}


def pod_status(pod: Object, report: PodReport, *, pod_ip: str, now: datetime) -> Object:
    """The whole status of a pod whose containers do what the report says."""
    before = status_of(pod)
    phase = report.phase or phase_from(pod, report)
    generation = pod["metadata"].get("generation", 0)
    wanted = conditions(pod, report, phase)
    held = rows(before.get("conditions"))
    address = NODE_ADDRESS if pod["spec"].get("hostNetwork") else pod_ip
    status: Object = {
        "phase": phase,
        "conditions": merged(held, wanted, now=now, generation=generation),
        "hostIP": NODE_ADDRESS,
        "hostIPs": [{"ip": NODE_ADDRESS}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": before.get("startTime") or timestamp(now),
        "containerStatuses": [each.manifest() for each in report.containers],
    }
    if report.init_containers:
        status["initContainerStatuses"] = [each.manifest() for each in report.init_containers]
    if generation:
        status["observedGeneration"] = generation
    for key in ("reason", "message"):
        if getattr(report, key) or before.get(key):
            status[key] = getattr(report, key)
    return status


def phase_from(pod: Object, report: PodReport) -> str:
    """The phase that follows from what the containers do."""
    if not initialized(pod, report):
        failed = any(each.exit_code for each in report.init_containers)
        return "Failed" if failed and restart_policy(pod) == "Never" else "Pending"
    states = [each.state for each in report.containers]
    if any("waiting" in each.state and not each.last_state for each in report.containers):
        return "Pending"
    if restart_policy(pod) == "Always" or any("terminated" not in state for state in states):
        return "Running"
    if all(each.exit_code == 0 for each in report.containers):
        return "Succeeded"
    return "Failed" if restart_policy(pod) == "Never" else "Running"


def initialized(pod: Object, report: PodReport) -> bool:
    """Whether every init container did its part."""
    sidecars = {each["name"] for each in init_containers_of(pod) if is_sidecar(each)}
    return all(
        (each.started or each.exit_code is not None)
        if each.name in sidecars
        else each.exit_code == 0
        for each in report.init_containers
    )


def conditions(pod: Object, report: PodReport, phase: str) -> dict[str, PodCondition]:
    """The conditions that the node writes, for a pod in that phase."""
    started = phase not in TERMINAL and any(
        "waiting" not in each.state or each.last_state
        for each in (*report.init_containers, *report.containers)
    )
    ready = containers_ready(report, phase)
    return {
        "PodScheduled": PodCondition(is_true=True),
        "PodReadyToStartContainers": PodCondition(is_true=started),
        "Initialized": initialized_verdict(pod, report, phase),
        "ContainersReady": ready,
        "Ready": pod_ready(pod, ready),
    }


def initialized_verdict(pod: Object, report: PodReport, phase: str) -> PodCondition:
    if phase == "Succeeded":
        return PodCondition(is_true=True, reason="PodCompleted")
    if initialized(pod, report):
        return PodCondition(is_true=True)
    names = " ".join(each.name for each in report.init_containers if each.exit_code != 0)
    message = f"containers with incomplete status: [{names}]"
    return PodCondition(is_true=False, reason="ContainersNotInitialized", message=message)


def containers_ready(report: PodReport, phase: str) -> PodCondition:
    """The ContainersReady condition."""
    if phase == "Succeeded":
        return PodCondition(is_true=False, reason="PodCompleted")
    if phase == "Failed":
        return PodCondition(is_true=False, reason="PodFailed")
    names = " ".join(each.name for each in report.containers if not each.ready)
    if not names:
        return PodCondition(is_true=True)
    message = f"containers with unready status: [{names}]"
    return PodCondition(is_true=False, reason="ContainersNotReady", message=message)


def pod_ready(pod: Object, containers: PodCondition) -> PodCondition:
    """The Ready condition: the containers' readiness, and every readiness gate."""
    if not containers.is_true:
        return containers
    gates = [gate["conditionType"] for gate in rows(pod["spec"].get("readinessGates"))]
    closed = [gate for gate in gates if not condition_is_true(status_of(pod), gate)]
    if not closed:
        return PodCondition(is_true=True)
    message = "; ".join(f'pod readiness gate "{gate}" is not "True"' for gate in closed)
    return PodCondition(is_true=False, reason="ReadinessGatesNotReady", message=message)


def merged(
    before: Iterable[Object], wanted: dict[str, PodCondition], *, now: datetime, generation: int
) -> list[Object]:
    """The wanted conditions; one whose status did not change keeps its transition time."""
    known = {each["type"]: each for each in before}
    result: list[Object] = []
    for kind, verdict in wanted.items():
        old = known.get(kind, {})
        status = "True" if verdict.is_true else "False"
        same = old.get("status") == status
        condition: Object = {
            "type": kind,
            "status": status,
            "lastProbeTime": None,
            "lastTransitionTime": old["lastTransitionTime"] if same else timestamp(now),
        }
        for key, text in (("reason", verdict.reason), ("message", verdict.message)):
            if text or old.get(key):
                condition[key] = text or None
        if generation:
            condition["observedGeneration"] = generation
        result.append(condition)
    return result


def differs(status: Object, wanted: Object) -> bool:
    """Whether writing `wanted` over `status` would change anything; foreign conditions stay."""
    held = {each["type"]: each for each in rows(status.get("conditions"))}
    for key, value in wanted.items():
        if key == "conditions":
            if any(normal(held.get(each["type"])) != normal(each) for each in rows(value)):
                return True
        elif normal(status.get(key)) != normal(value):
            return True
    return False


def normal(value: Any) -> Any:
    """The value without what is empty, because servers drop or add that as they like."""
    if isinstance(value, dict):
        table = cast("Object", value)
        return {key: normal(each) for key, each in table.items() if each} or None
    if isinstance(value, list):
        return [normal(each) for each in cast("list[Any]", value)] or None
    return value or None
