"""Watches: a stream of lines, each an event."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import msgspec
from msgspec import Struct

from knfleet.api.meta import Object, Resource
from knfleet.kube.client.memory_budget import weight
from knfleet.kube.client.responses import excerpt, name_kind, read_status, status_error
from knfleet.kube.client.transport import Call, Transport
from knfleet.kube.errors import BadResponse, ConnectionInterrupted
from knfleet.kube.nesting import bounded_depth

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class WatchEvent(Struct, frozen=True):
    """One event: ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""

    type: str
    object: Object
    weight: int = 0
    """About how much memory it takes."""

    @property
    def ends_initial_events(self) -> bool:
        """Whether everything that existed when the watch began was sent before this bookmark."""
        if self.type != "BOOKMARK":
            return False
        annotations: dict[str, str] = self.object["metadata"].get("annotations") or {}
        return annotations.get(INITIAL_EVENTS_END) == "true"


class RawEvent(Struct):
    """An event whose object is still text."""

    type: str
    object: msgspec.Raw


read_event = bounded_depth(msgspec.json.Decoder(WatchEvent).decode)
read_raw_event = bounded_depth(msgspec.json.Decoder(RawEvent).decode)


class LineTooLong(ValueError):
    """A line is longer than allowed."""


class LineBuffer:
    """Cuts chunks into lines; each byte is looked at once and copied at most twice."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.parts: list[bytes] = []
        self.size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk."""
        first, *rest = chunk.split(b"\n")
        self.append(first)
        if not rest:
            return []
        whole = b"".join(self.parts)
        *lines, last = rest
        self.parts, self.size = [], 0
        self.append(last)
        return [line for line in (whole, *lines) if line]

    def append(self, part: bytes) -> None:
        """Remember a part of an unfinished line."""
        if part:
            self.parts.append(part)
            self.size += len(part)
            if self.size > self.limit:
                raise LineTooLong

    @property
    def rest(self) -> bytes:
        """What came after the last line's end."""
        return b"".join(self.parts)


@asynccontextmanager
async def open_watch(
    transport: Transport, call: Call, resource: Resource
) -> AsyncGenerator[AsyncIterator[WatchEvent], None]:
    """A watch that the server has accepted."""
    where = transport.where(call)
    limit = transport.options.line_limit_bytes
    async with transport.stream(call) as response:

        async def events() -> AsyncGenerator[WatchEvent, None]:
            lines = LineBuffer(limit)
            try:
                async for chunk in response.content.iter_any():
                    fed = [(line, weight(line)) for line in lines.feed(chunk)]
                    await transport.reading.acquire(sum(size for _, size in fed))
                    for line, size in fed:
                        transport.budget.check(size, where)
                        event = event_of(line, where, resource)
                        yield WatchEvent(event.type, event.object, size)
            except LineTooLong:
                transport.budget.refuse(f"{where}: an event is larger than {limit} bytes")
            if lines.rest.strip():
                raise ConnectionInterrupted(f"{where}: the watch ended in the middle of an event")

        async with aclosing(events()) as stream:
            yield stream


def event_of(line: bytes, where: str, resource: Resource) -> WatchEvent:
    """The event on a line; one that reports an error is raised."""
    try:
        event = read_event(line)
        status = read_status(read_raw_event(line).object) if event.type == "ERROR" else None
    except msgspec.DecodeError as error:
        raise BadResponse(f"{where}: not a watch event: {excerpt(line)}") from error
    if status is not None:
        raise status_error(status, where)
    name_kind(event.object, resource)
    return event
