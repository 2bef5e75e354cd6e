"""Tells people how a custom resource stands: its status when that changed, and Events."""

import asyncio

from knfleet.api.knative import conditions
from knfleet.api.knative.conditions import (
    INSTALL_SUCCEEDED,
    READY,
    TARGET_CLUSTER_RESOLVED,
    VERSION_MIGRATION_ELIGIBLE,
    Condition,
)
from knfleet.api.knative.resources import KnativeStatus
from knfleet.api.meta import Object
from knfleet.apply.change_set import Action, ChangeSet
from knfleet.apply.observe.repair import Repair
from knfleet.apply.well_known import PART_OF
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError, NotFound
from knfleet.operator.desired_objects import RenderResult
from knfleet.operator.installation_record import InstallationRecord
from knfleet.operator.kinds import KnativeKind
from knfleet.operator.status.messages import shortened
from knfleet.operator.status.status_builder import StatusBuilder, is_progress, patch_of, same
from knfleet.operator.uninstall.lost_target import policy_problem
from knfleet.runtime.events.recorder import Events
from knfleet.runtime.logs import log
from knfleet.runtime.metrics import Metrics

PROGRESS_SECONDS = 2.0
"""Between two writes that tell nothing but progress: others write the same object."""
ERRORS = (INSTALL_SUCCEEDED, TARGET_CLUSTER_RESOLVED, VERSION_MIGRATION_ELIGIBLE)
"""Conditions whose False is worth an Event; that pods are on their way is not."""


class StatusWriter:
    """Writes the status and the Events of one kind."""

    def __init__(self, kind: KnativeKind, client: Client, events: Events, metrics: Metrics) -> None:
        self.kind = kind
        self.client = client
        self.events = events
        self.repairs = metrics.repairs

    async def report(
        self, record: InstallationRecord, manifest: Object, builder: StatusBuilder
    ) -> float:
        """Write the status if it says something new, and tell what became of it in Events.

        Progress waits a while after the last write; the seconds after which to report it again.
        """
        before, after = record.status, builder.status
        if same(before, after) and not record.is_disputed:
            return 0.0
        now = asyncio.get_running_loop().time()
        wait = record.written_at + PROGRESS_SECONDS - now
        if wait > 0 and not record.is_disputed and is_progress(before, after):
            return wait
        record.written_at = now
        await self.write(record, manifest, after)
        return 0.0

    async def write(
        self, record: InstallationRecord, manifest: Object, after: KnativeStatus
    ) -> None:
        """Write a status, and tell what is new in it."""
        before = record.status
        # Remembered first: the watch may tell of the write before its answer is here.
        record.reported.append(after)
        try:
            await self.client.apply(
                self.kind.resource, patch_of(manifest, after), subresource="status"
            )
        except NotFound:
            return
        except KubeError as error:
            record.reported.append(before)
            self.events.warning(
                manifest, "UpdateFailed", f"Failed to update status for {name(manifest)}: {error}"
            )
            raise
        record.is_disputed = False
        self.report_event(manifest, before, after)

    def report_event(self, manifest: Object, before: KnativeStatus, after: KnativeStatus) -> None:
        """Tell what is new in a status."""
        for type_ in ERRORS:
            old, new = find(before, type_), find(after, type_)
            if new.status == "False" and not new.same(old) and new.reason != "Uninstalling":
                self.events.warning(manifest, "InternalError", new.message)
                log.error("condition is False", condition=type_, message=new.message)
        if find(after, READY).status == "True" and find(before, READY).status != "True":
            self.report_ready(manifest, before.version, after.version)

    def report_ready(self, manifest: Object, before: str, after: str) -> None:
        """Tell that everything is there and works."""
        reason, text = "Ready", f"{self.kind.title} {after} is installed and ready"
        if before and before != after:
            reason, text = "Upgraded", f"{self.kind.title} was changed from {before} to {after}"
        elif not before:
            reason = "Installed"
        self.events.normal(manifest, reason, text)
        log.info("ready", version=after, before=before)

    def report_warnings(
        self, record: InstallationRecord, manifest: Object, rendering: RenderResult
    ) -> None:
        """Tell of settings that do nothing, once each."""
        for warning in rendering.warnings:
            if record.is_news(warning):
                self.events.warning(manifest, "SettingWithoutEffect", warning)

    def report_policy(self, record: InstallationRecord, manifest: Object) -> None:
        """Tell, once, that the policy for a lost target is unknown."""
        problem = policy_problem(manifest)
        if problem and record.is_news(problem):
            self.events.warning(manifest, "SettingWithoutEffect", problem)

    def report_changes(
        self, record: InstallationRecord, manifest: Object, changes: ChangeSet
    ) -> None:
        """Tell what was taken from others, once, and count the rest."""
        if changes.wrote or not changes.settled:
            log.info("applied", changes=str(changes))
        adopted = [str(change.ref) for change in changes.changes if change.adopted]
        if adopted:
            text = f"{len(adopted)} objects were taken over from the Knative Operator"
            self.events.normal(manifest, "Adopted", text)
        for change in changes.changes:
            if change.taken_from:
                others = ", ".join(change.taken_from)
                text = (
                    f"{change.ref}: fields that the field managers {others} owned were taken over"
                )
                if record.is_news(text):
                    self.events.normal(manifest, "FieldsTakenOver", text)

    def report_pruned(self, manifest: Object, changes: ChangeSet) -> None:
        """Tell what is gone that is no longer wanted."""
        gone = [str(ref) for ref in changes.by(Action.DELETED)]
        if gone:
            text = f"{len(gone)} objects that are no longer wanted were deleted: "
            self.events.normal(manifest, "Pruned", text + ", ".join(shortened(gone)))
            log.info("pruned", changes=str(changes))
        self.report_copies(manifest, changes)

    def report_copies(self, manifest: Object, changes: ChangeSet) -> None:
        """Tell which objects were not deleted because others made them."""
        copies = [str(change.ref) for change in changes.changes if change.copied]
        if copies:
            text = (
                f"{', '.join(shortened(copies))}: not deleted, because another client made it as a"
                f" copy of a managed object; the label {PART_OF} was taken off"
            )
            self.events.warning(manifest, "NotRemoved", text)

    def report_repair(self, manifest: Object, repair: Repair) -> None:
        """Tell what others changed, and that it is repaired; or that they do not leave it."""
        failed = [each for each in repair.changes.failures if each.ref == repair.drift.ref]
        result = "repaired"
        if repair.conflict is not None:
            result = "fight"
            self.events.warning(manifest, "DriftConflict", f"{repair.conflict}; repairs are slowed")
        elif failed:
            result = "failed"
            text = f"{repair.drift}, and cannot be repaired: {failed[0].message}"
            self.events.warning(manifest, "RepairFailed", text)
        else:
            self.events.normal(manifest, "Repaired", f"{repair.drift}; it is repaired")
        self.repairs.labels(self.kind.resource.kind, result).inc()
        log.info("repaired", drift=str(repair.drift), conflict=str(repair.conflict or ""))


def find(status: KnativeStatus, type_: str) -> Condition:
    """What a status says of one type."""
    found = conditions.find(status.conditions, type_)
    return found if found is not None else Condition(type=type_, status="Unknown")


def name(manifest: Object) -> str:
    """The name of an object in quotes, as Events name it."""
    return f'"{manifest["metadata"]["name"]}"'
