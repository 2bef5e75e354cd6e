"""Many streams over one connection."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knfleet.runtime.mux.frames import (
    DATA_LIMIT,
    HEADER,
    SIZES,
    Frame,
    FrameReader,
    GoAwayCode,
    Kind,
    ProtocolError,
    ResetCode,
    encode,
    message,
    reset,
    window,
)
from knfleet.runtime.mux.session import CONTROL_BUFFER, SEND_BUFFER, MuxLimits
from knfleet.runtime.mux.stream import HIGH_WATER, WINDOW, WINDOW_LIMIT, StreamReset
from tests.unit.runtime.mux_peers import Pair, Recorder


def stream_of(protocol: Recorder) -> Any:
    """The transport of a protocol."""
    assert protocol.transport is not None
    return protocol.transport


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    kind = draw(st.sampled_from(Kind))
    least, most = SIZES[kind]
    payload = draw(st.binary(min_size=least, max_size=min(most, 200)))
    on_connection = kind in {Kind.HELLO, Kind.PING, Kind.PONG, Kind.GOAWAY}
    return Frame(kind, 0 if on_connection else draw(st.integers(1, 2**32 - 1)), payload)


@given(st.lists(frames(), max_size=20), st.integers(1, 64))
def test_frames_are_read_as_they_were_written_however_they_are_cut(sent: list[Frame], size: int):
    reader = FrameReader()
    whole = b"".join(map(encode, sent))

    read = [
        frame
        for start in range(0, len(whole), size)
        for frame in reader.feed(whole[start : start + size])
    ]

    assert read == sent
    assert reader.buffer == b""


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ((0, 0, 0), "unknown kind of frame: 0"),
        ((255, 1, 4), "unknown kind of frame: 255"),
        ((Kind.DATA, 1, DATA_LIMIT + 1), "DATA frame of 65537 bytes"),
        ((Kind.DATA, 1, 2**32 - 1), "DATA frame of 4294967295 bytes"),
        ((Kind.DATA, 0, 1), "DATA frame on stream 0"),
        ((Kind.PING, 1, 8), "PING frame on stream 1"),
        ((Kind.WINDOW, 1, 5), "WINDOW frame of 5 bytes"),
    ],
)
def test_a_bad_header_is_refused_before_its_payload_is_awaited(
    header: tuple[int, int, int], problem: str
):
    with pytest.raises(ProtocolError, match=problem):
        list(FrameReader().feed(HEADER.pack(*header)))


@given(st.text())
def test_messages_are_printable_and_short(text: str):
    assert len(message(text)) <= 512
    assert all(each.isprintable() for each in message(text).decode(errors="replace"))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_every_stream_delivers_what_was_written_in_order(data: st.DataObject):
    """Whatever is written, paused, ended and however bytes are cut: nothing lost or mixed up."""
    pair = Pair()
    protocols = [each for _ in range(data.draw(st.integers(1, 4))) for each in pair.open()]
    written = {each: bytearray() for each in protocols}
    closed: set[Recorder] = set()

    for number in range(data.draw(st.integers(1, 25))):
        protocol = data.draw(st.sampled_from(protocols))
        action = data.draw(st.sampled_from(["write", "write", "pause", "resume", "end", "step"]))
        if action == "write" and protocol not in closed:
            chunk = bytes([number]) * data.draw(st.integers(1, 100_000))
            stream_of(protocol).write(chunk)
            written[protocol] += chunk
        elif action == "pause":
            stream_of(protocol).pause_reading()
        elif action == "resume":
            stream_of(protocol).resume_reading()
        elif action == "end":
            stream_of(protocol).write_eof()
            closed.add(protocol)
        else:
            pair.step(data.draw(st.integers(1, 200_000)))
    for protocol in protocols:
        if protocol not in closed:
            stream_of(protocol).write_eof()
        stream_of(protocol).resume_reading()
    pair.settle(data.draw(st.integers(1000, 100_000)))

    for here, there in zip(protocols[::2], protocols[1::2], strict=True):
        assert there.received == written[here]
        assert here.received == written[there]
        assert here.lost == there.lost == [None]
    assert pair.hub.session.streams == pair.agent.session.streams == {}
    assert pair.hub.session.growth_bytes == pair.agent.session.growth_bytes == 16 * 2**20
    assert pair.hub.ends == pair.agent.ends == []


def test_a_stream_that_is_not_read_holds_no_more_than_its_window_and_stops_no_other():
    pair = Pair()
    stalled, sender = pair.open()
    stream_of(stalled).pause_reading()
    stream_of(sender).write(b"x" * 10 * WINDOW)
    pair.settle()
    assert len(stream_of(stalled).incoming) == WINDOW
    assert sender.is_paused

    other, other_sender = pair.open()
    for _ in range(50):
        stream_of(other_sender).write(b"y" * 100_000)
        pair.settle()

    assert len(other.received) == 5_000_000
    assert stalled.received == b""
    stream_of(stalled).resume_reading()
    pair.settle()
    assert stalled.received == b"x" * 10 * WINDOW
    assert not sender.is_paused


def test_windows_grow_for_streams_that_are_read_within_the_budget_of_all():
    pair = Pair(MuxLimits(growth_bytes=WINDOW_LIMIT))
    first, first_sender = pair.open()
    second, second_sender = pair.open()
    for sender in (first_sender, second_sender):
        for _ in range(100):
            stream_of(sender).write(b"x" * HIGH_WATER)
            pair.settle()

    assert stream_of(first).window == WINDOW_LIMIT
    assert stream_of(second).window == 2 * WINDOW
    assert pair.hub.session.growth_bytes == 0
    stream_of(first).close()
    pair.settle()
    assert pair.hub.session.growth_bytes == WINDOW_LIMIT - WINDOW


def test_streams_take_turns_when_the_connection_is_full():
    pair = Pair()
    _, one = pair.open()
    _, two = pair.open()
    pair.agent.pipe.high = 1
    stream_of(one).write(b"1" * WINDOW)
    stream_of(one).write(b"1" * WINDOW)
    stream_of(two).write(b"2" * 100)

    sent: list[int] = []
    while taken := pair.agent.pipe.take():
        sent += [frame.stream for frame in FrameReader().feed(taken)]

    assert sent[:2] == [1, 2]


def test_an_end_in_one_direction_leaves_the_other_open():
    pair = Pair()
    here, there = pair.open()
    stream_of(here).write(b"question")
    stream_of(here).write_eof()
    pair.settle()
    assert (there.received, there.has_ended, there.lost) == (b"question", True, [])

    stream_of(there).write(b"answer")
    stream_of(there).close()
    pair.settle()

    assert (here.received, here.has_ended, here.lost) == (b"answer", True, [None])


def test_what_was_sent_before_a_close_is_delivered_also_to_a_slow_reader():
    pair = Pair()
    here, there = pair.open()
    stream_of(here).pause_reading()
    stream_of(there).write(b"last words")
    stream_of(there).close()
    pair.settle()
    assert there.lost == [None]
    assert here.lost == []

    stream_of(here).resume_reading()
    pair.settle()

    assert (here.received, here.has_ended, here.lost) == (b"last words", True, [None])


def test_a_reset_ends_a_stream_at_once_on_both_sides():
    pair = Pair()
    here, there = pair.open()

    stream_of(there).refuse(ResetCode.UNREACHABLE, "gone")
    stream_of(here).write(b"still on its way")
    pair.settle()

    assert there.lost == [None]
    assert [str(each) for each in here.lost] == ["gone"]
    assert pair.hub.ends == pair.agent.ends == []


def test_a_refused_stream_carries_the_reason():
    pair = Pair()
    _, answer = pair.hub.session.request("10.0.0.1:22")
    pair.settle()

    pair.agent.requests.pop().refuse(ResetCode.NOT_ALLOWED, "10.0.0.1:22 is not allowed")
    pair.settle()

    with pytest.raises(StreamReset, match=r"10.0.0.1:22 is not allowed") as caught:
        answer.result()
    assert caught.value.code == ResetCode.NOT_ALLOWED


def test_streams_over_the_limit_are_refused_and_the_others_go_on():
    pair = Pair(MuxLimits(streams=2))
    here, there = pair.open()
    pair.open()

    with pytest.raises(StreamReset, match="its 2 streams already"):
        pair.hub.session.request("third")
    for number in range(3, 10_003):
        pair.agent.session.data_received(encode(Frame(Kind.OPEN, number, b"x")))
    refused = list(FrameReader().feed(pair.agent.pipe.take()))

    assert {frame.kind for frame in refused} == {Kind.RESET}
    assert len(pair.agent.session.streams) == 2
    stream_of(there).write(b"fine")
    pair.settle()
    assert here.received == b"fine"


def test_an_answer_of_ten_bytes_a_second_stays_open_and_delays_no_other():
    """It is alive, however slow; the answers of others pass at once, and nothing piles up."""
    pair = Pair()
    slow, slow_there = pair.open()
    other, other_there = pair.open()

    for second in range(1, 3601):
        stream_of(slow_there).write(b"0123456789")
        pair.loop.advance(1)
        pair.settle()
        assert len(slow.received) == 10 * second
    stream_of(other_there).write(b"x" * WINDOW)
    pair.settle()

    assert len(other.received) == WINDOW
    assert not pair.hub.ends
    assert not pair.agent.ends
    assert not slow.lost


BROKEN: list[tuple[str, Callable[[], bytes], str]] = [
    ("garbage", lambda: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "unknown kind of frame: 71"),
    ("second greeting", lambda: encode(Frame(Kind.HELLO, 0)), "second HELLO"),
    ("data beyond the window", lambda: encode(Frame(Kind.DATA, 1, b"x" * DATA_LIMIT)) * 2, "more"),
    ("a stream that never was", lambda: encode(Frame(Kind.END, 9)), "never opened"),
    ("data after the end", lambda: encode(Frame(Kind.END, 1)) * 2, "second END"),
    ("a window of nothing", lambda: encode(window(1, 0)), "window of"),
    ("a window too large", lambda: encode(window(1, 2**32 - 1)), "window of"),
    ("an answer to no question", lambda: encode(Frame(Kind.PONG, 0, b"12345678")), "PONG"),
    ("accepted twice", lambda: encode(Frame(Kind.ACCEPT, 1)), "ACCEPT of stream 1"),
    ("opened by the wrong side", lambda: encode(Frame(Kind.OPEN, 2, b"x")), "OPEN of stream 2"),
]


@pytest.mark.parametrize(("name", "sent", "problem"), BROKEN, ids=[each[0] for each in BROKEN])
def test_a_peer_that_breaks_the_protocol_is_cut_off(
    name: str, sent: Callable[[], bytes], problem: str
):
    pair = Pair()
    here, _ = pair.open()
    stream_of(here).pause_reading()

    pair.hub.session.data_received(sent())
    pair.loop.run()

    assert problem in pair.hub.ends[0]
    assert pair.hub.pipe.closed
    assert len(here.lost) == 1
    assert pair.hub.session.streams == {}


def test_frames_before_the_greeting_are_refused():
    pair = Pair()

    pair.agent.session.data_received(encode(Frame(Kind.OPEN, 1, b"x")))

    assert pair.agent.ends == ["protocol error: OPEN before HELLO"]


def test_a_connection_without_a_greeting_ends():
    pair = Pair()

    pair.loop.advance(10)

    assert pair.hub.ends == ["no greeting within 10 s"]


def test_a_silent_peer_is_dead_and_a_live_one_is_measured():
    pair = Pair()
    pair.settle()
    pair.loop.advance(10)
    pair.loop.now += 0.25
    pair.settle()
    assert pair.hub.session.round_trip_seconds == 0.25

    pair.hub.pipe.take()
    for _ in range(8):
        pair.loop.advance(5)
        pair.hub.pipe.take()
        pair.agent.pipe.take()

    assert "nothing received for" in pair.hub.ends[0]
    assert "nothing received for" in pair.agent.ends[0]


def test_a_peer_that_reads_nothing_is_cut_off():
    pair = Pair()
    _, sender = pair.open()
    stream_of(sender).write(b"x" * WINDOW)
    pair.agent.pipe.high = 0
    pair.agent.pipe.write(b"")
    for _ in range(12):
        pair.loop.advance(9)
        pair.agent.session.data_received(encode(Frame(Kind.PING, 0, b"12345678")))

    assert pair.agent.ends
    assert "has read nothing" in pair.agent.ends[0]


def test_answers_to_a_flood_of_pings_take_no_endless_memory():
    pair = Pair()
    pair.settle()
    most = 0
    for _ in range(100_000):
        pair.agent.session.data_received(encode(Frame(Kind.PING, 0, b"12345678")))
        pair.loop.run()
        most = max(most, len(pair.agent.pipe.kept))
        if pair.agent.ends:
            break

    assert pair.agent.ends == ["the peer does not read"]
    assert most < 2 * (SEND_BUFFER + CONTROL_BUFFER)


def test_a_drained_connection_ends_with_its_last_stream():
    pair = Pair()
    here, there = pair.open()
    pair.hub.session.drain(GoAwayCode.STOPPING, "the hub restarts")
    pair.settle()
    assert pair.agent.drains == [(GoAwayCode.STOPPING, "the hub restarts")]
    with pytest.raises(StreamReset, match="closing"):
        pair.hub.session.request("another")
    stream_of(there).write(b"rest")
    pair.settle()
    assert here.received == b"rest"

    stream_of(here).close()
    pair.settle()

    assert pair.hub.ends == ["the hub restarts"]


def test_frames_of_streams_that_have_just_ended_are_passed_over():
    pair = Pair()
    here, there = pair.open()
    stream_of(here).abort()
    for late in (
        Frame(Kind.DATA, 1, b"x"),
        window(1, 5),
        Frame(Kind.END, 1),
        reset(1, ResetCode(1)),
    ):
        pair.hub.session.data_received(encode(late))

    pair.settle()

    assert pair.hub.ends == []
    assert len(there.lost) == 1
