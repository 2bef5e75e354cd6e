"""All pods of the cluster: bound to the node, made to look alive or really run, and removed.

Level-triggered: whenever anything about a pod may have changed, `look` compares what its status
should be with what it is, and writes the difference, if any, in one patch.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import structlog
from msgspec import structs

from knfleet.api.core import PODS
from knfleet.api.meta import Key, Object
from knfleet.dev.node.addresses import Addresses
from knfleet.dev.node.annotations import Behaviour, asked
from knfleet.dev.node.containers.own_images import is_real
from knfleet.dev.node.node_object import NodeObject
from knfleet.dev.node.pod_events import PodEvents
from knfleet.dev.node.pods.node_fit import obstacle, place_facts, wants_node
from knfleet.dev.node.pods.pod_folders import PodFolder
from knfleet.dev.node.pods.pod_manifests import (
    TERMINAL,
    annotations_of,
    is_terminating,
    moment,
    phase_of,
    rows,
    status_of,
    timestamp,
    uid_of,
)
from knfleet.dev.node.pods.pod_owners import BY_OWNER, PodOwners, owner_uid
from knfleet.dev.node.pods.pod_references import References
from knfleet.dev.node.pods.pod_status import PodReport, differs, pod_status
from knfleet.dev.node.pods.process_pod import PodHost, ProcessPod
from knfleet.dev.node.pods.simulated_pod import broken, completed, seconds_left, simulate
from knfleet.dev.node.pods.tokens import PodTokens
from knfleet.dev.node.work_queue import KeyQueue
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, NotFound

AT_ONCE = 24
FAILED_SECONDS = 5.0
"""How long a pod waits that could not even be given its folder."""
HURRY_SECONDS = 3.0
"""How long the processes of pods have when the node itself ends."""
REMOVED_SECONDS = 5.0
"""After this long, the server is asked again to remove a pod."""

log = structlog.get_logger()


KEPT_OF_CONTAINERS = ("name", "image", "ports", "restartPolicy")


def trimmed(pod: Object, names: tuple[str, ...]) -> Object:
    """What the node needs of a pod: all of a real one, little of a simulated one."""
    without_managed_fields(pod)
    if is_real(pod, names):
        return pod
    spec = pod["spec"]
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [
                {key: each[key] for key in KEPT_OF_CONTAINERS if key in each}
                for each in rows(spec[field])
            ]
    spec.pop("volumes", None)
    if spec.get("nodeName"):
        for field in ("tolerations", "affinity", "nodeSelector", "securityContext"):
            spec.pop(field, None)
    return pod


def namespace_of(pod: Object) -> Iterable[str]:
    return [pod["metadata"]["namespace"]]


def left_to_server(pod: Object, now: datetime) -> float | None:
    """How many seconds the server has to remove a pod that has no time left, by itself.

    It does so at once, unless it was killed just then; a pod that is held by finalizers is for
    others to wait for, hence None.
    """
    meta = pod["metadata"]
    if meta.get("deletionGracePeriodSeconds") != 0:
        return 0.0
    if meta.get("finalizers"):
        return None
    ends = moment(meta["deletionTimestamp"]) + timedelta(seconds=REMOVED_SECONDS)
    return max(0.0, (ends - now).total_seconds())


class Pods:
    """Every pod of the cluster, and what the node does about it."""

    def __init__(
        self,
        client: Client,
        host: PodHost,
        *,
        node: NodeObject,
        addresses: Addresses,
        group: asyncio.TaskGroup,
        pod_type: type[ProcessPod] = ProcessPod,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.client = client
        self.host = host
        self.node = node
        self.group = group
        self.pod_type = pod_type
        self.now = now
        self.addresses = addresses
        self.real: dict[str, ProcessPod] = {}
        """Pods with processes, by identity."""
        self.closing = False
        self.recorder = PodEvents(client, node.name)
        self.references = References(client, group, self.references_changed)
        self.owners = PodOwners(client, self.owner_changed)
        self.informer = Informer(
            client,
            PODS,
            trim=lambda pod: trimmed(pod, host.images),
            indexes={BY_OWNER: owner_uid, "namespace": namespace_of},
        )
        self.work = KeyQueue(self.reconcile, at_once=AT_ONCE)
        self.informer.on_change(self.changed)
        node.informer.on_change(self.node_changed)

    def in_namespace(self, namespace: str) -> list[Object]:
        return self.informer.by_index("namespace", namespace)

    def is_real(self, pod: Object) -> bool:
        """Whether the pod's containers are processes."""
        return is_real(pod, self.host.images)

    async def run(self) -> None:
        """Do everything for pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.owners.run())
            group.create_task(self.informer.run())
            group.create_task(self.run_queue())

    async def run_queue(self) -> None:
        """Begin to look once everything is known, so that nothing is decided in ignorance."""
        await self.owners.synced()
        await self.informer.synced.wait()
        await self.node.known.wait()
        self.addresses.claim_shown(self.informer.items())
        await self.work.run()

    async def shut_down(self) -> None:
        """End all processes, within a few seconds, and start none again."""
        self.closing = True
        tasks = [pod.task for pod in self.real.values() if pod.task is not None]
        for pod in self.real.values():
            pod.stop(HURRY_SECONDS)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=HURRY_SECONDS + 0.5)
            if late:
                for pod in self.real.values():
                    pod.kill()
                await asyncio.wait(late, timeout=1)

    def changed(self, change: StoreChange) -> None:
        if change.old is not None and (
            change.new is None or uid_of(change.old) != uid_of(change.new)
        ):
            self.gone(change.old)
        self.work.add(change.key)

    def node_changed(self, change: StoreChange) -> None:
        """Pods that found no place may find one on the node as it is now."""
        if place_facts(change.old) != place_facts(change.new):
            for pod in self.informer.items():
                if wants_node(pod):
                    self.work.add(Key.of(pod))

    def owner_changed(self, uid: str) -> None:
        """The annotations of an object changed: its pods may have to behave differently."""
        for pod in self.informer.by_index(BY_OWNER, uid):
            self.work.add(Key.of(pod))

    def references_changed(self, namespace: str) -> None:
        """A ConfigMap or Secret changed."""
        for pod in self.real.values():
            if pod.pod["metadata"]["namespace"] == namespace:
                pod.sources_changed()

    def gone(self, pod: Object) -> None:
        """A pod does not exist any more; forget it, and end what it left running."""
        uid = uid_of(pod)
        self.addresses.release(uid)
        self.recorder.forget(uid)
        real = self.real.get(uid)
        if real is not None and not real.ended:
            real.stop(HURRY_SECONDS)
        elif self.is_real(pod):
            self.real.pop(uid, None)
            PodFolder(self.host.pods_folder, pod).remove()

    async def reconcile(self, key: Key) -> float | None:
        """Do what one pod needs now; returns after how many seconds to look again, if at all."""
        pod = self.informer.get(key)
        if pod is None or self.closing:
            return None
        if wants_node(pod):
            await self.schedule(key, pod)
            return None
        place = pod["spec"].get("nodeName") or ""
        if is_terminating(pod) and place in {"", self.node.name}:
            return await self.delete_pod(key, pod)
        if place == self.node.name:
            return await self.reconcile_bound(key, pod)
        return None

    async def reconcile_bound(self, key: Key, pod: Object) -> float | None:
        """Let a pod of this node do what it should do now, and report it."""
        wanted = asked(annotations_of(pod), await self.owners.annotations(pod))
        for problem in wanted.problems:
            await self.recorder.warn(pod, "BadAnnotation", problem)
        if self.is_real(pod):
            return await self.reconcile_process_pod(key, pod, wanted.behaviour)
        simulation = simulate(pod, wanted.behaviour, self.now())
        if simulation is None:
            return None
        await self.write(key, pod, simulation.report)
        return simulation.again_seconds

    async def schedule(self, key: Key, pod: Object) -> None:
        """Bind the pod to the node, or say why not."""
        why = obstacle(pod, self.node.current)
        if not why:
            target: Object = {"apiVersion": "v1", "kind": "Node", "name": self.node.name}
            binding: Object = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid_of(pod)},
                "target": target,
            }
            await self.client.create(
                PODS, binding, key.namespace, name=key.name, subresource="binding"
            )
            return
        condition: Object = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": why,
            "lastTransitionTime": timestamp(self.now()),
        }
        known = list(rows(status_of(pod).get("conditions")))
        if not any(each["type"] == "PodScheduled" and each.get("message") == why for each in known):
            await self.write_status(key, pod, {"conditions": [condition]})
            await self.recorder.warn(pod, "FailedScheduling", why)

    async def reconcile_process_pod(
        self, key: Key, pod: Object, behaviour: Behaviour
    ) -> float | None:
        """Let the pod's processes run, unless it ended or is broken, and report them."""
        real = self.real.get(uid_of(pod))
        if behaviour.broken and phase_of(pod) not in TERMINAL:
            if real is not None:
                real.stop(HURRY_SECONDS)
            else:
                await self.write(key, pod, broken(pod, behaviour.broken, self.now()))
            return None
        if real is None:
            if phase_of(pod) in TERMINAL:
                return None
            real = self.begin(key, pod)
        real.update(pod)
        left = seconds_left(pod, behaviour, self.now())
        report = real.report()
        if left or behaviour.hold:
            report = structs.replace(
                report,
                containers=[structs.replace(each, ready=False) for each in report.containers],
            )
        await self.write(key, pod, report)
        return left or None

    def begin(self, key: Key, pod: Object) -> ProcessPod:
        """Start a pod's processes."""
        uid = uid_of(pod)
        real = self.pod_type(
            pod,
            self.host,
            address=self.addresses.of(pod),
            store=self.references.hold(key.namespace, uid),
            tokens=PodTokens(self.client, pod),
            changed=lambda: self.work.add(key),
        )
        self.real[uid] = real
        real.task = self.group.create_task(self.run_real(key, real))
        return real

    async def run_real(self, key: Key, real: ProcessPod) -> None:
        """Run a pod's processes to their end, then look at the pod again."""
        try:
            await real.run()
        except* OSError as errors:
            log.warning("cannot run", pod=str(key), error=str(errors.exceptions[0]))
            real.failed = True
        finally:
            self.finished(key, real)

    def finished(self, key: Key, real: ProcessPod) -> None:
        """No process of the pod runs any more."""
        uid = uid_of(real.pod)
        self.references.release(key.namespace, uid)
        current = self.informer.get(key)
        if current is None or uid_of(current) != uid:
            del self.real[uid]
            real.folder.remove()
        elif (real.stopping or real.failed) and not is_terminating(current):
            del self.real[uid]
        self.work.add_after(key, FAILED_SECONDS if real.failed else 0)

    async def delete_pod(self, key: Key, pod: Object) -> float | None:
        """End what runs of a pod that is being deleted, then tell the server that it is gone.

        Returns after how many seconds to look again, if at all.
        """
        uid = uid_of(pod)
        real = self.real.get(uid)
        if real is not None and not real.ended:
            real.stop(pod["metadata"].get("deletionGracePeriodSeconds", 30))
            return None
        if pod["metadata"].get("finalizers") and phase_of(pod) not in TERMINAL:
            # The holder of the finalizer, such as the Job controller, wants to know how it ended.
            await self.write(key, pod, self.last_report(pod, real))
        left = 0.0 if real is not None else left_to_server(pod, self.now())
        if left == 0.0:
            try:
                await self.client.delete(PODS, key, uid=uid, grace_seconds=0)
            except (NotFound, Conflict):
                log.debug("gone before", pod=str(key))
        self.real.pop(uid, None)
        return left or None

    def last_report(self, pod: Object, real: ProcessPod | None) -> PodReport:
        """How a pod that is being deleted ended."""
        if real is None:
            return completed(pod, self.now())
        report = real.report()
        codes = [each.exit_code for each in report.containers]
        return structs.replace(report, phase="Failed" if any(codes) else "Succeeded")

    async def write(self, key: Key, pod: Object, report: PodReport) -> None:
        """Write a pod's status if it is not so already."""
        address = self.addresses.of(pod).reported
        status = pod_status(pod, report, pod_ip=address, now=self.now())
        if differs(status_of(pod), status):
            await self.write_status(key, pod, status)

    async def write_status(self, key: Key, pod: Object, status: Object) -> None:
        """Write a part of a pod's status; conditions of others stay."""
        patch: Object = {"metadata": {"uid": uid_of(pod)}, "status": status}
        await self.client.patch(PODS, key, patch, strategic=True, subresource="status")
