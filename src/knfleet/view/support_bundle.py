"""Diagnostic information for users without access to the hub: files, without secrets.

Everything is asked of the hub alone. What cannot be read is noted, and keeps nothing else out.
"""

import asyncio
import platform
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from knfleet import __version__
from knfleet.api.cluster.clusterset import BINDINGS, CLUSTER_SETS
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.core import CONFIG_MAPS, CRDS, DEPLOYMENTS, EVENTS, LEASES, PODS, SECRETS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.operator import CLUSTER_MANAGERS, KLUSTERLETS
from knfleet.apply.manifest_fields import items, part
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError
from knfleet.kube.secret_text import clean
from knfleet.kube.yaml import dump_all
from knfleet.operator.uninstall.tombstones import SELECTOR
from knfleet.view.fleet_model import FleetView
from knfleet.view.fleet_reader import HubObjects, fleet_of
from knfleet.view.redaction import clean_log, redacted
from knfleet.workflows.diagnosis import diagnose
from knfleet.workflows.doctor import observe_hub

KINDS = (
    *(CLUSTERS, PROFILES, SERVINGS, EVENTINGS),
    *(CLUSTER_SETS, BINDINGS, CLUSTER_MANAGERS, KLUSTERLETS, LEASES),
)
WORKLOADS = frozenset(
    {"knative-operator", "cluster-manager", "klusterlet-registration-agent", "klusterlet-agent"}
)
"""Our own Deployments, by name."""
GROUPS = ("knative.dev", "open-cluster-management.io", "x-k8s.io", "knfleet.dev")
LOG_LINES = 2000
LOG_BYTES = 1024 * 1024
MOST_DOCTORS = 20
"""So many clusters in trouble are examined."""
AT_ONCE = 4

Say = Callable[[str], None]


