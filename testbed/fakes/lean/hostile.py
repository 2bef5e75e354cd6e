"""What a spoke sends that wants to harm its hub: without end, or in the worst form there is."""

import itertools
from collections.abc import Callable, Iterator

from testbed.fakes.lean.leananswers import Asked, chunk, line, response

PROBE = "/api/v1/namespaces/kube-system"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
GOES_ON = '{"metadata":{"resourceVersion":"1","continue":"more"},"items":[%s]}'
AT_ONCE = 64 * 1024
PAGE = 100
DENSE_BYTES = 24 * 1024 * 1024


def named(number: int) -> str:
    """An object like no other."""
    meta = f'"name":"o{number}","namespace":"n","resourceVersion":"{number + 1}"'
    return f'{{"metadata":{{{meta},"annotations":{{"a":"{"x" * 1000}"}}}}}}'


def negative() -> Iterator[bytes]:
    """Chunks with sizes below zero."""
    yield CHUNKED
    while True:
        yield b"-2\r\n" * (AT_ONCE // 4)


def crumbs() -> Iterator[bytes]:
    """Chunks of one byte."""
    yield CHUNKED
    while True:
        yield b"1\r\nx\r\n" * (AT_ONCE // 6)


def endless() -> Iterator[bytes]:
    """A body that never ends."""
    yield UNTIL_CLOSED + b'{"a":"'
    while True:
        yield b"x" * AT_ONCE


def dense() -> Iterator[bytes]:
    """A list whose objects take many times the memory that their text has."""
    yield CHUNKED + chunk(b'{"metadata":{},"items":[{"a":[[]')
    for _ in range(DENSE_BYTES // AT_ONCE):
        yield chunk(b",[]" * (AT_ONCE // 3))
    yield chunk(b"]}]}") + b"0\r\n\r\n"


def page() -> Iterator[bytes]:
    """A page of a list, with more to come."""
    start = next(SERIAL) * PAGE
    items = ",".join(named(number) for number in range(start, start + PAGE))
    yield response(200, (GOES_ON % items).encode())


def empty_page() -> Iterator[bytes]:
    """A page without anything, with more to come."""
    yield response(200, (GOES_ON % "").encode())


def events() -> Iterator[bytes]:
    """A watch on which what exists has no end."""
    yield CHUNKED
    for start in itertools.count(0, PAGE):
        lines = (line("ADDED", named(number).encode()) for number in range(start, start + PAGE))
        yield chunk(b"".join(lines))


def long_line() -> Iterator[bytes]:
    """A watch with an event that has no end."""
    yield CHUNKED + chunk(b'{"type":"ADDED","object":{"a":"')
    while True:
        yield chunk(b"x" * AT_ONCE)


def forgotten() -> Iterator[bytes]:
    """A watch that is always told to list again, after one event."""
    meta = '"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}'
    gone = b'{"kind":"Status","code":410,"reason":"Expired","message":"too old"}'
    lines = line("BOOKMARK", f'{{"metadata":{{{meta}}}}}'.encode()) + line("ERROR", gone)
    yield CHUNKED + chunk(lines) + b"0\r\n\r\n"


SERIAL = itertools.count()
MODES: dict[str, dict[str, Callable[[], Iterator[bytes]]]] = {
    "negative": {"probe": negative},
    "crumbs": {"probe": crumbs},
    "endless": {"probe": endless, "get": endless, "list": endless, "watch": endless},
    "dense": {"list": dense, "watch": long_line},
    "pages": {"list": page, "watch": events},
    "empty": {"list": empty_page, "watch": events},
    "events": {"watch": events},
    "line": {"watch": long_line},
    "forgotten": {"watch": forgotten},
}
"""What is sent instead of a good answer, by the mode and by what was asked."""


def harm(mode: str, asked: Asked) -> Iterator[bytes] | None:
    """What is sent in a mode; None when the request is answered well."""
    what = asked.verb
    if what == "get":
        what = "probe" if asked.path == PROBE else "list" if "limit" in asked.query else "get"
    found = MODES.get(mode, {}).get(what)
    return None if found is None else found()
