"""Who is logged in: sessions in memory, each with a client that has its user's rights.

A session is found by a random id in a cookie, and ends when its user leaves, when nothing was asked
for a while, or when the hub does not know its token any more. Tokens are nowhere but in the client.
"""

import asyncio
import hmac
import secrets
import time
from collections.abc import Callable

from msgspec import Struct

from knfleet.kube.client.verbs import Client
from knfleet.runtime.logs import log
from knfleet.web.server.authorization import EVERYTHING, VisibleObjects

SESSIONS = 500
"""So many at once; the one that was idle for longest is closed."""
STREAMS = 100
"""So many pages can one session have open."""
SWEEP_SECONDS = 15.0


class WebSession(Struct, eq=False):
    """A user who is logged in."""

    id: str
    user: str
    client: Client
    """Asks the hub with this user's rights."""
    csrf: str
    """What a form must bring back."""
    used: float
    is_owner: bool = False
    """Whether the rights are those of the process itself, whose client is not ours to close."""
    visible: VisibleObjects = EVERYTHING
    seen_at: float = float("-inf")
    """When the hub was last asked what the user may see."""
    said: str = ""
    """The message for the next page."""
    streams: int = 0
    """How many pages are open."""

    def __repr__(self) -> str:
        return f"WebSession({self.user!r})"

    def take_message(self) -> str:
        """The message for the next page; it is shown once."""
        said, self.said = self.said, ""
        return said

    def doubt(self) -> None:
        """Have the hub asked again what the user may see, because it refused something."""
        self.seen_at = float("-inf")

    def allows(self, csrf: str) -> bool:
        """Whether a form is one that we gave to this user."""
        return hmac.compare_digest(self.csrf.encode(), csrf.encode())


class WebSessions:
    """All that are logged in."""

    def __init__(self, idle_seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.idle_seconds = idle_seconds
        self.clock = clock
        self.sessions: dict[str, WebSession] = {}

    async def open(self, user: str, client: Client, *, is_owner: bool = False) -> WebSession:
        await self.sweep()
        while len(self.sessions) >= SESSIONS:
            await self.close(min(self.sessions.values(), key=lambda each: each.used))
        session = WebSession(
            secrets.token_urlsafe(32),
            user,
            client,
            secrets.token_urlsafe(32),
            self.clock(),
            is_owner,
        )
        self.sessions[session.id] = session
        return session

    def find(self, id_: str) -> WebSession | None:
        """The session of an id, which counts as used."""
        session = self.sessions.get(id_)
        if session is None or not self.is_open(session):
            return None
        session.used = self.clock()
        return session

    def is_open(self, session: WebSession) -> bool:
        """Whether a user is still logged in."""
        idle = self.clock() - session.used
        return session.id in self.sessions and idle < self.idle_seconds

    async def close(self, session: WebSession) -> None:
        """End a session, and forget its token."""
        if self.sessions.pop(session.id, None) is None:
            return
        if not session.is_owner:
            await session.client.close()
        log.info("left the dashboard", user=session.user)

    async def sweep(self) -> None:
        """End what was not used for a while."""
        for session in [each for each in self.sessions.values() if not self.is_open(each)]:
            await self.close(session)

    async def run(self) -> None:
        """Sweep now and then; at the end, end all."""
        try:
            while True:
                await asyncio.sleep(SWEEP_SECONDS)
                await self.sweep()
        finally:
            for session in list(self.sessions.values()):
                await self.close(session)
