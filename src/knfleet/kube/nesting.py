"""Objects that are nested deeper than any of Kubernetes: they are read, but only so far.

API servers store ten thousand levels where a kind permits any content, which is more than decoders
take. One such object must not keep all others of its kind from being read.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec

from knfleet.api.meta import Object

DEEPEST = 200
"""Levels of an object that are read."""
TOO_DEEP = "nested too deep to be read"
"""What stands for everything below."""
TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
MARK = b'"' + TOO_DEEP.encode() + b'"'

T = TypeVar("T")


def bounded_depth(decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """A decoder that also reads what is nested too deep; it raises `msgspec.DecodeError` alone."""

    def read(text: bytes) -> T:
        try:
            try:
                return decode(text)
            except RecursionError:
                return decode(shallow(bytes(text)))
        except UnicodeDecodeError:
            raise msgspec.DecodeError("text that is not UTF-8") from None

    return read


def shallow(text: bytes, deepest: int = DEEPEST) -> bytes:
    """JSON in which a mark stands for what is nested too deep."""
    parts: list[bytes] = []
    depth = begin = 0
    for found in TOKEN.finditer(text):
        token = found[0]
        if token in (b"[", b"{"):
            depth += 1
            if depth == deepest + 1:
                parts += (text[begin : found.start()], MARK)
        elif token in (b"]", b"}"):
            if depth == deepest + 1:
                begin = found.end()
            depth -= 1
    return b"".join([*parts, text[begin:]])


def flattened(manifest: Object, deepest: int = DEEPEST) -> Object:
    """The same of an object that is decoded already; changes the object itself."""
    level: list[Any] = [manifest]
    for _ in range(deepest - 1):
        level = [each for value in level for each in inner(value)]
    for value in level:
        places: Any = value.items() if isinstance(value, dict) else enumerate(value)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  any JSON
        for place, each in list(places):
            if isinstance(each, dict | list):
                value[place] = TOO_DEEP
    return manifest


def inner(value: Any) -> list[Any]:
    """The maps and lists directly within a map or list."""
    values = cast("Any", value.values() if isinstance(value, dict) else value)
    return [each for each in values if isinstance(each, dict | list)]
