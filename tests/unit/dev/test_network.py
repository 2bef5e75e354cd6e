"""Networks of isolated clusters: real namespaces, without a cluster in them."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from msgspec.structs import replace

from knfleet.dev.dev_clusters import DevClusters
from knfleet.dev.dev_folder import DevClusterState, DevFolder, DevState
from knfleet.dev.errors import DevError
from knfleet.dev.network import network_namespace
from knfleet.dev.network.holder import InnerSockets
from knfleet.dev.network.outbound import ways_out
from knfleet.dev.processes import RecordedProcess
from testbed.fakes.sockets import free_port
from testbed.waiting import until

HOST = "127.0.0.1"


@pytest.fixture
def inner_sockets(tmp_path: Path) -> Iterator[InnerSockets]:
    """The sockets of a namespace of its own."""
    if problem := network_namespace.problem():
        pytest.skip(f"there are no network namespaces on this machine: {problem}")
    sockets = InnerSockets(str(tmp_path / "holder"))
    program = [sys.executable, "-m", "knfleet.dev.network.holder", sockets.path]
    process = subprocess.Popen([*network_namespace.making(), *program])
    yield sockets
    process.kill()
    process.wait(timeout=10)


async def inner(sockets: InnerSockets) -> socket.socket:
    """A socket of the namespace, as soon as there is one."""
    found: list[socket.socket] = []

    def is_there() -> bool:
        try:
            found.append(socket.socket(fileno=sockets()))
        except OSError:
            return False
        return True

    await until(is_there, "the holder gives sockets")
    found[0].setblocking(False)
    return found[0]


async def test_connections_lead_out_of_a_namespace_and_not_into_it(inner_sockets: InnerSockets):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(100))
        writer.close()

    loop = asyncio.get_running_loop()
    outside = await asyncio.start_server(answer, HOST, free_port())
    port = outside.sockets[0].getsockname()[1]
    async with outside:
        with await inner(inner_sockets) as alone, pytest.raises(ConnectionRefusedError):
            await loop.sock_connect(alone, (HOST, port))
        async with ways_out(inner_sockets, [port]):
            reader, writer = await asyncio.open_connection(
                sock=await connected(inner_sockets, port)
            )
            writer.write(b"hello")
            assert await reader.read(100) == b"hello"
            writer.close()
    other = free_port()
    async with await asyncio.start_server(answer, sock=await listening(inner_sockets, other)):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(HOST, other)
        with await connected(inner_sockets, other) as inside:
            assert inside.getpeername() == (HOST, other)


async def connected(sockets: InnerSockets, port: int) -> socket.socket:
    """A connection that was made inside."""
    made = await inner(sockets)
    await asyncio.get_running_loop().sock_connect(made, (HOST, port))
    return made


async def listening(sockets: InnerSockets, port: int) -> socket.socket:
    """A socket that accepts connections inside."""
    made = await inner(sockets)
    made.bind((HOST, port))
    return made


def test_without_the_tools_there_is_no_namespace_and_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert network_namespace.problem() == "unshare and nsenter of util-linux not found"


def test_a_network_whose_process_has_ended_is_not_entered(tmp_path: Path):
    """Another process may have its pid by now, as after the machine was started again."""
    folder = DevFolder(tmp_path / "dev")
    folder.create()
    cluster = DevClusterState("spoke1", 1, 20001, "/spoke1", outbound=())
    folder.write(DevState(clusters=(cluster,)))
    clusters = DevClusters(folder)

    with pytest.raises(DevError, match="the network of spoke1 is not there; run `knfleet dev up"):
        clusters.entering("spoke1")
    started = psutil.Process().create_time()
    stranger = RecordedProcess("spoke1.network", os.getpid(), started - 60)
    record = folder.run / "spoke1.network.json"
    record.write_bytes(msgspec.json.encode(stranger))
    with pytest.raises(DevError, match="the network of spoke1 is not there; run `knfleet dev up"):
        clusters.entering("spoke1")

    record.write_bytes(msgspec.json.encode(replace(stranger, started=started)))
    assert str(os.getpid()) in clusters.entering("spoke1")
    folder.remove()
