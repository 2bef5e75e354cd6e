"""Objects that are nested deeper than decoders go."""

from typing import Any

import msgspec
import pytest

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import Object
from knfleet.kube.errors import BadResponse
from knfleet.kube.nesting import TOO_DEEP, flattened, shallow
from testbed.fakes.clients import client_for
from testbed.fakes.server import Server, answer, stream

DEEP = b"[" * 3000 + b"]" * 3000
META = b'"metadata":{"name":"a","namespace":"n","resourceVersion":"1"}'
OBJECT = b'{"kind":"ConfigMap",' + META + b',"data":{"x":' + DEEP + b',"y":"]{"}}'


def levels(value: Any) -> int:
    """How deep lists are nested."""
    depth = 0
    while isinstance(value, list) and value:
        value, depth = value[0], depth + 1  # pyright: ignore[reportUnknownVariableType]  any JSON
    assert value in (TOO_DEEP, [])
    return depth


async def test_an_object_is_read_as_far_as_others_go():
    async with Server(answer(OBJECT)) as server, client_for(server.url) as client:
        found = await client.get(CONFIG_MAPS, "a", "n")

    assert found["data"]["y"] == "]{"
    assert levels(found["data"]["x"]) == 198


async def test_one_object_of_a_list_hides_no_other():
    text = b'{"metadata":{"resourceVersion":"1"},"items":[' + OBJECT + b",{" + META + b"}]}"
    async with Server(answer(text)) as server, client_for(server.url) as client:
        found = await client.list(CONFIG_MAPS, "n")

    assert len(found.items) == 2


async def test_a_watch_goes_on():
    line = b'{"type":"ADDED","object":' + OBJECT + b"}\n"
    async with Server(stream(line)) as server, client_for(server.url) as client:
        events = [each async for each in client.watch(CONFIG_MAPS, since="1")]

    assert [each.object["metadata"]["name"] for each in events] == ["a"]


async def test_other_answers_of_a_server_are_errors_of_that_server():
    deep = b'{"gitVersion":' + DEEP + b"}"
    async with Server(answer(deep)) as server, client_for(server.url) as client:
        with pytest.raises(BadResponse):
            await client.version()


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (b'{"a":[1,{"b":2}],"c":3}', b'{"a":[1,"MARK"],"c":3}'),
        (b'["\\"[[[",[[1],[2]]]', b'["\\"[[[",["MARK","MARK"]]'),
        (b'"[[[["', b'"[[[["'),
    ],
)
def test_a_mark_stands_for_what_is_too_deep(text: bytes, read: bytes):
    assert shallow(text, 2) == read.replace(b"MARK", TOO_DEEP.encode())


def test_objects_that_are_decoded_already_are_cut_off_in_the_same_way():
    text = b'{"a":[1,{"b":2},[]],"c":{"d":{"e":1}},"f":3}'
    decoded: Object = msgspec.json.decode(text)

    assert flattened(decoded, 2) == msgspec.json.decode(shallow(text, 2))


@pytest.mark.parametrize(
    "spoiled",
    [
        b'"name":"a\x9d"',
        b'"name":"a","\xed\xa0\x80":1',
        b'"name":"a","x":' + DEEP + b',"y":"\x9d"',
    ],
    ids=["value", "key", "deep"],
)
async def test_an_answer_that_is_not_utf_8_is_no_kubernetes_answer(spoiled: bytes):
    """For instance of a cluster whose API server was replaced by another program."""
    text = b'{"kind":"ConfigMap","metadata":{' + spoiled + b"}}"
    listed = b'{"metadata":{"resourceVersion":"1"},"items":[' + text + b"]}"
    async with Server(answer(text)) as server, client_for(server.url) as client:
        with pytest.raises(BadResponse):
            await client.get(CONFIG_MAPS, "a", "n")
    async with Server(answer(listed)) as server, client_for(server.url) as client:
        with pytest.raises(BadResponse):
            await client.list(CONFIG_MAPS, "n")
    async with (
        Server(stream(b'{"type":"ADDED","object":' + text + b"}\n")) as server,
        client_for(server.url) as client,
    ):
        with pytest.raises(BadResponse):
            async for _ in client.watch(CONFIG_MAPS, since="1"):
                pass
