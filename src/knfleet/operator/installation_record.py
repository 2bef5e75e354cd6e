"""What this process remembers of one custom resource between passes."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from knfleet.api.knative.resources import KnativeStatus
from knfleet.api.knative.verification import VerifyAnswer
from knfleet.api.meta import Object
from knfleet.apply.observe.readiness import SetReadiness
from knfleet.operator.installation import Installation
from knfleet.operator.kinds import TRIGGER, annotations_of, uid_of
from knfleet.operator.status.messages import workloads
from knfleet.operator.status.status_builder import same, status_of
from knfleet.runtime.manager import Lifetime

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 15.0
FIRST_JOBS_SECONDS = 120.0
"""How long Jobs of a first installation may take when everything else works."""
REMEMBERED = 8


class PassInterrupted(Exception):
    """A pass was cut off, because its target is not what it was."""


class InstallationRecord:
    """The memory of one custom resource."""

    def __init__(self, manifest: Object) -> None:
        self.uid = uid_of(manifest)
        self.manifest = manifest
        """The custom resource as it was first seen."""
        self.trigger = trigger_of(manifest)
        self.reported: deque[KnativeStatus] = deque([status_of(manifest)], maxlen=REMEMBERED)
        """What was written of late; the last may be on its way."""
        self.written_at = float("-inf")
        """When the status was last written, by the loop's clock."""
        self.is_disputed = False
        """Whether another client wrote the status since."""
        self.installation: Installation | None = None
        self.lifetime: Lifetime | None = None
        self.limit: asyncio.Timeout | None = None
        """Of the current pass."""
        self.failures = 0
        self.announced = ""
        """The version whose installation was said to have begun."""
        self.works_since: float | None = None
        """When all workloads of a first installation were ready, by the loop's clock."""
        self.verifying = ""
        """The request for a verification that was begun last, unless it was cut off."""
        self.verified: tuple[str, VerifyAnswer] | None = None
        """The last request for a verification that was done, and its answer."""
        self.logged: set[str] = set()
        """Texts that were logged once, and are not repeated."""

    @property
    def status(self) -> KnativeStatus:
        """What was last written, or is being written."""
        return self.reported[-1]

    def has_reported(self, status: KnativeStatus) -> bool:
        """Whether a status is one of ours: watches report a write while the next one is sent."""
        return any(same(status, each) for each in self.reported)

    def retry_seconds(self) -> float:
        """How long to wait after one more failure: longer each time, as causes go unseen."""
        self.failures += 1
        doubled = FIRST_RETRY_SECONDS * 2.0 ** min(self.failures - 1, 16)
        return min(LONGEST_RETRY_SECONDS, doubled)

    def is_news(self, text: str) -> bool:
        """Whether a text is new."""
        known = text in self.logged
        self.logged.add(text)
        return not known

    def is_triggered(self, manifest: Object) -> bool:
        """Whether a full comparison is requested; once for each request."""
        before, self.trigger = self.trigger, trigger_of(manifest)
        return self.trigger != before

    def leaves_time(self, summary: SetReadiness, now: float) -> bool:
        """Whether Jobs of a first installation need not be complete yet."""
        if self.works_since is None and workloads(summary).is_ready:
            self.works_since = now
        return self.works_since is None or now < self.works_since + FIRST_JOBS_SECONDS

    @asynccontextmanager
    async def limited(self) -> AsyncGenerator[None]:
        """Something that `interrupt` can cut off, which raises `PassInterrupted`."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self.limit = limit
                yield
        except TimeoutError:
            if limit.expired():
                raise PassInterrupted from None
            raise
        finally:
            self.limit = None

    def interrupt(self) -> None:
        """Cut off the current pass: what it waits for may never come."""
        if self.limit is not None and not self.limit.expired():
            self.limit.reschedule(0)

    def end(self) -> None:
        """Stop watching and repairing."""
        if self.lifetime is not None:
            self.lifetime.end()
        self.installation, self.lifetime = None, None
        self.verifying = ""


def trigger_of(manifest: Object) -> str:
    """What was last written to have everything compared."""
    return annotations_of(manifest).get(TRIGGER, "")
