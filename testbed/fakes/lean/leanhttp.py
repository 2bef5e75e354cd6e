"""HTTP for lean spokes: just what our client and kubectl send, with next to nothing kept for a
connection that waits.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import cast
from urllib.parse import parse_qs, unquote

from msgspec import Struct

from knfleet.api.core import CRDS, DEPLOYMENTS, JOBS
from testbed.fakes.lean.hostile import PROBE, harm
from testbed.fakes.lean.leananswers import (
    Asked,
    about_the_server,
    bookmark,
    chunk,
    event_line,
    line,
    listing,
    place_of,
    response,
    selected,
    status_text,
    write,
)
from testbed.fakes.lean.leanspoke import Bodies, Event, LeanSpoke, Refused, Selected, text_of

BOOKMARK_SECONDS = 60.0
"""How often watches hear that nothing happened; a real server does it about as often."""
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


class Behaviour(Struct):
    """How a spoke behaves at the moment."""

    mode: str = "well"
    """`well`, `cut` (connections are closed), `hung` (nobody answers), or of `hostile.MODES`."""
    latency_seconds: float = 0.0
    ready_seconds: float = 0.05
    """How long a Deployment takes to become available."""


class Watch(Struct, eq=False):
    """A watch that somebody holds open."""

    connection: "Connection"
    wanted: Selected
    only_metadata: bool
    ends_at: float


class Wrote(Struct):
    """The writes of one client on one spoke."""

    first: float
    last: float
    count: int = 1


class Served:
    """One spoke, with everybody who is connected to it."""

    def __init__(self, name: str, token: str, bodies: Bodies, behaviour: Behaviour) -> None:
        self.name = name
        self.token = token
        self.behaviour = behaviour
        self.connections: set[Connection] = set()
        self.watches: set[Watch] = set()
        self.spoke = LeanSpoke(name, bodies, self.changed)
        self.handshakes = 0
        self.requests: Counter[str] = Counter()
        self.busy_at = 0.0
        """When somebody last asked something that is no probe and no watch."""
        self.writers: dict[str, Wrote] = {}
        """Who wrote here, by User-Agent."""

    def begin(self) -> None:
        """Send bookmarks from now on."""
        loop = asyncio.get_running_loop()
        loop.call_later(random.uniform(0, BOOKMARK_SECONDS), self.mark)

    def mark(self) -> None:
        """Tell all watches that nothing happened; end those whose time is up."""
        now = time.monotonic()
        if self.behaviour.mode == "well":
            for watch in list(self.watches):
                line = bookmark(watch.wanted.resource, self.spoke.version)
                watch.connection.send_chunk(line)
                if watch.ends_at <= now:
                    self.watches.discard(watch)
                    watch.connection.end_stream()
        asyncio.get_running_loop().call_later(BOOKMARK_SECONDS, self.mark)

    def changed(self, event: Event) -> None:
        """Something happened to an object."""
        if self.behaviour.mode == "well":
            for watch in self.watches:
                if watch.wanted.resource == event.resource and watch.wanted.fits(event.stored):
                    watch.connection.send_chunk(event_line(event, watch.only_metadata))
        if event.type != "DELETED" and event.resource in (DEPLOYMENTS, JOBS, CRDS):
            wait = self.behaviour.ready_seconds if event.resource is not CRDS else 0.0
            asyncio.get_running_loop().call_later(
                wait, self.spoke.progress, event.resource, event.stored.key
            )

    def behave(self, mode: str) -> None:
        """Behave differently from now on."""
        self.behaviour.mode = mode
        if mode == "cut":
            for connection in list(self.connections):
                connection.abort()

    def count(self, asked: Asked) -> None:
        """Count a request."""
        is_probe = asked.path == PROBE
        verb = "review" if asked.path.endswith("reviews") else asked.verb
        self.requests["probe" if is_probe else verb] += 1
        if not is_probe and verb != "watch":
            self.busy_at = time.time()
        if verb in ("apply", "create", "patch", "delete"):
            now, agent = time.time(), asked.headers.get("user-agent", "")
            wrote = self.writers.get(agent)
            if wrote is None:
                self.writers[agent] = Wrote(now, now)
            else:
                wrote.last, wrote.count = now, wrote.count + 1


class Connection(asyncio.Protocol):
    """One connection of a client to a spoke."""

    __slots__ = ("buffer", "is_paused", "parts", "served", "transport", "watch")

    def __init__(self, served: Served) -> None:
        self.served = served
        self.transport: asyncio.Transport | None = None
        self.buffer = b""
        self.watch: Watch | None = None
        self.parts: Iterator[bytes] | None = None
        """What is still to be sent, perhaps without end."""
        self.is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connected."""
        # uvloop's transports are none of asyncio's.
        self.transport = cast("asyncio.Transport", transport)
        self.served.handshakes += 1
        self.served.connections.add(self)
        if self.served.behaviour.mode == "cut":
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Somebody left."""
        self.served.connections.discard(self)
        if self.watch is not None:
            self.served.watches.discard(self.watch)
        self.transport = None

    def abort(self) -> None:
        """Close without a farewell."""
        if self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take in a request, or a part of one."""
        self.buffer += data
        while (asked := self.next_request()) is not None:
            if self.served.behaviour.mode == "hung":
                continue
            delay = self.served.behaviour.latency_seconds
            if delay:
                asyncio.get_running_loop().call_later(delay, self.answer, asked)
            else:
                self.answer(asked)

    def next_request(self) -> Asked | None:
        """The next request, when all of it is here."""
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(": ") for line in lines)
        headers = {name.lower(): value for name, _, value in pairs}
        length = int(headers.get("content-length", 0))
        if len(rest) < length:
            return None
        self.buffer = rest[length:]
        method, target, _ = first.split(" ")
        path, _, query = target.partition("?")
        values = {name: each[0] for name, each in parse_qs(query).items()}
        return Asked(method, unquote(path), values, headers, rest[:length])

    def answer(self, asked: Asked) -> None:
        """Answer a request."""
        if self.transport is None:
            return
        self.served.count(asked)
        if (parts := harm(self.served.behaviour.mode, asked)) is not None:
            self.parts = parts
            self.pump()
            return
        try:
            self.check(asked)
            code, body = self.handle(asked)
        except Refused as refused:
            code, body = refused.code, status_text(refused)
        if body is not None:
            self.transport.write(response(code, body))

    def pump(self) -> None:
        """Send the next part, and go on for as long as the other side reads."""
        if self.transport is None or self.parts is None or self.is_paused:
            return
        part = next(self.parts, None)
        if part is None:
            self.parts = None
            return
        self.transport.write(part)
        asyncio.get_running_loop().call_soon(self.pump)

    def pause_writing(self) -> None:
        """The other side reads too slowly."""
        self.is_paused = True

    def resume_writing(self) -> None:
        """The other side has read."""
        self.is_paused = False
        self.pump()

    def check(self, asked: Asked) -> None:
        """Refuse who has no right to be here."""
        if asked.headers.get("authorization") != f"Bearer {self.served.token}":
            raise Refused(401, "Unauthorized")

    def handle(self, asked: Asked) -> tuple[int, bytes | None]:
        """Do what is asked; without a body, the answer goes on."""
        spoke = self.served.spoke
        if (body := about_the_server(spoke, asked.path)) is not None:
            return 200, body
        resource, key = place_of(spoke, asked.path)
        if asked.method != "GET":
            return write(spoke, asked, resource, key)
        if key.name:
            return 200, text_of(resource, spoke.get(resource, key))
        wanted = selected(resource, key.namespace, asked.query)
        if asked.verb == "watch":
            return self.stream(asked, wanted)
        return 200, listing(spoke, wanted, only_metadata=asked.only_metadata)

    def stream(self, asked: Asked, wanted: Selected) -> tuple[int, None]:
        """Begin to tell what happens."""
        assert self.transport is not None
        spoke, only = self.served.spoke, asked.only_metadata
        lines: list[bytes] = []
        if asked.query.get("sendInitialEvents") == "true":
            found = spoke.select(wanted)
            lines += [
                line("ADDED", text_of(wanted.resource, each, only_metadata=only)) for each in found
            ]
            lines.append(bookmark(wanted.resource, spoke.version, initial=True))
        else:
            since = int(asked.query.get("resourceVersion") or spoke.version)
            try:
                lines += [event_line(each, only) for each in spoke.since(since, wanted)]
            except Refused as refused:
                lines.append(line("ERROR", status_text(refused)))
        seconds = float(asked.query.get("timeoutSeconds") or 3600)
        self.watch = Watch(self, wanted, only, time.monotonic() + seconds)
        self.served.watches.add(self.watch)
        content = b"".join(lines)
        self.transport.write(STREAM + (chunk(content) if content else b""))
        return 200, None

    def send_chunk(self, content: bytes) -> None:
        """Tell a watch of something."""
        if self.transport is not None:
            self.transport.write(chunk(content))

    def end_stream(self) -> None:
        """End a watch as a server does whose time is up."""
        self.watch = None
        if self.transport is not None:
            self.transport.write(b"0\r\n\r\n")
