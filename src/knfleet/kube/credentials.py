"""Who we are to an API server: one seam for every way of logging in.

A `CredentialSource` knows how to get a fresh credential; a `Login` holds the current one for all
requests of a client, so that fifty requests that find it expired cause one refresh.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from msgspec import Struct

SKEW = timedelta(seconds=30)
"""A credential that ends sooner than this is not used any more."""


class Credential(Struct, frozen=True):
    """A token, a client certificate, or both; never printed."""

    token: str | None = None
    client_certificate: bytes | None = None
    client_key: bytes | None = None
    expires: datetime | None = None

    def is_fresh(self, now: datetime) -> bool:
        """Whether the credential can still be used for a while."""
        return self.expires is None or now + SKEW < self.expires

    def __repr__(self) -> str:
        parts = [name for name in ("token", "client_certificate") if getattr(self, name)]
        return f"Credential({'+'.join(parts) or 'anonymous'}, expires={self.expires})"


class CredentialSource(Protocol):
    """A way to get a credential."""

    async def fetch(self) -> Credential:
        """A fresh credential; raises `CredentialError` when there is none to be had."""
        ...


class StaticCredential(Struct, frozen=True):
    """A credential that never changes."""

    credential: Credential = Credential()

    async def fetch(self) -> Credential:
        """The one there is."""
        return self.credential


class Login:
    """The current credential of one client, refreshed by one request for all."""

    def __init__(
        self,
        source: CredentialSource,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        refreshed: Callable[[], None] = lambda: None,
    ) -> None:
        self.source = source
        self.now = now
        self.refreshed = refreshed
        self.held: Credential | None = None
        self.refreshing = asyncio.Lock()

    async def current(self) -> Credential:
        """A credential that is good now."""
        if (held := self.held) is not None and held.is_fresh(self.now()):
            return held
        async with self.refreshing:
            if (held := self.held) is not None and held.is_fresh(self.now()):
                return held
            self.held = await self.source.fetch()
            self.refreshed()
            return self.held

    def reject(self, credential: Credential) -> None:
        """Forget a credential that the server did not accept."""
        if self.held is credential:
            self.held = None
