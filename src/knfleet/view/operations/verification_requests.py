"""What `knfleet verify` does: it asks the operator by an annotation, and waits for its answers."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from knfleet.api.durations import seconds as duration_seconds
from knfleet.api.fleet.fleet_names import FLEET_LABEL, KNATIVE_FLEETS
from knfleet.api.knative.conditions import READY, find
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.knative.verification import (
    LONGEST_SECONDS,
    VERIFIED_CONDITION,
    VerifyRequest,
    answer_of,
    checked,
    request_patch,
)
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import part
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, KubeError, NotFound
from knfleet.operator.kinds import PAUSED, annotations_of, is_paused
from knfleet.operator.status.status_builder import status_of
from knfleet.view.fleet_reader import HubObjects, fleet_of
from knfleet.view.fleet_watch import following
from knfleet.view.name_lookup import NotNamed, find_install

FLEET_KINDS = ("knativefleet", "knativefleets", "fleet")
AT_ONCE = 16
STEPS = 3
"""A step of a verification may take this part of the time."""


class VerifySubject(Struct, frozen=True, order=True):
    """A custom resource to be verified."""

    kind: str
    key: Key
    uid: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.key}"


class VerifyReport(Struct, frozen=True, rename="camel"):
    """What became of one verification."""

    name: str
    status: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}: {self.message}"


def request_for(image: str, text: str, timeout_seconds: float) -> VerifyRequest:
    """A new request; raises `BadVerifyRequest`."""
    seconds = min(max(timeout_seconds / STEPS, 1.0), LONGEST_SECONDS)
    made = VerifyRequest(
        request=secrets.token_hex(6), image=image, text=text, timeout=f"{seconds:.0f}s"
    )
    assert duration_seconds(made.timeout) is not None
    return checked(made)


async def verify(
    client: Client,
    name: str,
    request: VerifyRequest,
    *,
    timeout_seconds: float,
    report: Callable[[VerifyReport], None],
) -> list[VerifyReport]:
    """Verify what a name means; each result is reported as soon as it is there."""
    async with following(client) as live:
        chosen = await subjects(client, live.objects(), name)
        reports: dict[VerifySubject, VerifyReport] = {}
        failed = await ask(client, chosen, request)
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    found = manifests(live.objects())
                    for each in chosen:
                        result = failed.get(each) or result_of(each, found.get(each), request)
                        if each not in reports and result is not None:
                            reports[each] = result
                            report(result)
                    if len(reports) == len(chosen):
                        break
                    await live.changed()
        except TimeoutError:
            found = manifests(live.objects())
            for each in chosen:
                if each not in reports:
                    reports[each] = late(each, found.get(each), timeout_seconds)
                    report(reports[each])
    return [reports[each] for each in chosen]


async def subjects(client: Client, objects: HubObjects, name: str) -> list[VerifySubject]:
    """The custom resource of a name, or those of the fleet of that name; raises `NotNamed`."""
    kind, _, rest = name.partition("/")
    if kind.lower() in FLEET_KINDS and rest and "/" not in rest:
        return await of_fleet(client, objects, rest)
    try:
        row = find_install(fleet_of(objects, datetime.now(UTC)), name)
    except NotNamed:
        if "/" in name or not await is_fleet(client, name):
            raise
        return await of_fleet(client, objects, name)
    key = Key(row.namespace, row.name)
    return [each for each in manifests(objects) if (each.kind, each.key) == (row.kind, key)]


async def is_fleet(client: Client, name: str) -> bool:
    """Whether there is a KnativeFleet of a name."""
    try:
        await client.get(KNATIVE_FLEETS, name)
    except KubeError:
        return False
    return True


async def of_fleet(client: Client, objects: HubObjects, name: str) -> list[VerifySubject]:
    """The custom resources of a fleet; raises `NotNamed` when there is none."""
    found = [
        subject
        for subject, manifest in manifests(objects).items()
        if part(manifest, "metadata", "labels").get(FLEET_LABEL) == name
    ]
    if found:
        return sorted(found)
    if await is_fleet(client, name):
        raise NotNamed(
            f"KnativeFleet {name} has no KnativeServing or KnativeEventing yet; see knfleet fleet"
            f" status {name}"
        )
    raise NotNamed(f"there is no KnativeFleet {name}; knfleet fleet status lists those that are")


def manifests(objects: HubObjects) -> dict[VerifySubject, Object]:
    """All custom resources."""
    kinds = ((SERVINGS, objects.servings), (EVENTINGS, objects.eventings))
    return {
        VerifySubject(resource.kind, Key.of(each), each["metadata"].get("uid", "")): each
        for resource, found in kinds
        for each in found
    }


async def ask(
    client: Client, chosen: Sequence[VerifySubject], request: VerifyRequest
) -> dict[VerifySubject, VerifyReport]:
    """Ask for all verifications; those that could not be asked for."""
    slots = asyncio.Semaphore(AT_ONCE)
    failed: dict[VerifySubject, VerifyReport] = {}

    async def send(each: VerifySubject) -> None:
        async with slots:
            try:
                patch = request_patch(each.uid, request)
                await client.patch(resource_of(each), each.key, patch)
            except (NotFound, Conflict):
                failed[each] = VerifyReport(
                    str(each), "Unknown", "NotFound", "it was deleted meanwhile"
                )
            except KubeError as error:
                failed[each] = VerifyReport(str(each), "Unknown", "NotRequested", str(error))

    await asyncio.gather(*map(send, chosen))
    return failed


def resource_of(subject: VerifySubject) -> Resource:
    """How the kind of a custom resource is addressed."""
    return SERVINGS if subject.kind == SERVINGS.kind else EVENTINGS


def result_of(
    subject: VerifySubject, manifest: Object | None, request: VerifyRequest
) -> VerifyReport | None:
    """What the operator says of a request; None as long as that is nothing."""
    if manifest is None:
        return VerifyReport(str(subject), "Unknown", "NotFound", "it was deleted meanwhile")
    conditions = status_of(manifest).conditions
    answer = answer_of(annotations_of(manifest), conditions, request.request)
    if answer is None:
        return None
    return VerifyReport(str(subject), answer.status, answer.reason, answer.message)


def late(subject: VerifySubject, manifest: Object | None, seconds: float) -> VerifyReport:
    """What to say of a verification without a result."""
    text = f"no result within {seconds:g} s"
    if manifest is not None and is_paused(manifest):
        text += f"; the annotation {PAUSED} is true, so that the operator does nothing"
    elif manifest is not None:
        conditions = status_of(manifest).conditions
        ready, verified = find(conditions, READY), find(conditions, VERIFIED_CONDITION)
        if ready is None or ready.status != "True":
            said = "" if ready is None else ready.message or ready.reason
            text += f"; it is not Ready: {said or 'no operator has looked at it'}"
        elif verified is None or verified.status != "Unknown":
            text += "; no operator took the request: it must run this release"
        else:
            text += f"; {verified.message}"
    return VerifyReport(str(subject), "Unknown", "NoResult", text)
