"""What the containers of a simulated pod would be doing now.

Such a pod has no process behind it. It becomes ready at once, and a Job's pod succeeds at once,
unless annotations hold it, break it, or slow it down.
"""

from datetime import datetime, timedelta

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.dev.node.annotations import BREAK, Behaviour
from knfleet.dev.node.pods.pod_manifests import (
    TERMINAL,
    belongs_to_job,
    condition_is_true,
    containers_of,
    init_containers_of,
    is_sidecar,
    moment,
    phase_of,
    rows,
    status_of,
)
from knfleet.dev.node.pods.pod_status import (
    ContainerReport,
    PodReport,
    running,
    terminated,
    waiting,
)

BEFORE_START = frozenset(
    {
        "ContainerCreating",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "PodInitializing",
        "RunContainerError",
    }
)
"""Reasons for which a container waits that never ran."""


class Simulation(Struct, frozen=True):
    """What to report, and when it will change by itself."""

    report: PodReport
    again_seconds: float | None = None


def simulate(pod: Object, behaviour: Behaviour, now: datetime) -> Simulation | None:
    """What the pod's containers do now; nothing new for a pod that ended."""
    if phase_of(pod) in TERMINAL:
        return None
    if behaviour.broken:
        return Simulation(broken(pod, behaviour.broken, now))
    left = seconds_left(pod, behaviour, now)
    if belongs_to_job(pod) and not left and not behaviour.hold:
        return Simulation(completed(pod, now))
    return Simulation(started(pod, ready=not left and not behaviour.hold, now=now), left or None)


def seconds_left(pod: Object, behaviour: Behaviour, now: datetime) -> float:
    """How long a slow pod still needs; nothing for one whose containers became ready before."""
    status = status_of(pod)
    if not behaviour.slow_seconds or condition_is_true(status, "ContainersReady"):
        return 0.0
    since = moment(status["startTime"]) if "startTime" in status else now
    return max(0.0, (since + timedelta(seconds=behaviour.slow_seconds) - now).total_seconds())


def started(pod: Object, *, ready: bool, now: datetime) -> PodReport:
    """Every container runs."""
    return PodReport(
        [
            ContainerReport(
                each["name"],
                each.get("image", ""),
                running(running_since(pod, each["name"], now)),
                ready=ready,
                started=True,
                restart_count=restarts(pod, each["name"]),
                container_id=f"simulated://{each['name']}",
            )
            for each in containers_of(pod)
        ],
        init_reports(pod, now, ended=False),
    )


def completed(pod: Object, now: datetime) -> PodReport:
    """Every container ended well."""
    containers = [
        ContainerReport(
            each["name"],
            each.get("image", ""),
            terminated(0, running_since(pod, each["name"], now), now),
            restart_count=restarts(pod, each["name"]),
            container_id=f"simulated://{each['name']}",
        )
        for each in containers_of(pod)
    ]
    return PodReport(containers, init_reports(pod, now, ended=True), phase="Succeeded")


def broken(pod: Object, reason: str, now: datetime) -> PodReport:
    """Every container has the trouble that the annotation names."""
    message = f"{reason}: asked for by the annotation {BREAK}"
    ended = terminated(1, now, now, message)
    if belongs_to_job(pod):
        failed = [
            ContainerReport(each["name"], each.get("image", ""), ended)
            for each in containers_of(pod)
        ]
        return PodReport(failed, init_reports(pod, now, ended=True), phase="Failed")
    ran = reason not in BEFORE_START
    containers = [
        ContainerReport(
            each["name"],
            each.get("image", ""),
            waiting(reason, message),
            (last_state(pod, each["name"]) or ended) if ran else {},
            restart_count=max(restarts(pod, each["name"]), int(ran)),
        )
        for each in containers_of(pod)
    ]
    return PodReport(containers, init_reports(pod, now, ended=False))


def init_reports(pod: Object, now: datetime, *, ended: bool) -> list[ContainerReport]:
    """Init containers did their work; sidecars run until the pod ends."""
    reports: list[ContainerReport] = []
    for each in init_containers_of(pod):
        runs = is_sidecar(each) and not ended
        since = running_since(pod, each["name"], now)
        reports.append(
            ContainerReport(
                each["name"],
                each.get("image", ""),
                running(since) if runs else done(pod, each["name"]) or terminated(0, since, now),
                ready=True,
                started=runs,
                container_id=f"simulated://{each['name']}",
            )
        )
    return reports


def done(pod: Object, name: str) -> Object:
    """The terminated state that the status shows already, so that it never changes."""
    state: Object = container_status(pod, name).get("state") or {}
    return state if "terminated" in state else {}


def running_since(pod: Object, name: str, now: datetime) -> datetime:
    """Since when the status says that the container runs, or now."""
    state: Object = container_status(pod, name).get("state") or {}
    return moment(state["running"]["startedAt"]) if "running" in state else now


def last_state(pod: Object, name: str) -> Object:
    """How the container ended before, according to the status."""
    return container_status(pod, name).get("lastState") or {}


def restarts(pod: Object, name: str) -> int:
    """How often the container was restarted, according to the status."""
    return container_status(pod, name).get("restartCount", 0)


def container_status(pod: Object, name: str) -> Object:
    """One container's status as it is on the server."""
    status = status_of(pod)
    for field in ("containerStatuses", "initContainerStatuses"):
        for each in rows(status.get(field)):
            if each["name"] == name:
                return each
    return {}
