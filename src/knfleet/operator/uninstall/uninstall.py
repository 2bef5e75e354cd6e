"""Removing what a custom resource has installed, wherever that is, and then letting it go.

It goes on after any restart, because everything that it needs is on the hub and on the target. What
holds it up is reported in a condition, with what to do. A target that is lost is waited for;
a user who knows better sets an annotation, and then a tombstone remembers what to clean up.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Key, Object
from knfleet.api.schema import DecodeError, decode
from knfleet.apply.change_set import ChangeSet
from knfleet.clusters.access_errors import CLUSTER_PROFILE_NOT_FOUND, CLUSTER_PROFILE_NOT_READY
from knfleet.clusters.anchor import AnchorError, Anchors, OtherHub
from knfleet.kube.errors import KubeError, NetworkError
from knfleet.operator.installation import Installation
from knfleet.operator.installation_record import InstallationRecord, PassInterrupted
from knfleet.operator.installation_registry import InstallationRegistry
from knfleet.operator.kinds import (
    TARGET_UID,
    KnativeKind,
    annotations_of,
    profile_of,
    was_installed,
)
from knfleet.operator.status import messages
from knfleet.operator.status.status_builder import StatusBuilder
from knfleet.operator.status.status_writer import StatusWriter
from knfleet.operator.targets.targets import TargetError, Targets
from knfleet.operator.uninstall.finalizer import (
    Finalizers,
    delete_parent,
    legacy_objects,
    uninstall,
)
from knfleet.operator.uninstall.lost_target import (
    FORCED_ATTEMPTS,
    ON_LOST_TARGET,
    LostPolicy,
    grace_of,
    lost_since,
    policy_of,
    policy_problem,
    remaining_seconds,
)
from knfleet.operator.uninstall.tombstones import Tombstone, Tombstones
from knfleet.release.releases import Releases
from knfleet.runtime.controller import Result
from knfleet.runtime.logs import log

SOON_SECONDS = 1.0


class Uninstaller:
    """Removes what custom resources of one kind have installed."""

    def __init__(
        self,
        kind: KnativeKind,
        installations: InstallationRegistry,
        *,
        releases: Releases,
        tombstones: Tombstones,
        now: Callable[[], datetime],
    ) -> None:
        self.kind = kind
        self.installations = installations
        self.targets: Targets = installations.targets
        self.status_writer: StatusWriter = installations.status_writer
        self.releases = releases
        self.tombstones = tombstones
        self.now = now
        self.finalizers = Finalizers(kind, self.status_writer.client, self.status_writer.events)

    async def remove(
        self, record: InstallationRecord, manifest: Object, builder: StatusBuilder, *, owns: bool
    ) -> Result:
        """Uninstall what a custom resource has installed, then let it go."""
        if not owns or not self.finalizers.on(manifest):
            return await self.remove_finalizer(record, manifest)
        try:
            problem = await self.attempt(record, manifest, builder)
        except OtherHub as error:
            self.status_writer.events.warning(
                manifest, "NotRemoved", f"nothing is removed: {error}"
            )
            return await self.remove_finalizer(record, manifest)
        except TargetError as error:
            return await self.lost(record, manifest, builder, error)
        if not problem:
            return await self.finish(record, manifest)
        if policy_of(manifest) is LostPolicy.FORCE and record.failures >= FORCED_ATTEMPTS - 1:
            return await self.abandon(record, manifest, problem)
        builder.not_uninstalled(problem)
        await self.status_writer.report(record, manifest, builder)
        return Result.after(record.retry_seconds())

    async def attempt(
        self, record: InstallationRecord, manifest: Object, builder: StatusBuilder
    ) -> str:
        """Delete everything that belongs to a custom resource; what is in the way, if anything."""
        try:
            async with record.limited():
                problem = await self.try_uninstall(record, manifest, builder)
        except PassInterrupted:
            problem = "it was interrupted"
        if problem:
            # When the target is the problem, that must be reported.
            await self.targets.reach(manifest)
        return problem

    async def try_uninstall(
        self, record: InstallationRecord, manifest: Object, builder: StatusBuilder
    ) -> str:
        """The same, as far as it goes without an interruption."""
        try:
            changes = await self.uninstall(record, manifest, builder)
        except OtherHub:
            raise
        except AnchorError as error:
            return str(error) if was_installed(manifest) else ""
        except KubeError as error:
            if isinstance(error, NetworkError) and profile_of(manifest) is None:
                raise
            return str(error)
        return "" if changes.settled else messages.left_text(changes)

    async def uninstall(
        self, record: InstallationRecord, manifest: Object, builder: StatusBuilder
    ) -> ChangeSet:
        """Delete everything that belongs to a custom resource."""
        target = await self.targets.find(manifest)
        builder.resolved()
        if record.status.manifests and not record.failures:
            builder.uninstalling(f"removing {self.kind.title} {record.status.version}".rstrip())
            await self.status_writer.report(record, manifest, builder)
        installation = self.installations.of(record, manifest, target)
        installation.is_leaving = True
        try:
            cr = decode(manifest, self.kind.type)
            legacy = await legacy_objects(self.releases, cr)
        except DecodeError:
            legacy = []
        changes = await uninstall(installation, legacy)
        self.status_writer.report_copies(manifest, changes)
        if changes.settled and target.root is not None:
            await remove_anchor(installation)
        log.info("uninstalled", changes=str(changes))
        return changes

    async def lost(
        self,
        record: InstallationRecord,
        manifest: Object,
        builder: StatusBuilder,
        error: TargetError,
    ) -> Result:
        """Report that the target is lost, unless nothing is installed or it may be orphaned."""
        record.end()
        if not was_installed(manifest):
            log.info("nothing was installed", error=str(error))
            return await self.remove_finalizer(record, manifest)
        left = remaining_seconds(manifest, self.now())
        if policy_of(manifest) is LostPolicy.FORCE:
            return await self.abandon(record, manifest, str(error))
        if not left and error.is_lasting:
            return await self.orphan(record, manifest, error)
        builder.not_resolved(error.reason, waiting_text(manifest, error))
        await self.status_writer.report(record, manifest, builder)
        # What has not passed yet by its own clock is looked at again, not waited for without end.
        return Result.after(min(record.retry_seconds(), max(left, SOON_SECONDS)))

    async def orphan(
        self, record: InstallationRecord, manifest: Object, error: TargetError
    ) -> Result:
        """Let a custom resource go whose target is lost, and remember what is left there."""
        tombstone = tombstone_of(manifest, timestamp(self.now()))
        name = await self.tombstones.write(tombstone)
        text = (
            f"{self.kind.title} is left on the cluster of ClusterProfile {tombstone.profile}, which"
            f" is lost: {error}. ConfigMap {name} remembers it: should the cluster return, it is"
            " cleaned"
        )
        self.status_writer.events.warning(manifest, "Orphaned", text)
        log.warning("orphaned", tombstone=str(name), profile=tombstone.profile)
        return await self.remove_finalizer(record, manifest)

    async def abandon(self, record: InstallationRecord, manifest: Object, problem: str) -> Result:
        """Let a custom resource go by force, whatever is left on its target."""
        target = profile_of(manifest)
        place = f"the cluster of ClusterProfile {target}" if target else "this cluster"
        text = (
            f"{self.kind.title} may be left on {place}, as {ON_LOST_TARGET} is {LostPolicy.FORCE}:"
            f" {problem}. Nothing remembers it: should it matter, remove it by hand"
        )
        self.status_writer.events.warning(manifest, "Abandoned", text)
        log.warning("abandoned", profile=str(target or ""), problem=problem)
        return await self.remove_finalizer(record, manifest)

    async def finish(self, record: InstallationRecord, manifest: Object) -> Result:
        """Nothing is left: the custom resource may go."""
        installation = record.installation
        again = await self.remove_finalizer(record, manifest)
        if installation is not None and installation.target.root is None:
            await delete_parent(installation)
        return again

    async def remove_finalizer(self, record: InstallationRecord, manifest: Object) -> Result:
        """Take off the finalizer, and forget the rest."""
        if self.finalizers.on(manifest):
            await self.finalizers.remove(manifest)
        record.end()
        return Result.never()


async def remove_anchor(installation: Installation) -> None:
    """Delete the anchor, as the last thing on a spoke."""
    root = installation.target.root
    assert root is not None
    anchors = Anchors(installation.client)
    anchor = await anchors.find(root)
    if anchor is not None:
        await anchors.remove(root.key, anchor)


def tombstone_of(manifest: Object, when: str) -> Tombstone:
    """What must be remembered of a custom resource that goes before its objects do."""
    key = Key.of(manifest)
    return Tombstone(
        kind=manifest["kind"],
        namespace=key.namespace,
        name=key.name,
        profile=str(profile_of(manifest)),
        target_uid=annotations_of(manifest).get(TARGET_UID, ""),
        when=when,
    )


def waiting_text(manifest: Object, error: TargetError) -> str:
    """Why a removal waits, and what can be done about it."""
    kind, key = manifest["kind"], Key.of(manifest)
    since = manifest["metadata"].get("deletionTimestamp", "")
    advice = "" if error.reason == CLUSTER_PROFILE_NOT_READY else "bring the cluster back"
    if error.reason == CLUSTER_PROFILE_NOT_FOUND:
        advice = f"create the ClusterProfile {profile_of(manifest)} again"
    annotate = (
        f"kubectl annotate {kind.lower()} -n {key.namespace} {key.name}"
        f" {ON_LOST_TARGET}={LostPolicy.ORPHAN} --overwrite"
    )
    parts = [
        str(error).rstrip("."),
        f"the removal waits since {since} and continues automatically"
        + (f": {advice}" if advice else ""),
        f"if the cluster no longer exists, run: {annotate}",
    ]
    if policy_of(manifest) is LostPolicy.DEFER:
        since = lost_since(manifest)
        after = timedelta(seconds=grace_of(manifest))
        ends = f"at {timestamp(since + after)}" if since else f"after {after}"
        parts.insert(
            2, f"{ends} the {kind} goes without it, and a tombstone remembers what is left"
        )
    if problem := policy_problem(manifest):
        parts.append(problem)
    return "; ".join(parts)
