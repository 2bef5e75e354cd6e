"""Frames of a multiplexed connection, as bytes. Pure.

A frame has a header of nine bytes, big endian, and a payload:

    kind    1 byte
    stream  4 bytes; 0: the whole connection
    length  4 bytes; of the payload

    HELLO    first frame of each side; settings of the sender, for the layer above
    OPEN     a new stream; payload: name of the target
    ACCEPT   the stream is connected to its target
    DATA     bytes of a stream
    WINDOW   the receiver of a stream accepts so many more bytes; payload: 4 bytes
    END      no more bytes follow in this direction
    RESET    the stream is over in both directions; payload: code, 1 byte, and a message
    PING     to be answered by PONG with the same 8 bytes
    PONG
    GOAWAY   the sender wants no new streams; payload: code, 1 byte, and a message

Every kind has a limit of its own, so that a receiver never waits for more than 64 KiB.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

HEADER = struct.Struct(">BII")
WINDOW_INCREMENT = struct.Struct(">I")
DATA_LIMIT = 64 * 1024
TARGET_LIMIT = 512
MESSAGE_LIMIT = 512
HELLO_LIMIT = 4096
TOKEN_SIZE = 8
"""Of what a PING carries."""


class Kind(IntEnum):
    """What a frame is for."""

    HELLO = 1
    OPEN = 2
    ACCEPT = 3
    DATA = 4
    WINDOW = 5
    END = 6
    RESET = 7
    PING = 8
    PONG = 9
    GOAWAY = 10


class ResetCode(IntEnum):
    """Why a stream is over."""

    CLOSED = 0
    """One side closed it in both directions; nothing went wrong."""
    REFUSED = 1
    """Too many streams, or none are accepted any more."""
    NOT_ALLOWED = 2
    """The target is not one that may be reached."""
    UNREACHABLE = 3
    """The target does not accept connections."""
    TIMEOUT = 4
    ABORTED = 5
    """The connection to the target, or to the client, broke."""


class GoAwayCode(IntEnum):
    """Why no new streams are wanted."""

    STOPPING = 0
    """The process ends; connect again."""
    REPLACED = 1
    """There is a newer connection for the same purpose."""
    DENIED = 2
    """The peer may not be connected."""


SIZES: dict[int, tuple[int, int]] = {
    Kind.HELLO: (0, HELLO_LIMIT),
    Kind.OPEN: (1, TARGET_LIMIT),
    Kind.ACCEPT: (0, 0),
    Kind.DATA: (1, DATA_LIMIT),
    Kind.WINDOW: (4, 4),
    Kind.END: (0, 0),
    Kind.RESET: (1, 1 + MESSAGE_LIMIT),
    Kind.PING: (TOKEN_SIZE, TOKEN_SIZE),
    Kind.PONG: (TOKEN_SIZE, TOKEN_SIZE),
    Kind.GOAWAY: (1, 1 + MESSAGE_LIMIT),
}
"""The least and the greatest length of a payload, by kind."""
ON_CONNECTION = frozenset({Kind.HELLO, Kind.PING, Kind.PONG, Kind.GOAWAY})


class ProtocolError(Exception):
    """The peer sent something that the protocol does not allow; the connection is of no use."""


class Frame(NamedTuple):
    """One frame."""

    kind: Kind
    stream: int
    payload: bytes = b""


def encode(frame: Frame) -> bytes:
    """A frame as it is sent."""
    return HEADER.pack(frame.kind, frame.stream, len(frame.payload)) + frame.payload


def message(text: str) -> bytes:
    """A message as frames carry it: cut to the limit, no control characters."""
    clean = "".join(each if each.isprintable() else " " for each in text)
    return clean.encode(errors="replace")[:MESSAGE_LIMIT]


def message_text(payload: bytes) -> str:
    """A message of the peer; it may be anything, so it is made printable."""
    text = payload.decode(errors="replace")
    return "".join(each if each.isprintable() else " " for each in text)


def reset(stream: int, code: ResetCode, text: str = "") -> Frame:
    """The frame that ends a stream."""
    return Frame(Kind.RESET, stream, bytes([code]) + message(text))


def goaway(code: GoAwayCode, text: str) -> Frame:
    """The frame that ends the opening of streams."""
    return Frame(Kind.GOAWAY, 0, bytes([code]) + message(text))


def window(stream: int, increment: int) -> Frame:
    """The frame that lets the peer send more."""
    return Frame(Kind.WINDOW, stream, WINDOW_INCREMENT.pack(increment))


class FrameReader:
    """Cuts what arrives into frames; holds at most one incomplete frame.

    Payloads are copied once, out of what was received; only a frame that arrives in parts is
    put together first.
    """

    def __init__(self) -> None:
        self.buffer = bytearray()
        """The beginning of a frame that is not complete."""

    def feed(self, received: bytes) -> Iterator[Frame]:
        """The frames that are complete now; raises `ProtocolError` at the first bad header."""
        position = 0
        if self.buffer:
            position = self.fill(received, 0, HEADER.size)
            if len(self.buffer) < HEADER.size:
                return
            number, stream, length = HEADER.unpack_from(self.buffer)
            kind = checked(number, stream, length)
            position = self.fill(received, position, HEADER.size + length)
            if len(self.buffer) < HEADER.size + length:
                return
            payload = bytes(memoryview(self.buffer)[HEADER.size :])
            self.buffer.clear()
            yield Frame(kind, stream, payload)
        size = len(received)
        while size - position >= HEADER.size:
            number, stream, length = HEADER.unpack_from(received, position)
            kind = checked(number, stream, length)
            end = position + HEADER.size + length
            if size < end:
                break
            payload = received[position + HEADER.size : end]
            position = end
            yield Frame(kind, stream, payload)
        self.buffer += memoryview(received)[position:]

    def fill(self, received: bytes, position: int, wanted: int) -> int:
        """Add to the incomplete frame until it has so many bytes; where to go on."""
        missing = max(0, wanted - len(self.buffer))
        self.buffer += memoryview(received)[position : position + missing]
        return min(len(received), position + missing)


def checked(number: int, stream: int, length: int) -> Kind:
    """The kind of a frame with a header that the protocol allows."""
    limits = SIZES.get(number)
    if limits is None:
        raise ProtocolError(f"unknown kind of frame: {number}")
    kind = Kind(number)
    least, most = limits
    if not least <= length <= most:
        raise ProtocolError(f"{kind.name} frame of {length} bytes; allowed are {least} to {most}")
    if (stream == 0) != (kind in ON_CONNECTION):
        raise ProtocolError(f"{kind.name} frame on stream {stream}")
    return kind
