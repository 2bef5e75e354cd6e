"""One object at a time: adopt it, apply it, or make it anew.

Every error of the server becomes a failure of that object. Jobs are the one kind that is deleted
and made anew when a field cannot be changed; for all others that would be a loss that was not
requested for, so they are reported.
"""

import asyncio
from datetime import UTC, datetime

from msgspec import Struct

from knfleet.api.core import NAMESPACES
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply import well_known
from knfleet.apply.act.refusals import reason_of, refusal
from knfleet.apply.applyset import ApplySet
from knfleet.apply.change_set import Action, FailureKind, ObjectResult, Outcome
from knfleet.apply.desired import Desired
from knfleet.apply.observe.collection import Collection, follow
from knfleet.apply.observe.live_state import AppliedObjects
from knfleet.apply.observe.metadata import ObservedObject, observe
from knfleet.apply.plan.field_sets import lost, set_of
from knfleet.apply.plan.steps import ApplyStep, StepAction, with_annotation
from knfleet.apply.plan.takeover import takeover_patch
from knfleet.apply.refs import JOB, NAMESPACE
from knfleet.kube.client.retry import backoff
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, Conflict, Invalid, KubeError, NotFound

PASSING = frozenset({FailureKind.CONFLICT, FailureKind.NOT_ESTABLISHED})
"""Failures that are over when the same is tried again."""
BACKOFF_SECONDS = 0.1
BACKOFF_LIMIT_SECONDS = 2


class Deadlines(Struct, frozen=True):
    """How long each kind of waiting may take."""

    passing_seconds: float = 10
    """For conflicts, and for kinds that the server is about to serve."""
    established_seconds: float = 30
    webhook_seconds: float = 30
    gone_seconds: float = 60


class Writer:
    """Writes the objects of one set."""

    def __init__(
        self,
        client: Client,
        applyset: ApplySet,
        applied_objects: AppliedObjects,
        deadlines: Deadlines,
    ) -> None:
        self.client = client
        self.applyset = applyset
        self.applied_objects = applied_objects
        self.deadlines = deadlines

    async def write(self, step: ApplyStep, *, is_new_kind: bool = False) -> Outcome:
        """Do to an object what must be done; a kind that is new may not be served yet."""
        ends = asyncio.get_running_loop().time() + self.deadlines.passing_seconds
        failures = 0
        while True:
            try:
                return await self.try_write(step)
            except KubeError as error:
                why = reason_of(error)
                failures += 1
                delay = backoff(failures, base=BACKOFF_SECONDS, limit=BACKOFF_LIMIT_SECONDS)
                is_passing = why in PASSING or (is_new_kind and why == FailureKind.UNKNOWN_KIND)
                if not is_passing or asyncio.get_running_loop().time() + delay > ends:
                    self.applied_objects.forget([step.desired.ref])
                    return refusal(step.desired.ref, error)
            await asyncio.sleep(delay)

    async def try_write(self, step: ApplyStep) -> ObjectResult:
        """The same, once."""
        desired, observed = step.desired, step.observed
        manifest = step.manifest
        if step.verdict == StepAction.ADOPT:
            await self.adopt(desired.resource, desired.ref.key)
        if step.verdict == StepAction.CREATE and desired.ref.group_kind == NAMESPACE:
            manifest = await self.found_namespace(manifest)
        try:
            result = await self.apply(desired.resource, manifest)
        except Invalid as error:
            if reason_of(error) != FailureKind.IMMUTABLE or desired.ref.group_kind != JOB:
                raise
            result = await self.recreate(desired)
            return self.done(step, result, Action.RECREATED)
        if observed is None:
            return self.done(step, result, Action.CREATED)
        is_same = result["metadata"]["resourceVersion"] == observed.version
        return self.done(step, result, Action.UNCHANGED if is_same else Action.CONFIGURED)

    async def apply(self, resource: Resource, manifest: Object) -> Object:
        """Apply an object; its metadata says all that is remembered."""
        return await self.client.apply(
            resource, manifest, manager=well_known.MANAGER, metadata_only=True
        )

    def done(self, step: ApplyStep, result: Object, action: Action) -> ObjectResult:
        """Remember what was written, and say it."""
        desired = step.desired
        self.applied_objects.note(
            desired.ref, desired.digest, result["metadata"]["resourceVersion"]
        )
        return ObjectResult(
            desired.ref,
            action,
            taken_from=losers(step.observed, observe(result)),
            fields=tuple(each.field for each in step.missing),
            adopted=step.verdict == StepAction.ADOPT,
        )

    async def adopt(self, resource: Resource, key: Key) -> None:
        """Make ours what the Go operator owns of an object."""
        fields = f"metadata.name={key.name}"
        found = await self.client.list(resource, key.namespace, fields=fields, metadata_only=True)
        for manifest in found.items:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            await self.client.patch(resource, key, takeover_patch(manifest, now))

    async def found_namespace(self, manifest: Object) -> Object:
        """Create a Namespace, and remember on it that we did; no other gets that mark.

        An apply cannot tell whether it created something, hence the separate request.
        """
        meta = manifest["metadata"]
        # The bare marks alone: fields that are created are not dropped by a later apply.
        bare: Object = {
            "apiVersion": manifest["apiVersion"],
            "kind": manifest["kind"],
            "metadata": {
                "name": meta["name"],
                "labels": {well_known.PART_OF: self.applyset.id},
                "annotations": {well_known.CREATED_BY: self.applyset.id},
            },
        }
        try:
            await self.client.create(NAMESPACES, bare)
        except AlreadyExists:
            return manifest
        return with_annotation(manifest, well_known.CREATED_BY, self.applyset.id)

    async def recreate(self, desired: Desired) -> Object:
        """Replace an object that cannot be changed."""
        resource, key = desired.resource, desired.ref.key
        try:
            live = await self.client.get(resource, key.name, key.namespace)
            uid = live["metadata"]["uid"]
            await self.client.delete(resource, key, uid=uid, propagation="Background")
            await follow(
                self.client,
                Collection(resource, key.namespace, "", f"metadata.name={key.name}", True),
                lambda found: all(each["metadata"]["uid"] != uid for each in found.values()),
                seconds=self.deadlines.gone_seconds,
            )
        except (NotFound, Conflict):
            pass  # another client deleted it, which is as good
        return await self.apply(resource, desired.manifest)


def losers(before: ObservedObject | None, after: ObservedObject) -> tuple[str, ...]:
    """Field managers that own less of an object than before."""
    if before is None:
        return ()
    later = {identity(entry): set_of(entry) for entry in after.others}
    names = {
        str(entry.get("manager", ""))
        for entry in before.others
        if entry.get("manager") not in {well_known.MANAGER, well_known.LEGACY_MANAGER}
        and lost(set_of(entry), later.get(identity(entry), {}))
    }
    return tuple(sorted(names))


def identity(entry: Object) -> tuple[str, str, str]:
    """What tells one entry of managedFields from another."""
    return entry.get("manager", ""), entry.get("operation", ""), entry.get("subresource", "")
