"""Pages that are open: each receives what changed on it, by server-sent events.

Pages that show the same to viewers who see the same share a channel: it is drawn once for each
change, and one text goes to all of them. A page that missed too much gets all of it again.
"""

import asyncio
from collections import deque
from collections.abc import Generator, Hashable
from contextlib import contextmanager

from knfleet.runtime.logs import log
from knfleet.web.live.feed import HubFeed
from knfleet.web.pages.page import WebPage, difference, event, whole
from knfleet.web.pages.views import Build

KEPT = 16
"""So many changes can be missed."""
STREAMS = 400
"""So many pages can be open at once."""

GONE = b"event: gone\ndata: {}\n\n"
"""What the page is about does not exist any more, or is not seen any more."""


class Channel:
    """One page, for all who look at it."""

    def __init__(self, build: Build, page: WebPage) -> None:
        self.build = build
        self.page = page
        self.version = 0
        self.kept: deque[bytes] = deque(maxlen=KEPT)
        self.all: bytes | None = None
        self.is_gone = False
        self.changed = asyncio.Event()
        self.viewers = 0
        self.is_over = False

    def refresh(self) -> None:
        """Draw the page again, and tell what is new."""
        page = self.build()
        if page is None:
            self.is_gone = True
            self.send(GONE)
            return
        patch = difference(self.page, page)
        self.page = page
        if patch is not None:
            self.send(event(patch))

    def send(self, text: bytes) -> None:
        """Tell all who look."""
        self.version += 1
        self.kept.append(text)
        self.all = None
        self.changed.set()
        self.changed = asyncio.Event()

    def whole(self) -> bytes:
        """All of the page, made once for all who need it."""
        if self.all is None:
            self.all = GONE if self.is_gone else event(whole(self.page))
        return self.all

    def since(self, version: int) -> bytes:
        """What makes a page current that was so at a version."""
        missed = self.version - version
        if missed > len(self.kept):
            return self.whole()
        return b"".join(list(self.kept)[len(self.kept) - missed :])

    async def newer(self, version: int) -> None:
        """Wait until there is something to tell."""
        while self.version <= version and not self.is_over:
            await self.changed.wait()

    def end(self) -> None:
        """Let all who wait look up, since there will be nothing more."""
        self.is_over = True
        self.changed.set()


class LiveChannels:
    """All channels."""

    def __init__(self, feed: HubFeed) -> None:
        self.feed = feed
        self.channels: dict[Hashable, Channel] = {}
        self.viewers = 0
        self.ending = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether no more pages can be followed."""
        return self.viewers >= STREAMS

    @contextmanager
    def channel(self, key: Hashable, build: Build) -> Generator[Channel | None]:
        """The channel of a page while it is open; None when there is no such page."""
        channel = self.channels.get(key)
        if channel is None:
            page = build()
            if page is None:
                yield None
                return
            channel = self.channels[key] = Channel(build, page)
        channel.viewers += 1
        self.viewers += 1
        try:
            yield channel
        finally:
            channel.viewers -= 1
            self.viewers -= 1
            if not channel.viewers:
                self.channels.pop(key, None)

    async def run(self) -> None:
        """Bring all channels up to date after every burst of changes."""
        revision = self.feed.revision
        while True:
            revision = await self.feed.after(revision)
            with self.feed.spending():
                for channel in list(self.channels.values()):
                    self.refresh(channel)

    def refresh(self, channel: Channel) -> None:
        """Bring a channel up to date; one that fails is skipped, the others are not affected."""
        try:
            channel.refresh()
        except Exception:  # noqa: BLE001  a hub must not end because a page cannot be drawn
            log.error("a page cannot be drawn", page=channel.page.title, exc_info=True)

    def end(self) -> None:
        """End all streams."""
        self.ending.set()
        for channel in self.channels.values():
            channel.end()
