"""The DNS server of a cluster: names of Services and of the pods behind headless ones.

It answers for `cluster.local` alone, over UDP; any other name does not exist.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from typing import cast

from msgspec import Struct

ZONE = "cluster.local"
TYPE_A, TYPE_CNAME, CLASS_IN = 1, 5, 1
NO_ERROR, BAD_FORMAT, NO_NAME, NOT_HERE = 0, 1, 3, 4
TTL_SECONDS = 5
MOST_ADDRESSES = 24
"""So many fit into an answer of 512 bytes."""
ALIASES = 4


class Found(Struct, frozen=True):
    """What a name means: addresses, or another name."""

    addresses: tuple[str, ...] = ()
    alias: str = ""


Lookup = Callable[[str], Found | None]
"""What a name in small letters and without its last dot means; None for one that is not there."""


class BadQuery(ValueError):
    """Not one question that we understand."""


class Question(Struct, frozen=True):
    """What a client asks."""

    number: int
    flags: int
    name: str
    type: int
    raw: bytes
    """The question as it was sent, which the answer repeats."""


def parse(packet: bytes) -> Question:
    """The question in a packet; raises `BadQuery`."""
    if len(packet) < 12:
        raise BadQuery("shorter than a header")
    number, flags, count = struct.unpack_from(">HHH", packet)
    if flags & 0x8000 or flags & 0x7800 or count != 1:
        raise BadQuery("not one standard query")
    labels: list[str] = []
    at = 12
    while True:
        if at >= len(packet):
            raise BadQuery("the name does not end")
        length = packet[at]
        if length > 63:
            raise BadQuery("a compressed name in a question")
        label = packet[at + 1 : at + 1 + length]
        at += 1 + length
        if not length:
            break
        labels.append(label.decode("latin-1").lower())
    if at + 4 > len(packet):
        raise BadQuery("no type and class")
    kind, _ = struct.unpack_from(">HH", packet, at)
    return Question(number, flags, ".".join(labels), kind, packet[12 : at + 4])


def answer(question: Question, lookup: Lookup) -> bytes:
    """The packet that answers a question."""
    name = question.name
    if name != ZONE and not name.endswith(f".{ZONE}"):
        return packet(question, NO_NAME, [])
    found = lookup(name)
    if found is None:
        return packet(question, NO_NAME, [])
    return packet(question, NO_ERROR, list(records(question, found, lookup)))


def records(question: Question, found: Found, lookup: Lookup) -> Iterator[bytes]:
    """The records of an answer, aliases followed."""
    owner = question.name
    for _ in range(ALIASES):
        if not found.alias:
            break
        yield record(owner, TYPE_CNAME, encoded(found.alias))
        owner, found = found.alias, lookup(found.alias) or Found()
    if question.type == TYPE_A:
        for address in found.addresses[:MOST_ADDRESSES]:
            yield record(owner, TYPE_A, IPv4Address(address).packed)


def record(owner: str, kind: int, content: bytes) -> bytes:
    """One record."""
    head = struct.pack(">HHIH", kind, CLASS_IN, TTL_SECONDS, len(content))
    return encoded(owner) + head + content


def encoded(name: str) -> bytes:
    """A name as it is sent."""
    labels = [label.encode("latin-1") for label in name.split(".")]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def packet(question: Question, code: int, answers: list[bytes]) -> bytes:
    """An answer with its head; it is ours to give, and recursion is not offered."""
    flags = 0x8400 | (question.flags & 0x0100) | code
    head = struct.pack(">HHHHHH", question.number, flags, 1, len(answers), 0, 0)
    return head + question.raw + b"".join(answers)


class DnsServer(asyncio.DatagramProtocol):
    """Answers queries that come to a socket."""

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup
        self.transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer a question; what is none gets no answer."""
        try:
            question = parse(data)
        except BadQuery:
            return
        if self.transport is not None:
            self.transport.sendto(answer(question, self.lookup), addr)


async def serve(made: socket.socket, lookup: Lookup) -> None:
    """Answer queries until cancelled."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: DnsServer(lookup), sock=made)
    try:
        await loop.create_future()
    finally:
        transport.close()
