"""Lists of objects put on a cluster, and taken off again, as `init` and `join` need it."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from knfleet.api.core import CRDS, DEPLOYMENTS, NAMESPACES, PODS
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import items, part
from knfleet.apply.observe.collection import Collection, follow
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError, NotFound
from knfleet.runtime.logs import log

ESTABLISHED_SECONDS = 30.0
Tell = Callable[[str], None]


class WaitTimeout(Exception):
    """Something did not become as it should before the time was up."""


async def apply_all(
    client: Client, objects: Sequence[Object], *, dry_run: bool = False
) -> list[str]:
    """Put objects on a cluster, CRDs first and the rest in order; the name of each."""
    crds = [each for each in objects if each["kind"] == CRDS.kind]
    rest = [each for each in objects if each["kind"] != CRDS.kind]
    await asyncio.gather(*(client.apply(CRDS, each, dry_run=dry_run) for each in crds))
    if not dry_run:
        await established(client, [each["metadata"]["name"] for each in crds])
        for each in rest:
            resource = await client.discovery.resource(each["apiVersion"], each["kind"])
            await client.apply(resource, each)
    return [called(each) for each in objects]


def called(manifest: Object) -> str:
    """Kind and name of an object."""
    return f"{manifest['kind']} {Key.of(manifest)}"


async def established(client: Client, names: Sequence[str]) -> None:
    """Return when the server serves the kinds of these CRDs."""
    wanted = {Key("", name) for name in names}

    def are_served(found: Mapping[Key, Object]) -> bool:
        return all(key in found and is_true(found[key], "Established") for key in wanted)

    found = await follow(client, Collection(CRDS), are_served, seconds=ESTABLISHED_SECONDS)
    missing = [key.name for key in wanted if key not in found]
    if missing:
        raise WaitTimeout(f"{client.cluster}: not served: {', '.join(missing)}")


def is_true(manifest: Object, type_: str) -> bool:
    """Whether an object has a condition that is True."""
    conditions = items(manifest, "status", "conditions")
    return any(each["type"] == type_ and each["status"] == "True" for each in conditions)


async def remove_all(client: Client, objects: Sequence[Object]) -> list[str]:
    """Take objects off a cluster, the last first; the name of each that was there."""
    removed: list[str] = []
    for each in reversed(objects):
        try:
            resource = await client.discovery.resource(each["apiVersion"], each["kind"])
            await client.delete(resource, Key.of(each), propagation="Background")
        except NotFound:
            continue
        except KubeError as error:
            log.debug("not removed", object=called(each), error=str(error))
            if getattr(error, "code", 0) or not is_unknown(error):
                raise
            continue
        removed.append(called(each))
    return removed


def is_unknown(error: KubeError) -> bool:
    """Whether an error says that a kind is not served."""
    return "no matches for kind" in str(error) or "not serve" in str(error)


async def gone(client: Client, objects: Sequence[Object], *, seconds: float) -> list[str]:
    """Wait until namespaces and CRDs of a list are gone; those that are not."""
    ends = time.monotonic() + seconds
    left: list[str] = []
    for resource in (NAMESPACES, CRDS):
        wanted = {Key.of(each) for each in objects if each["kind"] == resource.kind}
        if not wanted:
            continue
        found = await follow(
            client,
            Collection(resource, metadata_only=True),
            lambda there, wanted=wanted: not wanted.intersection(there),
            seconds=max(1.0, ends - time.monotonic()),
        )
        left += [f"{resource.kind} {key}" for key in sorted(wanted.intersection(found))]
    return left


async def available(client: Client, key: Key, *, seconds: float) -> None:
    """Return when a Deployment is available; raises `WaitTimeout` with what its pods say."""

    def is_up(found: Mapping[Key, Object]) -> bool:
        deployment = found.get(key)
        if deployment is None:
            return False
        meta, status = deployment["metadata"], part(deployment, "status")
        is_seen = status.get("observedGeneration", 0) >= meta.get("generation", 0)
        return bool(is_seen and status.get("readyReplicas") and status.get("updatedReplicas"))

    fields = f"metadata.name={key.name}"
    collection = Collection(DEPLOYMENTS, key.namespace, fields=fields)
    found = await follow(client, collection, is_up, seconds=seconds)
    if not is_up(found):
        why = await pod_problems(client, key)
        raise WaitTimeout(f"Deployment {key} is not available after {seconds:.0f} s: {why}")


async def pod_problems(client: Client, deployment: Key) -> str:
    """Why the pods of a Deployment are not ready."""
    found = await client.list(PODS, deployment.namespace, labels=f"app={deployment.name}")
    conditions: list[str] = []
    for pod in found.items:
        for container in items(pod, "status", "containerStatuses"):
            now, before = part(container, "state"), part(container, "lastState")
            for detail in (
                part(now, "waiting"),
                part(now, "terminated"),
                part(before, "terminated"),
            ):
                if detail:
                    reason = detail.get("message") or detail.get("reason")
                    conditions.append(f"pod {pod['metadata']['name']}: {reason}")
        conditions += [
            f"pod {pod['metadata']['name']}: {each.get('message', each['reason'])}"
            for each in items(pod, "status", "conditions")
            if each["status"] == "False" and each.get("reason")
        ]
    return "; ".join(dict.fromkeys(conditions)) or "it has no pods"


async def wait_for_condition(
    client: Client,
    resource: Resource,
    name: str,
    wanted: Mapping[str, str],
    *,
    seconds: float,
) -> None:
    """Return when conditions have these statuses for the object's generation."""
    key = Key("", name)

    def holds(found: Mapping[Key, Object]) -> bool:
        if (manifest := found.get(key)) is None:
            return False
        return not differing(manifest, wanted)

    collection = Collection(resource, fields=f"metadata.name={name}")
    found = await follow(client, collection, holds, seconds=seconds)
    if key not in found:
        raise WaitTimeout(f"{resource.kind} {name} is not there after {seconds:.0f} s")
    if problems := differing(found[key], wanted):
        raise WaitTimeout(f"{resource.kind} {name} after {seconds:.0f} s: {'; '.join(problems)}")


def differing(manifest: Object, wanted: Mapping[str, str]) -> list[str]:
    """What conditions say that should say something else."""
    conditions = {each["type"]: each for each in items(manifest, "status", "conditions")}
    seen = part(manifest, "status").get("observedGeneration", 0)
    if seen != manifest["metadata"].get("generation", 0):
        return ["no controller has reconciled it yet"]
    return [
        f"{type_} is {conditions.get(type_, {}).get('status', 'not set')}"
        f" ({conditions.get(type_, {}).get('message', '')})"
        for type_, status in wanted.items()
        if conditions.get(type_, {}).get("status") != status
    ]
