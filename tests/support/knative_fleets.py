"""KnativeFleets on a real API server: profiles, and a stand-in for the operator on the clusters."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from knfleet.api.core import NAMESPACES
from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.conditions import timestamp
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.knative.verification import VERIFIED, VERIFY, parse_request
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import items, part
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, ApiError, NotFound
from knfleet.operator.kinds import PAUSED
from testbed.waiting import PATIENCE_SECONDS, until
from tests.support.placements import thing

SPACE = "profiles"
SERVING = "knative-serving"


async def add_profiles(client: Client, names: Iterable[str], **labels: str) -> None:
    """Healthy clusters of another manager."""
    for name in (SPACE, SERVING, "knative-eventing"):
        with suppress(AlreadyExists):
            await client.create(NAMESPACES, thing(NAMESPACES, name))
    for name in names:
        made = thing(PROFILES, name, SPACE, spec={"clusterManager": {"name": "other"}})
        made["metadata"]["labels"] = labels
        await client.create(PROFILES, made)
        await set_health(client, name)


async def set_health(client: Client, name: str, status: str = "True") -> None:
    """What the manager of a cluster says of it."""
    condition = {
        "type": "ControlPlaneHealthy",
        "status": status,
        "reason": "Tested",
        "message": "",
        "lastTransitionTime": timestamp(datetime.now(UTC)),
    }
    properties = [{"name": "zone", "value": f"zone-{name}"}]
    status_ = {"conditions": [condition], "properties": properties}
    await client.patch(PROFILES, Key(SPACE, name), {"status": status_}, subresource="status")


def fleet(name: str = "prod", version: str = "1.22.0", **spec: Any) -> Object:
    """A fleet of all profiles."""
    return thing(
        KNATIVE_FLEETS,
        name,
        spec={
            "clusters": {"namespace": SPACE, "selector": {}},
            "serving": {"spec": {"version": version, "ingress": {}}},
            **spec,
        },
    )


async def set_version(client: Client, version: str, name: str = "prod") -> None:
    """Change the version of a fleet."""
    patch = {"spec": {"serving": {"spec": {"version": version}}}}
    await client.patch(KNATIVE_FLEETS, Key("", name), patch)


async def children(client: Client, resource: Resource = SERVINGS) -> dict[str, Object]:
    """The children of all fleets, by cluster."""
    found = await client.list(resource, labels="fleet.knfleet.dev/fleet")
    return {each["spec"]["clusterProfileRef"]["name"]: each for each in found.items}


def version_of(child: Object) -> str:
    """The version that a child asks for."""
    return child["spec"].get("version", "")


async def have(client: Client, **versions: str) -> None:
    """Wait until exactly these clusters have a child, and in these versions."""
    wanted = {name.replace("_", "-"): version for name, version in versions.items()}
    seen: dict[str, str] = {}

    async def do() -> bool:
        seen.clear()
        seen.update({name: version_of(each) for name, each in (await children(client)).items()})
        return seen == wanted

    try:
        await until(do, f"children are {wanted}")
    except AssertionError as error:
        raise AssertionError(f"{error}; there are {seen}") from None


async def reports(
    client: Client, reason: str, name: str = "prod", type_: str = "RolledOut", *, number: int = 0
) -> Object:
    """Wait until a fleet reports a reason; the fleet."""
    found: Object = {}

    async def does() -> bool:
        found.clear()
        found.update(await client.get(KNATIVE_FLEETS, name))
        conditions = items(found, "status", "conditions")
        rollout = part(found, "status", "rollout")
        return any(
            each["type"] == type_
            and each["reason"] == reason
            and each["observedGeneration"] == found["metadata"]["generation"]
            for each in conditions
        ) and (not number or rollout.get("number") == number)

    try:
        await until(does, f"fleet {name} reports {reason}")
    except AssertionError as error:
        raise AssertionError(f"{error}; {found.get('status')}") from None
    return found


async def remove_all(client: Client, *names: str) -> None:
    """Delete fleets, children and profiles, whatever state they are in."""
    for each in (await client.list(KNATIVE_FLEETS)).items:
        with suppress(NotFound):
            await client.delete(KNATIVE_FLEETS, Key("", each["metadata"]["name"]))

    async def gone() -> bool:
        return not (await client.list(KNATIVE_FLEETS)).items

    await until(gone, "the fleets are gone")
    for resource in (SERVINGS, EVENTINGS):
        for each in (await client.list(resource)).items:
            with suppress(NotFound):
                await client.delete(resource, Key.of(each))
    for each in (await client.list(PROFILES, SPACE)).items:
        with suppress(NotFound):
            await client.delete(PROFILES, Key.of(each))


class OperatorDouble:
    """Reports what an operator would: children become ready, unless a test says otherwise."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.broken: set[tuple[str, str]] = set()
        """Cluster and version that never become ready; an empty version is any."""
        self.refused: set[tuple[str, str]] = set()
        """Cluster and version that an operator does not even try."""
        self.lost: set[str] = set()
        """Clusters that cannot be reached."""
        self.verdicts: dict[str, tuple[str, str]] = {}
        """By cluster: status and reason of the answers to verifications."""
        self.held: set[str] = set()
        """Clusters whose children wait."""
        self.informers = [Informer(client, each) for each in (SERVINGS, EVENTINGS)]
        self.changed = asyncio.Event()
        self.seen = asyncio.Event()
        """Set with every change of a child, for those who wait for one."""
        self.changing: set[str] = set()
        self.largest = 0
        """The most clusters that were being changed at once."""
        self.versions: dict[str, list[str]] = {}
        """The versions that each cluster was given, in their order."""
        for informer in self.informers:
            informer.on_change(self.note)

    def note(self, change: StoreChange) -> None:
        """Remember what was changed."""
        self.changed.set()
        self.seen.set()
        if change.new is not None:
            name = cluster_of(change.new)
            given = self.versions.setdefault(name, [])
            if not given or given[-1] != version_of(change.new):
                given.append(version_of(change.new))
        self.changing = {
            cluster_of(each)
            for informer in self.informers
            for each in informer.items()
            if not is_paused(each)
            and not is_ready(each)
            and (cluster_of(each), version_of(each)) not in self.broken | self.refused
        }
        self.largest = max(self.largest, len(self.changing))

    async def run(self) -> None:
        """Report for ever."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run())
            group.create_task(self.report_all())

    async def report_all(self) -> None:
        """Report whenever something changed."""
        while True:
            await self.changed.wait()
            self.changed.clear()
            for informer in self.informers:
                for each in informer.items():
                    with suppress(ApiError):
                        await self.report(informer.resource, each)

    def poke(self) -> None:
        """Look at all children again."""
        self.changed.set()

    async def report(self, resource: Resource, child: Object) -> None:
        """Report what became of one child."""
        name = cluster_of(child)
        if is_paused(child) or name in self.held:
            return
        status = self.status_of(child)
        old = part(child, "status")
        if facts(old) != facts(status):
            await self.client.patch(
                resource, Key.of(child), {"status": status}, subresource="status"
            )
        if request := self.verified(child):
            patch = {"metadata": {"annotations": {VERIFIED: request}}}
            await self.client.patch(resource, Key.of(child), patch)

    def verified(self, child: Object) -> str:
        """The verification that is answered now, if one is asked for that was not."""
        annotations = part(child, "metadata", "annotations")
        if cluster_of(child) not in self.verdicts or VERIFY not in annotations:
            return ""
        request = parse_request(annotations[VERIFY]).request
        return "" if annotations.get(VERIFIED) == request else request

    def status_of(self, child: Object) -> Object:
        """What an operator would report."""
        name, wanted = cluster_of(child), version_of(child)
        installed = part(child, "status").get("version", "")
        is_refused = (name, wanted) in self.refused
        is_broken = is_refused or bool(self.broken & {(name, wanted), (name, "")})
        is_lost = name in self.lost
        ready = not is_broken and not is_lost
        now = timestamp(datetime.now(UTC))

        def condition(type_: str, *, good: bool, reason: str) -> Object:
            fields = {"type": type_, "status": "True" if good else "False"}
            more = {} if good else {"reason": reason, "message": f"{reason} of {name}"}
            return {**fields, **more, "lastTransitionTime": now}

        verdict, why = self.verdicts.get(name, ("", ""))
        told = {"type": "Verified", "status": verdict, "reason": why, "message": f"{why} of {name}"}
        is_asked = verdict and VERIFY in part(child, "metadata", "annotations")
        verified = [{**told, "lastTransitionTime": now}] if is_asked else []
        return {
            "observedGeneration": child["metadata"]["generation"],
            "version": wanted if ready else installed,
            "conditions": [
                *verified,
                condition("Ready", good=ready, reason="Broken"),
                condition("TargetClusterResolved", good=not is_lost, reason="Lost"),
                condition("VersionMigrationEligible", good=not is_refused, reason="Refused"),
            ],
        }


def cluster_of(child: Object) -> str:
    """The cluster of a child."""
    return part(child, "spec", "clusterProfileRef").get("name", "")


def is_paused(child: Object) -> bool:
    """Whether an operator leaves a child alone."""
    return part(child, "metadata", "annotations").get(PAUSED) == "true"


def is_ready(child: Object) -> bool:
    """Whether a child is ready as it is now."""
    status = part(child, "status")
    return status.get("observedGeneration") == child["metadata"]["generation"] and any(
        each["type"] == "Ready" and each["status"] == "True" for each in items(status, "conditions")
    )


def facts(status: Object) -> tuple[object, ...]:
    """What of a status is worth a write."""
    conditions = [
        (each["type"], each["status"], each.get("reason")) for each in items(status, "conditions")
    ]
    return status.get("observedGeneration"), status.get("version"), conditions


@asynccontextmanager
async def operated(client: Client) -> AsyncGenerator[OperatorDouble, None]:
    """A hub whose children an operator works on."""
    made = OperatorDouble(client)
    task = asyncio.create_task(made.run())
    try:
        for informer in made.informers:
            await asyncio.wait_for(informer.synced.wait(), PATIENCE_SECONDS)
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