class SupportFiles:
    """Collects files; what is put into it is without secrets."""

    def __init__(self, client: Client, say: Say) -> None:
        self.client = client
        self.say = say
        self.files: dict[str, str] = {}
        self.notes: list[str] = []
        self.found: dict[Resource, list[Object]] = {}

    def put(self, name: str, text: str) -> None:
        """Add a text."""
        self.files[name] = clean(text)

    def put_objects(self, name: str, objects: Iterable[Object]) -> None:
        """Add manifests."""
        self.files[name] = dump_all([redacted(each) for each in objects])

    async def tried(self, what: str, call: Awaitable[None]) -> None:
        """Do one part; when it fails, note why."""
        self.say(what)
        try:
            await call
        except KubeError as error:
            self.notes.append(clean(f"{what}: {error}"))

    async def collect(self) -> dict[str, str]:
        """All files by name."""
        await asyncio.gather(*(self.tried(str(kind), self.read(kind)) for kind in KINDS))
        fleet = self.fleet()
        self.put("fleet.json", msgspec.json.format(msgspec.json.encode(fleet)).decode())
        await self.tried("versions", self.versions())
        await self.tried("Deployments of knfleet and their logs", self.workloads())
        spaces = self.namespaces(fleet)
        await self.tried("settings", self.settings(spaces))
        await self.tried("names of Secrets", self.secrets(spaces))
        await self.tried("Events", self.events(spaces))
        await self.tried("findings of the doctor", self.doctor(fleet))
        self.files["notes.txt"] = "".join(f"{note}\n" for note in self.notes) or "All was read.\n"
        return self.files

    async def read(self, kind: Resource) -> None:
        """All objects of a kind."""
        self.found[kind] = (await self.client.list(kind)).items
        self.put_objects(f"objects/{kind}.yaml", self.found[kind])

    def fleet(self) -> FleetView:
        """The fleet as `knfleet status` shows it."""
        objects = HubObjects(
            self.found.get(CLUSTERS, []),
            self.found.get(PROFILES, []),
            self.found.get(SERVINGS, []),
            self.found.get(EVENTINGS, []),
        )
        return fleet_of(objects, datetime.now(UTC))

    async def versions(self) -> None:
        """What runs here and there."""
        lines = [
            f"knfleet {__version__}",
            f"Python {platform.python_version()} on {platform.system()} {platform.machine()}",
            f"hub: Kubernetes {await self.client.version()}",
        ]
        for each in (await self.client.list(CRDS)).items:
            group = str(part(each, "spec").get("group", ""))
            if group.endswith(GROUPS):
                served = [str(v.get("name")) for v in items(each, "spec", "versions")]
                lines.append(f"{each['metadata']['name']}: {', '.join(served)}")
        self.put("versions.txt", "\n".join(lines) + "\n")

    async def workloads(self) -> None:
        """Our own Deployments, their pods, and what those logged."""
        every = (await self.client.list(DEPLOYMENTS)).items
        ours = [each for each in every if each["metadata"]["name"] in WORKLOADS]
        self.found[DEPLOYMENTS] = ours
        self.put_objects("objects/deployments.yaml", ours)
        pods: list[Object] = []
        for each in ours:
            labels = part(each, "spec", "selector", "matchLabels")
            chosen = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
            if chosen:
                space = each["metadata"]["namespace"]
                pods += (await self.client.list(PODS, space, labels=chosen)).items
        self.put_objects("objects/pods.yaml", pods)
        for pod in pods:
            for container in items(pod, "spec", "containers"):
                await self.log(Key.of(pod), str(container.get("name", "")))

    async def log(self, pod: Key, container: str) -> None:
        """The end of what a container logged."""
        path = PODS.path(pod.namespace, pod.name, "log")
        query = f"?container={container}&tailLines={LOG_LINES}&limitBytes={LOG_BYTES}"
        try:
            text = await self.client.raw("GET", path + query, deadline=20)
        except KubeError as error:
            self.notes.append(clean(f"the log of pod {pod}: {error}"))
            return
        name = f"logs/{pod.namespace}/{pod.name}/{container}.log"
        self.files[name] = clean_log(text.decode(errors="replace"))

    def namespaces(self, fleet: FleetView) -> Sequence[str]:
        """Where our own things are: Deployments, profiles, custom resources."""
        found = {each["metadata"]["namespace"] for each in self.found.get(DEPLOYMENTS, [])}
        found |= {row.namespace for row in fleet.installs}
        found |= {Key.of(each).namespace for each in self.found.get(PROFILES, [])}
        return sorted(found)

    async def settings(self, namespaces: Sequence[str]) -> None:
        """ConfigMaps of our Deployments' namespaces, and what is remembered of lost targets."""
        homes = {each["metadata"]["namespace"] for each in self.found.get(DEPLOYMENTS, [])}
        found = (await self.client.list(CONFIG_MAPS, labels=SELECTOR)).items
        for space in namespaces:
            if space in homes:
                found += (await self.client.list(CONFIG_MAPS, space)).items
        self.put_objects("objects/configmaps.yaml", {uid(each): each for each in found}.values())

    async def secrets(self, namespaces: Sequence[str]) -> None:
        """Which Secrets there are, and what their entries are called."""
        found: list[Object] = []
        for space in namespaces:
            found += (await self.client.list(SECRETS, space)).items
        self.put_objects("objects/secret-names.yaml", found)

    async def events(self, namespaces: Sequence[str]) -> None:
        """Events about our kinds, and all in our namespaces."""
        kinds = {each.kind for each in KINDS}
        found = [
            each
            for each in (await self.client.list(EVENTS)).items
            if part(each, "involvedObject").get("kind") in kinds
            or each["metadata"].get("namespace") in namespaces
        ]
        self.put_objects("objects/events.yaml", found)

    async def doctor(self, fleet: FleetView) -> None:
        """What is wrong with clusters, and what to do about it."""
        sick = [row.name for row in fleet.clusters if row.stand != "ok" and "/" not in row.name]
        gate = asyncio.Semaphore(AT_ONCE)

        async def examine(name: str) -> str:
            async with gate:
                try:
                    seen = await observe_hub(self.client, name)
                except KubeError as error:
                    return f"{name}\n{error}\n"
            lines = [each.line() for each in diagnose(seen, datetime.now(UTC))]
            return "\n".join([name, *lines, ""])

        texts = await asyncio.gather(*(examine(name) for name in sick[:MOST_DOCTORS]))
        self.put("doctor.txt", "\n".join(texts) or "All clusters are healthy.\n")


def uid(manifest: Object) -> str:
    return str(manifest["metadata"].get("uid", ""))
