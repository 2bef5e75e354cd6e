"""How much a client has sent of messages that are not complete. Pure.

The gRPC server keeps the bytes of a message until its last one has come, and takes many messages at
once on a connection. So the frames of HTTP/2 are looked at, and nothing in them: a client whose
messages do not end is found before it has filled the memory.
"""

import struct

PREFACE_BYTES = 24
"""What a client of HTTP/2 sends before its first frame."""
HEADER = struct.Struct(">HBBBI")
"""Of a frame: length in 24 bits, type, flags, stream."""
DATA, HEADERS, RST_STREAM = 0, 1, 3
END_STREAM = 1
STREAM_BYTES = 1024
"""What a stream counts beside its bytes."""
SMALL_BYTES = 32
"""A frame that carries less is small: it costs as much to look at as any other."""


class UploadMeter:
    """Counts what one connection has open."""

    def __init__(self) -> None:
        self.skip = PREFACE_BYTES
        """So many bytes come before the next header."""
        self.header = bytearray()
        self.streams: dict[int, int] = {}
        self.held = 0
        """How much all streams together count that have not ended."""
        self.small = 0
        """How many small frames there were."""

    def feed(self, data: bytes) -> int:
        """Look at what was sent; by how much `held` has changed."""
        before, position = self.held, 0
        while position < len(data):
            if self.skip:
                step = min(self.skip, len(data) - position)
                self.skip -= step
            else:
                step = HEADER.size - len(self.header)
                self.header += data[position : position + step]
                if len(self.header) == HEADER.size:
                    self.frame()
            position += step
        return self.held - before

    def frame(self) -> None:
        """A frame begins."""
        high, low, kind, flags, number = HEADER.unpack(self.header)
        self.header.clear()
        self.skip = length = (high << 8) + low
        self.small += length < SMALL_BYTES
        stream = number & 0x7FFFFFFF
        if kind == DATA and length:
            counted = length + (0 if stream in self.streams else STREAM_BYTES)
            self.streams[stream] = self.streams.get(stream, 0) + counted
            self.held += counted
        if kind == RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM):
            self.held -= self.streams.pop(stream, 0)
