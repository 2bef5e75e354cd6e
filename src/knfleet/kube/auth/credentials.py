"""Credentials for an API server: one interface for every way of logging in.

A `CredentialSource` fetches a fresh credential; a `CachedCredential` holds the current one for all
requests of a client. Fifty requests that find it expired cause one refresh; it goes on as long as
one of them waits, and ends with the last. A refresh that fails is remembered for a while, longer
each time, so that a broken plugin is not started once per request.
"""

import asyncio
import math
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from knfleet.kube.auth.x509 import check_key_pair
from knfleet.kube.errors import CredentialError, KubeError

SKEW = timedelta(seconds=30)
"""A credential that ends sooner than this is not used any more."""
REREAD = timedelta(minutes=1)
"""How long what was read from a file counts as current, the skew included."""

FIRST_PAUSE = 1.0
"""Seconds for which the first failure is remembered."""
LONGEST_PAUSE = 30.0
FORGIVEN_AFTER = 60.0
"""A credential that served this long was a good one, whatever came before it."""

TOKEN = re.compile(r"[\x21-\x7e]+")


class Credential(Struct, frozen=True):
    """A token, a client certificate, or both; never printed."""

    token: str | None = None
    client_certificate: bytes | None = None
    client_key: bytes | None = None
    expires: datetime | None = None

    def is_fresh(self, now: datetime, skew: timedelta = SKEW) -> bool:
        """Whether the credential can still be used for a while."""
        return self.expires is None or now + skew < self.expires

    def is_same(self, other: "Credential") -> bool:
        """Whether a server would see no difference."""
        return (self.token, self.client_certificate, self.client_key) == (
            other.token,
            other.client_certificate,
            other.client_key,
        )

    def __repr__(self) -> str:
        parts = [name for name in ("token", "client_certificate") if getattr(self, name)]
        return f"Credential({'+'.join(parts) or 'anonymous'}, expires={self.expires})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("held", repr(self))]


class CredentialSource(Protocol):
    """A way to get a credential."""

    async def fetch(self) -> Credential:
        """A fresh credential; raises `CredentialError` when there is none to be had."""
        ...


class StaticCredential(Struct, frozen=True):
    """A credential that never changes."""

    credential: Credential = Credential()

    async def fetch(self) -> Credential:
        return self.credential


class TokenFile(Struct, frozen=True):
    """A token in a file that another program keeps fresh, read again every half minute."""

    path: Path

    async def fetch(self) -> Credential:
        token = read(self.path, "token file").decode("utf-8", "replace").strip()
        if not is_token(token):
            what = "holds something that is not a token" if token else "is empty"
            raise CredentialError(f"token file {self.path} {what}; write a bearer token into it")
        return Credential(token=token, expires=datetime.now(UTC) + REREAD)


class CertificatePair(Struct, frozen=True):
    """A client certificate and its key as PEM; a file is read again every half minute."""

    certificate: Path | bytes
    key: Path | bytes

    async def fetch(self) -> Credential:
        """The pair as it is now; raises when the two do not belong together."""
        certificate, key = self.certificate, self.key
        from_file = [part for part in (certificate, key) if isinstance(part, Path)]
        if isinstance(certificate, Path):
            certificate = read(certificate, "client certificate")
        if isinstance(key, Path):
            key = read(key, "client key")
        if problem := check_key_pair(certificate, key):
            where = " and ".join(str(path) for path in from_file) or "inline data"
            raise CredentialError(f"client certificate and key ({where}): {problem}")
        expires = datetime.now(UTC) + REREAD if from_file else None
        return Credential(client_certificate=certificate, client_key=key, expires=expires)

    def __repr__(self) -> str:
        paths = [str(part) for part in (self.certificate, self.key) if isinstance(part, Path)]
        return f"CertificatePair({', '.join(paths) or 'inline'})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("from", repr(self))]


class CombinedCredential(Struct, frozen=True):
    """A token and a client certificate, each from a source of its own."""

    token: CredentialSource
    certificate: CredentialSource

    async def fetch(self) -> Credential:
        """Both, good until the first of them ends."""
        token, pair = await self.token.fetch(), await self.certificate.fetch()
        ends = [part.expires for part in (token, pair) if part.expires is not None]
        return Credential(
            token=token.token,
            client_certificate=pair.client_certificate,
            client_key=pair.client_key,
            expires=min(ends, default=None),
        )


def is_token(text: str) -> bool:
    """Whether a text can be sent as a bearer token."""
    return TOKEN.fullmatch(text) is not None


def read(path: Path, what: str) -> bytes:
    """A file's content."""
    try:
        return path.read_bytes()
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise CredentialError(f"{what} {path} cannot be read: {problem}") from error


