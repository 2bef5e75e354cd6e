"""One pass over one custom resource: make its target match it, and say how it stands.

    decode → may it migrate → target → release and rendering → apply → readiness → prune

Each step hands a value to the next; the first that cannot ends the pass, and its words become a
condition. A pass may be cut off anywhere and begun again. When nothing changed, it asks the target
nothing and writes nothing.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from knfleet.api.knative import Knative
from knfleet.api.meta import HUB, Key, Object, Request
from knfleet.api.schema import DecodeError, decode
from knfleet.apply.changes import ChangeSet
from knfleet.apply.readiness import Summary
from knfleet.apply.refs import Ref
from knfleet.apply.repair import Repair
from knfleet.knative import messages
from knfleet.knative.claims import holder, same
from knfleet.knative.finalize import Finalizers, delete_parent, legacy_objects, uninstall
from knfleet.knative.installation import Installation
from knfleet.knative.kinds import Kind, is_deleting, uid_of
from knfleet.knative.records import Record
from knfleet.knative.rendering import Renderer, Rendering
from knfleet.knative.reporting import Reporter
from knfleet.knative.status import Statement, status_of
from knfleet.knative.targets import Target, TargetError, Targets
from knfleet.kube.errors import Conflict, KubeError, NetworkError
from knfleet.kube.informer import Informer
from knfleet.release.errors import FetchFailed, NotEligible, ReleaseError
from knfleet.release.migration import check_migration
from knfleet.render.errors import RenderError
from knfleet.runtime.controller import Again
from knfleet.runtime.logs import log
from knfleet.runtime.manager import Lifetime

RELEASE_SECONDS = 60.0
"""When to look again for release files that are not there."""
GATED_SECONDS = 1.0
"""When to look again whether a webhook answers, beyond what watches tell."""
AT_ONCE_SECONDS = 0.05
"""Changes of a target come in bursts; one look covers all that come this soon."""


def utc_now() -> datetime:
    """The time of conditions."""
    return datetime.now(UTC)


class Reconciler:
    """Makes targets match the custom resources of one kind."""

    def __init__(
        self,
        kind: Kind,
        resources: Informer,
        *,
        targets: Targets,
        renderer: Renderer,
        reporter: Reporter,
        lifetime: Callable[[str, Callable[[BaseException], None]], Lifetime],
        look_again: Callable[[Request, float], None],
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.kind = kind
        self.resources = resources
        self.targets = targets
        self.renderer = renderer
        self.reporter = reporter
        self.lifetime = lifetime
        self.look_again = look_again
        self.now = now
        self.finalizers = Finalizers(kind, reporter.client, reporter.events)
        self.records: dict[Key, Record] = {}
        self.claimed: set[str] = set()

    async def reconcile(self, request: Request) -> Again:
        """Bring one custom resource a step further."""
        manifest = self.resources.get(request.key)
        if manifest is None:
            self.forget(request.key)
            return Again.never()
        record = self.record(manifest)
        record.is_disputed = not record.has_said(status_of(manifest))
        first = self.first(manifest)
        try:
            if is_deleting(manifest):
                return await self.remove(record, manifest, owns=same(first, manifest))
            if not same(first, manifest):
                return await self.refuse(record, manifest, first)
            self.claimed.add(record.uid)
            return await self.install(record, await self.finalizers.add(manifest))
        except Conflict:
            # Somebody wrote the custom resource meanwhile; what they wrote is on its way here.
            return Again.after(AT_ONCE_SECONDS)

    def record(self, manifest: Object) -> Record:
        """What is remembered of a custom resource; another one of the same name is a new one."""
        key = Key.of(manifest)
        record = self.records.get(key)
        if record is None or record.uid != uid_of(manifest):
            self.forget(key)
            record = self.records[key] = Record(manifest)
        return record

    def forget(self, key: Key) -> None:
        """A custom resource is gone."""
        record = self.records.pop(key, None)
        if record is not None:
            self.claimed.discard(record.uid)
            record.end()

    def first(self, manifest: Object) -> Object:
        """The custom resource that may install where this one wants to."""
        return holder(
            manifest,
            self.resources.items(),
            finalizer=self.kind.finalizer,
            claimed=frozenset(self.claimed),
        )

    async def refuse(self, record: Record, manifest: Object, first: Object) -> Again:
        """Say that another one is first; nothing is installed."""
        said = self.statement(record, manifest)
        said.refused(
            f"{self.kind.resource.kind} {Key.of(first)} installs {self.kind.title} on this target"
            " already, and there can be only one; delete this one, or delete that one: then this"
            " one takes its place"
        )
        await self.reporter.report(record, manifest, said)
        return Again.never()

    async def install(self, record: Record, manifest: Object) -> Again:
        """Make the target match, as far as that goes now; say how far it went."""
        said = self.statement(record, manifest)
        try:
            again = await self.proceed(record, manifest, said)
        except NotEligible as error:
            said.not_eligible(str(error))
            again = Again.never()
        except TargetError as error:
            said.not_resolved(error.reason, str(error))
            again = Again.after(record.retry_seconds())
        except (ReleaseError, RenderError, DecodeError) as error:
            said.failed(str(error))
            again = self.after_bad_input(record, error)
        except KubeError as error:
            said.failed(str(error))
            again = Again.after(record.retry_seconds())
            if isinstance(error, NetworkError):
                raise
        await self.reporter.report(record, manifest, said)
        return again

    async def proceed(self, record: Record, manifest: Object, said: Statement) -> Again:
        """The steps of a pass."""
        cr = decode(manifest, self.kind.type)
        self.check_migration(cr, record.status.version)
        said.eligible()
        target = await self.targets.resolve(manifest)
        said.resolved()
        installation = self.installation(record, manifest, target)
        rendering = await self.renderer.render(cr, installation)
        self.reporter.tell_warnings(record, manifest, rendering)
        if rendering.version not in (said.status.version, record.announced):
            said.installing(f"applying {len(rendering.objects)} objects of {rendering.version}")
            await self.reporter.report(record, manifest, said)
            record.announced = rendering.version
        changes = await installation.apply(rendering.objects)
        self.reporter.tell_changes(record, manifest, changes)
        if changes.failures:
            advice = self.kind.advice(cr, changes.failures)
            said.failed(advice + messages.failure_text(changes.failures))
            return Again.after(record.retry_seconds())
        said.applied(rendering.paths)
        summary = await installation.summary(rendering.objects)
        if not self.judge(said, changes, summary, rendering):
            waits_blindly = summary is None or bool(changes.pending)
            return Again.after(GATED_SECONDS) if waits_blindly else Again.never()
        said.succeeded(rendering.version)
        record.failures = 0
        await self.reporter.report(record, manifest, said)
        return await self.prune(record, manifest, said)

    def judge(
        self, said: Statement, changes: ChangeSet, summary: Summary | None, rendering: Rendering
    ) -> bool:
        """Say how the objects are that were applied; whether everything works."""
        if summary is None:
            said.not_seen()
            return False
        workloads, jobs = messages.workloads(summary), messages.jobs(summary)
        if workloads.is_ready:
            said.available()
        else:
            order = map(Ref.of, rendering.objects)
            said.waiting(messages.waiting_text(workloads, order))
        if jobs.failed:
            failed = "; ".join(map(str, jobs.failed))
            said.failed(f"{failed}; delete the Job, and it runs again")
        elif changes.pending:
            said.installing(messages.pending_text(changes.pending))
        elif jobs.waiting:
            said.installing("; ".join(map(str, jobs.waiting)))
        return workloads.is_ready and jobs.is_ready and changes.settled

    async def prune(self, record: Record, manifest: Object, said: Statement) -> Again:
        """Delete what an earlier release or setting has left, now that the new one works."""
        installation = record.installation
        assert installation is not None
        assert installation.rendering is not None
        changes = await installation.prune(installation.rendering.objects)
        self.reporter.tell_pruned(manifest, changes)
        if changes.settled:
            return Again.never()
        said.failed(f"{messages.left_text(changes)} of what was installed before")
        return Again.after(record.retry_seconds())

    async def remove(self, record: Record, manifest: Object, *, owns: bool) -> Again:
        """Uninstall what a custom resource has installed, then let it go."""
        if not self.finalizers.on(manifest):
            record.end()
            return Again.never()
        if not owns:
            record.end()
            await self.finalizers.remove(manifest)
            return Again.never()
        said = self.statement(record, manifest)
        try:
            changes = await self.uninstall(record, manifest, said)
        except TargetError as error:
            said.not_resolved(error.reason, str(error))
        except KubeError as error:
            said.not_uninstalled(str(error))
            if isinstance(error, NetworkError):
                raise
        else:
            if changes.settled:
                return await self.let_go(record, manifest)
            said.not_uninstalled(messages.left_text(changes))
        await self.reporter.report(record, manifest, said)
        return Again.after(record.retry_seconds())

    async def uninstall(self, record: Record, manifest: Object, said: Statement) -> ChangeSet:
        """Delete everything that belongs to a custom resource."""
        target = await self.targets.resolve(manifest)
        said.resolved()
        if record.status.manifests and not record.failures:
            said.uninstalling(f"removing {self.kind.title} {record.status.version}".rstrip())
            await self.reporter.report(record, manifest, said)
        installation = self.installation(record, manifest, target)
        try:
            cr = decode(manifest, self.kind.type)
            legacy = await legacy_objects(self.renderer.releases, cr)
        except DecodeError:
            legacy = []
        changes = await uninstall(installation, legacy)
        log.info("uninstalled", changes=str(changes))
        return changes

    async def let_go(self, record: Record, manifest: Object) -> Again:
        """Nothing is left: the custom resource may go, and what we remember of it."""
        installation = record.installation
        await self.finalizers.remove(manifest)
        if installation is not None:
            await delete_parent(installation)
        record.end()
        return Again.never()

    def installation(self, record: Record, manifest: Object, target: Target) -> Installation:
        """What is on the target, as one that lives on between passes."""
        known = record.installation
        if known is not None and known.target.client is target.client:
            return known
        record.end()
        request = Request(HUB, Key.of(manifest))

        def repaired(repair: Repair) -> None:
            self.reporter.tell_repair(manifest, repair)

        def crashed(error: BaseException) -> None:
            log.error("watching ended", key=str(request.key), error=str(error))
            record.end()
            self.look_again(request, record.retry_seconds())

        changed = lambda: self.look_again(request, AT_ONCE_SECONDS)  # noqa: E731
        record.installation = Installation(target, changed, repaired)
        record.lifetime = self.lifetime(f"{self.kind.resource.kind} {request.key}", crashed)
        record.lifetime.add(record.installation)
        return record.installation

    def check_migration(self, cr: Knative, installed: str) -> None:
        """Raise `NotEligible` unless the installed version may become the wanted one."""
        wanted = self.renderer.releases.target(cr)
        check_migration(installed, wanted, kind=self.kind.resource.kind)

    def after_bad_input(self, record: Record, error: Exception) -> Again:
        """When to look again at what cannot be installed as it is."""
        if isinstance(error, FetchFailed):
            return Again.after(record.retry_seconds())
        # Files may be mended without anybody telling; a custom resource is not.
        return Again.after(RELEASE_SECONDS) if isinstance(error, ReleaseError) else Again.never()

    def statement(self, record: Record, manifest: Object) -> Statement:
        """What is to be said, beginning with what was said last."""
        generation: int = manifest["metadata"].get("generation", 0)
        return Statement(record.status, generation, self.now())
