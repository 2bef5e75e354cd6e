"""Which workload does not run, and why: down to the replica set, the pod, and what it says."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

from msgspec import Struct

from knfleet.api.core import (
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from knfleet.api.meta import Object, Resource
from knfleet.apply.manifest_fields import items, part
from knfleet.apply.observe.readiness import ReadinessState, conditions, health, is_true
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Forbidden, KubeError
from knfleet.operator.kinds import uid_of
from knfleet.view.fleet_model import Stand

WORKLOADS = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, JOBS)
MOST_NAMESPACES = 4
"""Of so many namespaces the pods are read."""
MOST_PODS = 5
"""So many pods of a workload are listed."""
STANDS: dict[ReadinessState, Stand] = {
    ReadinessState.READY: "ok",
    ReadinessState.PROGRESSING: "busy",
    ReadinessState.FAILED: "bad",
}
REVISION = "deployment.kubernetes.io/revision"


class WorkloadFinding(Struct, frozen=True, rename="camel"):
    """Something that is not as it should be, and what is below it."""

    what: str
    """As `Deployment knative-serving/activator`."""
    state: Stand
    message: str = ""
    below: tuple["WorkloadFinding", ...] = ()


async def findings(client: Client, selector: str, home: str) -> tuple[WorkloadFinding, ...]:
    """The workloads of a set that do not run as they should, opened down to their pods."""
    lists = await asyncio.gather(*(workloads(client, kind, selector, home) for kind in WORKLOADS))
    sick = [
        manifest
        for found in lists
        for manifest in found
        if health(manifest).state != ReadinessState.READY
    ]
    namespaces = sorted({each["metadata"]["namespace"] for each in sick})[:MOST_NAMESPACES]
    around = await asyncio.gather(*(surroundings(client, each) for each in namespaces))
    below = [manifest for found in around for manifest in found]
    return tuple(finding(each, below) for each in sick)


async def workloads(client: Client, kind: Resource, selector: str, home: str) -> list[Object]:
    """The members of one kind; where we may not look everywhere, those in their own namespace."""
    for namespace in ("", home):
        with suppress(Forbidden):
            return (await client.list(kind, namespace, labels=selector)).items
    return []


async def surroundings(client: Client, namespace: str) -> list[Object]:
    """Everything in a namespace that may say why a workload does not run."""
    warnings = client.list(EVENTS, namespace, fields="type=Warning")
    found = await asyncio.gather(
        client.list(REPLICA_SETS, namespace), client.list(PODS, namespace), warnings
    )
    return [manifest for each in found for manifest in each.items]


def finding(manifest: Object, around: Sequence[Object]) -> WorkloadFinding:
    """Why a workload does not run: its newest replica set, and the pods that are not ready."""
    judged = health(manifest)
    count = f"{judged.ready}/{judged.wanted} " if judged.wanted else ""
    owned = owned_by(manifest, around)
    sets = [each for each in owned if each["kind"] == REPLICA_SETS.kind]
    if sets:
        newest = max(sets, key=revision)
        below = (replica_set(newest, around),)
    else:
        below = pods_below(manifest, around)
    message = f"{count}{judged.message}".strip()
    return WorkloadFinding(str(judged.ref), STANDS[judged.state], message, below)


def replica_set(manifest: Object, around: Sequence[Object]) -> WorkloadFinding:
    """How far a replica set is, why it cannot make pods, and its pods."""
    meta = manifest["metadata"]
    failure = conditions(manifest).get("ReplicaFailure")
    wanted = part(manifest, "spec").get("replicas", 0)
    ready = part(manifest, "status").get("readyReplicas", 0)
    failed = is_true(failure)
    message = f"{ready}/{wanted} ready"
    if failed and failure is not None:
        message = f"{message}; {failure.get('reason', '')}: {failure.get('message', '')}"
    what = f"ReplicaSet {meta['namespace']}/{meta['name']}"
    below = pods_below(manifest, around)
    return WorkloadFinding(what, "bad" if failed else "busy", message, below)


def pods_below(owner: Object, around: Sequence[Object]) -> tuple[WorkloadFinding, ...]:
    """The pods of an owner that are not ready; when it has none, what its Events say of that."""
    pods = [each for each in owned_by(owner, around) if each["kind"] == PODS.kind]
    sick = [each for each in pods if not is_true(conditions(each).get("Ready"))]
    found = [pod_finding(each, around) for each in sick[:MOST_PODS]]
    if len(sick) > MOST_PODS:
        found.append(WorkloadFinding(f"{len(sick) - MOST_PODS} more pods", "busy"))
    if not pods and (message := last_event(owner, around)):
        found.append(WorkloadFinding("Event", "bad", message))
    return tuple(found)


def pod_finding(pod: Object, around: Sequence[Object]) -> WorkloadFinding:
    """What keeps a pod from being ready."""
    meta = pod["metadata"]
    message = pod_message(pod)
    event = last_event(pod, around)
    message = "; ".join(dict.fromkeys(filter(None, [message, event])))
    state: Stand = "bad" if event or is_broken(pod) else "busy"
    return WorkloadFinding(f"Pod {meta['namespace']}/{meta['name']}", state, message)


def is_broken(pod: Object) -> bool:
    """Whether a pod failed, or one of its containers did."""
    states = [part(each, "state") for each in containers(pod)]
    waits = (part(state, "waiting").get("reason", "") for state in states)
    ended = (part(state, "terminated").get("exitCode", 0) for state in states)
    bad = any(reason and reason not in ("ContainerCreating", "PodInitializing") for reason in waits)
    return bad or any(ended) or part(pod, "status").get("phase") == "Failed"


def pod_message(pod: Object) -> str:
    """Why a pod is not ready, in the words of scheduler and kubelet."""
    messages = [text for each in containers(pod) if (text := container_message(each))]
    if messages:
        return "; ".join(messages)
    found = conditions(pod)
    for type_ in ("PodScheduled", "Initialized", "ContainersReady", "Ready"):
        condition = found.get(type_)
        if condition is not None and condition.get("status") == "False":
            return worded(condition.get("reason", ""), condition.get("message", ""))
    status = part(pod, "status")
    return worded(status.get("reason", ""), status.get("message", "")) or status.get("phase", "")


def containers(pod: Object) -> list[Object]:
    """What a pod says of its containers, the first ones first."""
    return [
        *items(pod, "status", "initContainerStatuses"),
        *items(pod, "status", "containerStatuses"),
    ]


def container_message(container: Object) -> str:
    """What is wrong with a container; empty when nothing is."""
    state, name = part(container, "state"), container.get("name", "")
    waiting, ended = part(state, "waiting"), part(state, "terminated")
    last = part(container, "lastState", "terminated")
    if waiting:
        text = worded(waiting.get("reason", ""), waiting.get("message", ""))
        if last:
            text += f" (before: {ended_message(last)})"
        return f"container {name}: {text}"
    if ended and ended.get("exitCode", 0) != 0:
        return f"container {name}: {ended_message(ended)}"
    return ""


def ended_message(ended: Object) -> str:
    """How a container ended."""
    message = " ".join(str(ended.get("message", "")).split())
    code = f"{ended.get('reason', 'ended')}, exit code {ended.get('exitCode', 0)}"
    return f"{code}: {message}" if message else code


def worded(reason: str, message: str) -> str:
    """A reason and its message, the reason once."""
    if not message or message.startswith(reason):
        return message or reason
    return f"{reason}: {message}" if reason else message


def owned_by(owner: Object, around: Iterable[Object]) -> list[Object]:
    """The objects whose owner something is."""
    uid = uid_of(owner)
    return [
        each
        for each in around
        if any(ref.get("uid") == uid for ref in items(each, "metadata", "ownerReferences"))
    ]


def last_event(manifest: Object, around: Iterable[Object]) -> str:
    """What the newest warning about an object says."""
    uid = uid_of(manifest)
    about = [
        each
        for each in around
        if each["kind"] == EVENTS.kind and part(each, "involvedObject").get("uid") == uid
    ]
    if not about:
        return ""
    newest = max(about, key=moment)
    return worded(newest.get("reason", ""), " ".join(str(newest.get("message", "")).split()))


def moment(event: Object) -> str:
    """When an Event last happened."""
    times = (event.get("lastTimestamp"), event.get("eventTime"))
    return next((str(time) for time in times if time), "")


def revision(replica_set: Object) -> int:
    """Which change of its Deployment a replica set is of."""
    text = part(replica_set, "metadata", "annotations").get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def unreadable_target(error: KubeError) -> WorkloadFinding:
    """What is shown when the target could not be asked."""
    return WorkloadFinding("reading the target", "unknown", str(error))
