"""Parts of the node that need no root: names, images, and what becomes of errors."""

import struct

import pytest

from knfleet.dev.node.containers.container_command import CommandNotFound
from testbed.serve.dns import BadQuery, Found, Question, answer, encoded, parse
from testbed.serve.images import Image, Images, repository
from testbed.serve.programs import packages, program_name

NAMES = {
    "web.shop.svc.cluster.local": Found(("198.18.0.7",)),
    "pods.shop.svc.cluster.local": Found(("198.19.0.1", "198.19.0.2")),
    "hello.shop.svc.cluster.local": Found(alias="web.shop.svc.cluster.local"),
    "loop.shop.svc.cluster.local": Found(alias="loop.shop.svc.cluster.local"),
}


def query(name: str, kind: int = 1) -> bytes:
    """A packet as a resolver sends it."""
    head = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0)
    return head + encoded(name) + struct.pack(">HH", kind, 1)


def answered(name: str, kind: int = 1) -> tuple[int, int, bytes]:
    """Code, number of records and all records of an answer."""
    sent = query(name, kind)
    packet = answer(parse(sent), NAMES.get)
    number, flags, _, count, _, _ = struct.unpack_from(">HHHHHH", packet)
    assert number == 7
    assert packet[12 : len(sent)] == sent[12:]
    return flags & 15, count, packet[len(sent) :]


def test_names_of_services_have_their_addresses():
    code, count, records = answered("pods.shop.svc.cluster.local")

    assert (code, count) == (0, 2)
    assert bytes([198, 19, 0, 1]) in records
    assert bytes([198, 19, 0, 2]) in records


def test_an_alias_is_followed_but_not_for_ever():
    code, count, records = answered("hello.shop.svc.cluster.local")

    assert (code, count) == (0, 2)
    assert records.endswith(bytes([198, 18, 0, 7]))
    assert answered("loop.shop.svc.cluster.local")[1] < 10


def test_other_names_and_other_types_have_no_address():
    assert answered("gone.shop.svc.cluster.local")[:2] == (3, 0)
    assert answered("example.com")[:2] == (3, 0)
    assert answered("web.shop.svc.cluster.local", kind=28)[:2] == (0, 0)


@pytest.mark.parametrize(
    "sent", [b"", query("a")[:14], query("a")[:12] + b"\xc0\x0c\0\1\0\1", b"\0\7\x80\0\0\1" * 2]
)
def test_what_is_no_question_is_refused(sent: bytes):
    with pytest.raises(BadQuery):
        parse(sent)


def test_names_are_compared_in_small_letters():
    assert parse(query("WEB.Shop")) == Question(7, 0x0100, "web.shop", 1, query("WEB.Shop")[12:])


@pytest.mark.parametrize(
    "reference",
    [
        "gcr.io/knative-releases/knative.dev/serving/cmd/queue@sha256:0123",
        "gcr.io/knative-releases/knative.dev/serving/cmd/queue:v1",
        "knative.dev/serving/cmd/queue",
    ],
)
def test_an_image_is_known_by_its_repository(reference: str):
    assert repository(reference) == "knative.dev/serving/cmd/queue"


def test_a_registry_with_a_port_is_no_tag():
    assert repository("localhost:5000/web:1") == "localhost:5000/web"


def test_an_unknown_image_keeps_its_container_from_running():
    images = Images({"web": Image(("/web",), {})})

    assert images.find("web:1").entrypoint == ("/web",)
    with pytest.raises(CommandNotFound, match="no such image"):
        images.find("shop:1")


def test_every_program_has_a_name_of_its_own():
    found = packages()

    assert "knative.dev/serving/cmd/queue" in found
    assert len({program_name(each) for each in found}) == len(found)
