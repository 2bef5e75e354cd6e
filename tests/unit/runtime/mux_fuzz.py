"""Random input for one side of a multiplexed connection: frames, broken frames, broken bytes."""

import random

from knfleet.runtime.mux.frames import (
    DATA_LIMIT,
    HEADER,
    ON_CONNECTION,
    SIZES,
    Frame,
    Kind,
    encode,
)
from knfleet.runtime.mux.session import MuxLimits
from knfleet.runtime.mux.stream import HIGH_WATER, WINDOW, StreamReset
from tests.unit.runtime.mux_peers import ManualLoop, Recorder, Side

LIMITS = MuxLimits(streams=16, growth_bytes=256 * 1024)
LIFE = 400
"""After so many inputs a connection is replaced, if it still lives."""


class Fuzz:
    """Feeds a side, has its streams do something at random, and checks what must always hold."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.delivered = 0
        self.begin()
        self.connections = 1

    def begin(self) -> None:
        """A new connection."""
        self.loop = ManualLoop()
        self.side = Side(self.loop, opens=self.random.random() < 0.5, limits=LIMITS)
        self.recorders: list[Recorder] = []
        self.given = 0
        self.feed(encode(Frame(Kind.HELLO, 0)))

    def feed(self, data: bytes) -> None:
        """Bytes arrive, perhaps in two parts."""
        cut = self.random.randrange(len(data) + 1)
        for part in (data[:cut], data[cut:]):
            self.side.session.data_received(part)
        self.loop.run()

    def run(self, inputs: int) -> None:
        """Give so many inputs."""
        for _ in range(inputs):
            self.given += 1
            if self.side.ends or self.given > LIFE:
                self.end()
                self.begin()
                self.connections += 1
            self.act()
            self.side.requests.clear()
            self.feed(self.input())
            self.check()

    def input(self) -> bytes:
        """Something that a peer might send; the protocol allows most of it."""
        if self.random.random() < 0.002:
            return self.random.randbytes(self.random.randrange(1, 300))
        kind = self.random.choice(list(Kind)) if self.random.random() < 0.01 else self.fitting()
        least, most = SIZES[kind]
        number = self.stream(kind)
        known = self.side.session.streams.get(number)
        if kind == Kind.DATA and known is not None and self.random.random() < 0.99:
            most = max(1, min(most, known.credit))
        size = self.random.choice([least, min(most, least + self.random.randrange(2000)), most])
        whole = bytearray(encode(Frame(kind, number, self.random.randbytes(size))))
        if kind == Kind.OPEN:
            whole[HEADER.size :] = b"t" * size
        elif kind == Kind.WINDOW and self.random.random() < 0.99:
            whole[HEADER.size :] = self.random.randrange(1, 100_000).to_bytes(4, "big")
        if self.random.random() < 0.005:
            whole[self.random.randrange(len(whole))] = self.random.randrange(256)
        return bytes(whole)

    def fitting(self) -> Kind:
        """A kind of frame that the peer may send now."""
        session = self.side.session
        kinds = [Kind.PING]
        if session.pinged_at is not None:
            kinds.append(Kind.PONG)
        if session.answers:
            kinds += [Kind.ACCEPT, Kind.ACCEPT]
        if not session.opens:
            kinds.append(Kind.OPEN)
        started = [each for each in session.streams.values() if each.protocol is not None]
        if started:
            kinds += [Kind.WINDOW, Kind.RESET]
        if [each for each in started if each.credit and not each.end_received]:
            kinds += [Kind.DATA] * 6 + [Kind.END]
        return self.random.choice(kinds)

    def stream(self, kind: Kind) -> int:
        """The number of a stream that fits, mostly."""
        session = self.side.session
        if kind in ON_CONNECTION:
            return 0
        if kind == Kind.OPEN:
            return session.last_stream + 1
        waiting = list(session.answers)
        if kind == Kind.ACCEPT and waiting:
            return self.random.choice(waiting)
        known = [
            number
            for number, each in session.streams.items()
            if each.protocol is not None
            and (kind not in {Kind.DATA, Kind.END} or (each.credit and not each.end_received))
        ]
        if known and self.random.random() < 0.999:
            return self.random.choice(known)
        return self.random.randrange(1, session.last_stream + 2)

    def act(self) -> None:
        """Have the user of the streams do something."""
        session = self.side.session
        action = self.random.randrange(12)
        if action == 0 and session.opens and not self.side.ends:
            try:
                _, answer = session.request("target")
                answer.add_done_callback(lambda done: done.exception())
            except StreamReset:
                pass
        for stream in list(session.streams.values()):
            if stream.protocol is None and stream.number not in session.answers:
                recorder = Recorder()
                self.recorders.append(recorder)
                if session.opens:
                    stream.start(recorder)
                    stream.deliver_waiting()
                else:
                    session.accept(stream, recorder)
        if session.streams:
            stream = self.random.choice(list(session.streams.values()))
            if stream.protocol is not None:
                calls = {
                    1: lambda: stream.write(b"x" * self.random.randrange(HIGH_WATER)),
                    2: stream.pause_reading,
                    3: stream.resume_reading,
                    4: stream.write_eof,
                    5: stream.close,
                    6: stream.abort,
                }
                calls.get(action, lambda: None)()
        if action == 7:
            self.loop.advance(self.random.random() * 3)
        self.side.pipe.take(self.random.randrange(200_000))

    def check(self) -> None:
        """What must hold whatever was sent."""
        session = self.side.session
        streams = session.streams.values()
        grown = sum(each.window - WINDOW for each in streams)
        assert session.growth_bytes + grown == LIMITS.growth_bytes
        assert len(session.streams) <= LIMITS.streams
        assert len(session.reader.buffer) <= HEADER.size + DATA_LIMIT
        for each in streams:
            assert len(each.incoming) + each.credit + each.consumed <= each.window
            assert each.send_window >= 0
            assert len(each.outgoing) <= 2 * HIGH_WATER or each.is_protocol_paused
        assert len(self.side.ends) <= 1
        if self.side.ends:
            assert not session.streams
            assert not session.answers

    def end(self) -> None:
        """End the connection: every protocol hears of it exactly once."""
        self.side.session.abort("over")
        self.loop.run()
        assert all(len(each.lost) == 1 for each in self.recorders)
        assert len(self.side.ends) == 1
        self.delivered += sum(len(each.received) for each in self.recorders)
