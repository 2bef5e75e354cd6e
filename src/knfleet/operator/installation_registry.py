"""Begins installations, keeps them between passes, and has them looked at when they change."""

from collections.abc import Callable

from knfleet.api.meta import HUB, Key, Object, Request
from knfleet.apply.observe.repair import Repair
from knfleet.operator.installation import Installation
from knfleet.operator.installation_record import InstallationRecord
from knfleet.operator.kinds import KnativeKind
from knfleet.operator.status.status_writer import StatusWriter
from knfleet.operator.targets.targets import Target, Targets
from knfleet.runtime.logs import log
from knfleet.runtime.manager import Lifetime
from knfleet.runtime.start_limit import StartLimit

AT_ONCE_SECONDS = 0.05
"""Changes of a target come in bursts; one look covers all that come this soon."""
PROGRESS_SECONDS = 0.2
"""The same for workloads on their way, which need not be reported more often."""

LookAgain = Callable[[Request, float], None]
Begin = Callable[[str, Callable[[BaseException], None]], Lifetime]


class InstallationRegistry:
    """The installations of one kind."""

    def __init__(
        self,
        kind: KnativeKind,
        targets: Targets,
        *,
        status_writer: StatusWriter,
        lifetime: Begin,
        look_again: LookAgain,
        starts: StartLimit,
    ) -> None:
        self.kind = kind
        self.targets = targets
        self.status_writer = status_writer
        self.lifetime = lifetime
        self.look_again = look_again
        self.starts = starts
        """Who may make a pass now; see `knative.controllers`."""

    def of(self, record: InstallationRecord, manifest: Object, target: Target) -> Installation:
        """What is on the target, as one that lives on between passes."""
        known = record.installation
        if known is not None and known.client is target.client:
            known.reroot(target)
            return known
        record.end()
        request = Request(HUB, Key.of(manifest))

        def changed() -> None:
            installation = record.installation
            is_ready = installation is not None and installation.is_ready()
            self.look_again(request, 0.0 if is_ready else PROGRESS_SECONDS)

        def uprooted() -> None:
            log.warning("the anchor was changed or deleted", key=str(request.key))
            self.targets.forget(manifest)
            self.look_again(request, AT_ONCE_SECONDS)

        def repaired(repair: Repair) -> None:
            self.status_writer.report_repair(manifest, repair)

        def crashed(error: BaseException) -> None:
            log.error("watching ended", key=str(request.key), error=str(error))
            record.end()
            self.look_again(request, record.retry_seconds())

        record.installation = Installation(target, changed, repaired, uprooted)
        record.lifetime = self.lifetime(f"{self.kind.resource.kind} {request.key}", crashed)
        record.lifetime.add(record.installation)
        return record.installation