class RefreshBackoff:
    """A time to wait that doubles with every failure."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.count = 0
        self.until = -math.inf

    def left(self) -> float:
        """Seconds that are still to be waited."""
        return max(0.0, self.until - self.clock())

    def lengthen(self) -> None:
        """Begin the next pause."""
        self.until = self.clock() + min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**self.count)
        self.count += 1

    def reset(self) -> None:
        """Forget the failures."""
        self.count = 0
        self.until = -math.inf


class RefreshTask(Struct):
    """A refresh in progress, and how many wait for it."""

    task: asyncio.Task[Credential | KubeError]
    waiting: int = 0


class CachedCredential:
    """The current credential of one client."""

    def __init__(
        self,
        source: CredentialSource,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
        refreshed: Callable[[], None] = lambda: None,
    ) -> None:
        self.source = source
        self.now = now
        self.clock = clock
        self.refreshed = refreshed
        self.held: Credential | None = None
        self.skew = SKEW
        self.since = 0.0
        self.refresh: RefreshTask | None = None
        self.abandoned: set[asyncio.Task[Credential | KubeError]] = set()
        self.failure: KubeError | None = None
        self.failures = RefreshBackoff(clock)
        self.rejections = RefreshBackoff(clock)

    async def current(self) -> Credential:
        """A credential that is good now; raises `CredentialError` when there is none."""
        if (held := self.held) is not None and self.is_fresh():
            return held
        if (failure := self.failure) is not None and (left := self.failures.left()) > 0:
            return self.still_valid_or_raise(failure, f"; next try in {left:.0f} s")
        outcome = await self.shared_refresh()
        if isinstance(outcome, Credential):
            return outcome
        return self.still_valid_or_raise(outcome, "")

    def reject(self, credential: Credential) -> None:
        """Forget a credential that the server did not accept.

        When the next one is not accepted either, it is kept for a while: asking the source again
        at once would bring the same.
        """
        if self.held is None or not self.held.is_same(credential) or self.rejections.left() > 0:
            return
        if self.clock() - self.since > FORGIVEN_AFTER:
            self.rejections.reset()
        self.rejections.lengthen()
        self.held = None

    def is_fresh(self) -> bool:
        """Whether a request has a credential without waiting for the source."""
        return self.held is not None and self.held.is_fresh(self.now(), self.skew)

    def renew(self) -> None:
        """Ask the source again for the next request, whatever came of it before."""
        self.held = None
        self.failure = None
        self.failures.reset()
        self.rejections.reset()

    def still_valid_or_raise(self, failure: KubeError, remark: str) -> Credential:
        """The old credential while it lasts, since a failed refresh takes nothing away."""
        if (held := self.held) is not None and held.is_fresh(self.now(), timedelta()):
            return held
        # A new error for each waiter: one shared by many would collect all their tracebacks.
        raise CredentialError(f"{failure}{remark}") from failure

    async def shared_refresh(self) -> Credential | KubeError:
        """What the one refresh brings, which ends early only when no caller waits for it."""
        if (refresh := self.refresh) is None:
            refresh = self.refresh = RefreshTask(asyncio.create_task(self.fetch()))
            refresh.task.add_done_callback(self.ended)
        refresh.waiting += 1
        try:
            return await asyncio.shield(refresh.task)
        finally:
            refresh.waiting -= 1
            if refresh.waiting == 0 and not refresh.task.done():
                await self.abandon(refresh)

    async def abandon(self, refresh: RefreshTask) -> None:
        """Stop a refresh that is not needed any more, and see it end."""
        if self.refresh is refresh:
            self.refresh = None
        self.abandoned.add(refresh.task)
        refresh.task.cancel()
        await asyncio.wait([refresh.task])

    def ended(self, task: asyncio.Task[Credential | KubeError]) -> None:
        """Let go of a refresh that is over."""
        self.abandoned.discard(task)
        if self.refresh is not None and self.refresh.task is task:
            self.refresh = None
        if not task.cancelled():
            # Looked at here, so that it counts as seen even when every waiter has left.
            task.exception()

    async def fetch(self) -> Credential | KubeError:
        """Ask the source, and keep what it says."""
        try:
            credential = await self.source.fetch()
        except KubeError as error:
            self.failure = error
            self.failures.lengthen()
            return error
        self.failure = None
        self.failures.reset()
        self.held = credential
        self.since = self.clock()
        if credential.expires is not None:
            # Half of a short life is better used than skipped.
            self.skew = min(SKEW, max(timedelta(), credential.expires - self.now()) / 2)
        self.refreshed()
        return credential
