"""One pass over one custom resource: make its target match it, and say how it stands.

    decode → may it migrate → target → release and rendering → apply → readiness → prune

Each step hands a value to the next; the first that cannot ends the pass, and its words become a
condition. A pass may be cut off anywhere and begun again. When nothing changed, it asks the target
nothing and writes nothing.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from knfleet.api.knative.resources import Knative
from knfleet.api.knative.verification import DEFAULT_IMAGE
from knfleet.api.meta import Key, Object, Request
from knfleet.api.schema import DecodeError, decode
from knfleet.apply.change_set import ChangeSet
from knfleet.apply.observe.readiness import SetReadiness
from knfleet.apply.refs import Ref
from knfleet.clusters.access_errors import AccessError
from knfleet.clusters.anchor import AnchorError, OtherHub
from knfleet.kube.cache.informer import Informer
from knfleet.kube.errors import Conflict, KubeError, NetworkError
from knfleet.operator.desired_objects import Renderer, RenderResult
from knfleet.operator.installation_record import InstallationRecord, PassInterrupted
from knfleet.operator.installation_registry import AT_ONCE_SECONDS, InstallationRegistry
from knfleet.operator.kinds import (
    BY_PLACE,
    PAUSED,
    KnativeKind,
    is_deleting,
    is_paused,
    place_of,
    profile_of,
    uid_of,
)
from knfleet.operator.settings import POLL_SECONDS
from knfleet.operator.status import messages
from knfleet.operator.status.status_builder import StatusBuilder, status_of
from knfleet.operator.status.status_writer import StatusWriter
from knfleet.operator.targets.target_claims import holder, same
from knfleet.operator.targets.targets import Target, TargetError, Targets
from knfleet.operator.uninstall.tombstones import Tombstones
from knfleet.operator.uninstall.uninstall import Uninstaller
from knfleet.operator.verification.verify_registry import VerificationRegistry
from knfleet.release.errors import BadManifest, FetchFailed, NotEligible, ReleaseError
from knfleet.release.upgrade_path import check_migration
from knfleet.render.errors import RenderError
from knfleet.runtime.controller import Result
from knfleet.runtime.logs import log

RELEASE_SECONDS = 60.0
"""When to look again for release files that are not there."""
GATED_SECONDS = 1.0
"""When to look again whether a webhook answers, beyond what watches tell."""
REFUSED_SECONDS = 30.0
"""When to look again whether another hub has given up its place."""


def utc_now() -> datetime:
    """The time of conditions."""
    return datetime.now(UTC)


class Reconciler:
    """Makes targets match the custom resources of one kind."""

    def __init__(
        self,
        kind: KnativeKind,
        resources: Informer,
        *,
        renderer: Renderer,
        installations: InstallationRegistry,
        tombstones: Tombstones,
        poll_seconds: float = POLL_SECONDS,
        verify_image: str = DEFAULT_IMAGE,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.kind = kind
        self.resources = resources
        self.installations = installations
        self.targets: Targets = installations.targets
        self.renderer = renderer
        self.status_writer: StatusWriter = installations.status_writer
        self.poll_seconds = poll_seconds
        self.now = now
        self.uninstaller = Uninstaller(
            kind, installations, releases=renderer.releases, tombstones=tombstones, now=now
        )
        self.finalizers = self.uninstaller.finalizers
        self.verifications = VerificationRegistry(
            kind, self.status_writer.client, installations.look_again, image=verify_image
        )
        self.records: dict[Key, InstallationRecord] = {}
        self.claimed: set[str] = set()

    async def reconcile(self, request: Request) -> Result:
        """Bring one custom resource a step further, when it is its turn."""
        async with self.installations.starts.slot():
            return await self.reconcile_resource(request)

    async def reconcile_resource(self, request: Request) -> Result:
        """The same, now."""
        manifest = self.resources.get(request.key)
        if manifest is None:
            self.forget(request.key)
            return Result.never()
        record = self.record(manifest)
        record.is_disputed = not record.has_reported(status_of(manifest))
        if record.is_triggered(manifest):
            self.recheck(record, manifest)
        first = self.first(manifest)
        try:
            if is_deleting(manifest):
                builder = self.status_builder(record, manifest)
                owns = same(first, manifest)
                return await self.uninstaller.remove(record, manifest, builder, owns=owns)
            if not same(first, manifest):
                return await self.refuse(record, manifest, first)
            self.claimed.add(record.uid)
            if is_paused(manifest):
                return await self.pause(record, manifest)
            return await self.install(record, await self.finalizers.add(manifest))
        except Conflict:
            # Another client wrote the custom resource meanwhile; what they wrote is on its way
            # here.
            return Result.after(AT_ONCE_SECONDS)

    def record(self, manifest: Object) -> InstallationRecord:
        """What is remembered of a custom resource; another one of the same name is a new one."""
        key = Key.of(manifest)
        record = self.records.get(key)
        if record is None or record.uid != uid_of(manifest):
            self.forget(key)
            record = self.records[key] = InstallationRecord(manifest)
        return record

    def forget(self, key: Key) -> None:
        """A custom resource is gone."""
        record = self.records.pop(key, None)
        if record is not None:
            self.claimed.discard(record.uid)
            record.end()
            self.targets.leave(record.manifest)

    def recheck(self, record: InstallationRecord, manifest: Object) -> None:
        """Believe nothing of what is remembered of the target."""
        log.info("comparing everything with the target")
        self.targets.forget(manifest)
        if record.installation is not None:
            record.installation.recheck()

    def first(self, manifest: Object) -> Object:
        """The custom resource that may install where this one wants to."""
        return holder(
            manifest,
            self.resources.by_index(BY_PLACE, place_of(manifest)),
            finalizer=self.kind.finalizer,
            claimed=self.claimed,
        )

    async def refuse(self, record: InstallationRecord, manifest: Object, first: Object) -> Result:
        """Say that another one is first; nothing is installed."""
        builder = self.status_builder(record, manifest)
        builder.refused(
            f"{self.kind.resource.kind} {Key.of(first)} installs {self.kind.title} on this target"
            " already, and there can be only one; delete this one, or delete that one: then this"
            " one is installed"
        )
        await self.status_writer.report(record, manifest, builder)
        return Result.never()

    async def pause(self, record: InstallationRecord, manifest: Object) -> Result:
        """Leave the target alone, and say so: nothing is installed, upgraded or repaired."""
        record.end()
        # What is asked for meanwhile is not looked at, so the generation stays the last one seen.
        builder = StatusBuilder(record.status, record.status.observed_generation, self.now())
        builder.paused(
            f"the annotation {PAUSED} is true: nothing is installed, upgraded or repaired;"
            " remove it, and work goes on"
        )
        await self.status_writer.report(record, manifest, builder)
        return Result.never()

    async def install(self, record: InstallationRecord, manifest: Object) -> Result:
        """Make the target match, as far as that goes now; say how far it went."""
        builder = self.status_builder(record, manifest)
        self.verifications.report(record, manifest, builder)
        try:
            async with record.limited():
                again = await self.proceed(record, manifest, builder)
        except (PassInterrupted, AccessError):
            again = self.after_failure(record, manifest, builder, "")
        except NotEligible as error:
            builder.not_eligible(str(error))
            again = Result.never()
        except TargetError as error:
            again = self.handle_lost_target(record, builder, error)
        except OtherHub as error:
            record.end()
            builder.resolved()
            builder.refused(str(error))
            again = Result.after(REFUSED_SECONDS)
        except (ReleaseError, RenderError, DecodeError, AnchorError) as error:
            builder.failed(str(error))
            again = self.after_bad_input(record, error)
        except KubeError as error:
            if isinstance(error, NetworkError) and profile_of(manifest) is None:
                raise
            again = self.after_failure(record, manifest, builder, str(error))
        wait = await self.status_writer.report(record, manifest, builder)
        if wait:
            return again.within(wait)
        await self.verifications.acknowledge(record, manifest)
        return again

    def handle_lost_target(
        self, record: InstallationRecord, builder: StatusBuilder, error: TargetError
    ) -> Result:
        """Say that the target cannot be used; of all else, the last known state is kept."""
        # When it is back, everything there is looked at anew.
        record.end()
        builder.not_resolved(error.reason, str(error))
        return Result.after(self.poll_seconds)

    def after_failure(
        self, record: InstallationRecord, manifest: Object, builder: StatusBuilder, problem: str
    ) -> Result:
        """Say what failed, if anything; or, when the target itself is in trouble, that alone."""
        trouble = self.targets.problem(manifest)
        if trouble is not None:
            return self.handle_lost_target(record, builder, trouble)
        if problem:
            builder.failed(problem)
        return Result.after(record.retry_seconds())

    async def proceed(
        self, record: InstallationRecord, manifest: Object, builder: StatusBuilder
    ) -> Result:
        """The steps of a pass."""
        cr = decode(manifest, self.kind.type)
        self.check_migration(cr, record.status.version)
        builder.eligible()
        self.status_writer.report_policy(record, manifest)
        target = await self.resolve(record, manifest, cr)
        builder.resolved()
        installation = self.installations.of(record, manifest, target)
        rendering = await self.renderer.render(cr, installation)
        self.status_writer.report_warnings(record, manifest, rendering)
        if rendering.shortfall and (lost := await installation.losses(rendering.objects)):
            raise BadManifest(messages.losses_text(rendering.shortfall, lost))
        if rendering.version not in (builder.status.version, record.announced):
            builder.installing(messages.applying_text(len(rendering.objects), rendering.version))
            await self.status_writer.report(record, manifest, builder)
            record.announced = rendering.version
        changes = await installation.apply(rendering.objects)
        self.status_writer.report_changes(record, manifest, changes)
        if changes.failures:
            advice = self.kind.advice(cr, changes.failures)
            problem = advice + messages.failure_text(changes.failures)
            return self.after_failure(record, manifest, builder, problem)
        builder.applied(rendering.paths)
        summary = await installation.summary(rendering.objects)
        if summary is None and (trouble := self.targets.problem(manifest)) is not None:
            raise trouble
        early = summary is not None and self.are_early(record, summary, rendering)
        if not self.judge(builder, changes, summary, rendering, wait=not early):
            if summary is None or changes.pending:
                return Result.after(GATED_SECONDS)
            return Result.never() if target.root is None else Result.after(self.poll_seconds)
        builder.succeeded(rendering.version)
        record.failures = 0
        self.verifications.begin(record, manifest, target, builder)
        await self.status_writer.report(record, manifest, builder)
        installation.watch_all()
        if early:
            # Their end causes a pass.
            return Result.after(self.poll_seconds)
        return await self.prune(record, manifest, builder)

    async def resolve(self, record: InstallationRecord, manifest: Object, cr: Knative) -> Target:
        """The target; the first time, what is to be rendered for it is read meanwhile."""
        if record.installation is not None:
            return await self.targets.resolve(manifest)
        target, _ = await asyncio.gather(self.targets.resolve(manifest), self.renderer.warm(cr))
        return target

    def are_early(
        self, record: InstallationRecord, summary: SetReadiness, rendering: RenderResult
    ) -> bool:
        """Whether Jobs are running that have nothing to migrate, since nothing was there before.

        Everything works without them, so a first installation does not wait for their end, but
        when they take long, something is wrong.
        """
        installation = record.installation
        assert installation is not None
        is_first = installation.is_first and record.status.version in ("", rendering.version)
        if not is_first or not messages.jobs(summary).waiting:
            return False
        return record.leaves_time(summary, asyncio.get_running_loop().time())

    def judge(
        self,
        builder: StatusBuilder,
        changes: ChangeSet,
        summary: SetReadiness | None,
        rendering: RenderResult,
        *,
        wait: bool = True,
    ) -> bool:
        """Say how the objects are that were applied; whether everything works.

        With `wait`, Jobs must be complete for that.
        """
        if summary is None:
            builder.mark_unknown()
            return False
        workloads, jobs = messages.workloads(summary), messages.jobs(summary)
        if workloads.is_ready:
            builder.available()
        else:
            order = map(Ref.of, rendering.objects)
            builder.waiting(messages.waiting_text(workloads, order))
        if jobs.failed:
            failed = "; ".join(map(str, jobs.failed))
            builder.failed(f"{failed}; delete the Job, and it runs again")
        elif changes.pending:
            builder.installing(messages.pending_text(changes.pending))
        elif jobs.waiting and wait:
            builder.installing("; ".join(map(str, jobs.waiting)))
        are_done = jobs.is_ready if wait else not jobs.failed
        return workloads.is_ready and are_done and changes.settled

    async def prune(
        self, record: InstallationRecord, manifest: Object, builder: StatusBuilder
    ) -> Result:
        """Delete what an earlier release or setting has left, now that the new one works."""
        installation = record.installation
        assert installation is not None
        assert installation.rendering is not None
        changes = await installation.prune(installation.rendering.objects)
        self.status_writer.report_pruned(manifest, changes)
        if changes.settled:
            return Result.never()
        problem = f"{messages.left_text(changes)} of what was installed before"
        return self.after_failure(record, manifest, builder, problem)

    def check_migration(self, cr: Knative, installed: str) -> None:
        """Raise `NotEligible` unless the installed version may become the wanted one."""
        wanted = self.renderer.releases.target(cr)
        check_migration(installed, wanted, kind=self.kind.resource.kind)

    def after_bad_input(self, record: InstallationRecord, error: Exception) -> Result:
        """When to look again at what cannot be installed as it is."""
        if isinstance(error, FetchFailed):
            return Result.after(record.retry_seconds())
        if isinstance(error, AnchorError):
            return Result.after(REFUSED_SECONDS)
        # Files may be fixed without an event; a custom resource is not.
        return Result.after(RELEASE_SECONDS) if isinstance(error, ReleaseError) else Result.never()

    def status_builder(self, record: InstallationRecord, manifest: Object) -> StatusBuilder:
        """A builder that starts from the last status."""
        generation: int = manifest["metadata"].get("generation", 0)
        builder = StatusBuilder(record.status, generation, self.now())
        builder.not_paused()
        return builder
