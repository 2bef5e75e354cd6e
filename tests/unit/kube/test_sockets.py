"""Connections that end while they are made take no other connection with them."""

import asyncio
import os
import socket
import ssl
import threading

import uvloop

from knfleet.api.core import CONFIG_MAPS
from knfleet.kube.client.sockets import Address, Sockets
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Endpoint
from knfleet.kube.errors import KubeError
from testbed.fakes.certificates import Authority
from testbed.fakes.clients import client_for
from testbed.fakes.server import Server, answer, server_context
from testbed.fakes.sockets import loopback_socket, resetting
from testbed.waiting import PATIENCE_SECONDS, until

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}}
CUTS = 250
RESETS = 100
ONCE = ClientOptions(attempts=1)


async def connect(address: Address) -> int:
    """Connect as a client does to a server that resets the connection; the number of the file."""
    loop = asyncio.get_running_loop()
    opened = Sockets().open(address)
    number = opened.fileno()
    try:
        await loop.sock_connect(opened, address[4])
        await loop.create_connection(
            asyncio.Protocol, sock=opened, ssl=ssl.create_default_context(), server_hostname="x"
        )
    except OSError:
        pass
    return number


async def files_after_resets() -> list[bool]:
    """Whether files that were opened after a reset, with its number, stay open."""
    loop, found = asyncio.get_running_loop(), list[bool]()
    with resetting() as where:
        address = (int(socket.AF_INET), int(socket.SOCK_STREAM), 0, "", where)
        for _ in range(RESETS):
            # What a task refers to lives until it is forgotten.
            task = loop.create_task(connect(address))
            number = await task
            taken = os.open(os.devnull, os.O_RDONLY)
            del task
            if taken == number:
                found.append(is_open(taken))
            if is_open(taken):
                os.close(taken)
    return found


def is_open(number: int) -> bool:
    """Whether a file has this number."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def test_a_reset_connection_does_not_close_the_file_that_got_its_number() -> None:
    """It would be another cluster's connection, or a file on disk."""
    found = uvloop.run(files_after_resets())

    assert all(found)


async def lost_beside_cuts(cuts: int) -> list[str]:
    """Connections of others that were lost while a client was cut again and again."""
    authority, lost = Authority(), list[str]()
    problems = list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, why: problems.append(str(why)))
    async with Server(answer(CONFIG_MAP), tls=server_context(authority.server())) as server:
        endpoint = Endpoint(server.url, ca=authority.pem)
        async with client_for(endpoint, options=ONCE) as cut, client_for(endpoint) as kept:
            await get(kept)
            before = server.connections
            for number in range(cuts):
                calls = [asyncio.create_task(outcome(cut)) for _ in range(2)]
                for _ in range(number % 25):
                    await asyncio.sleep(0)
                cut.transport.cut()
                async with client_for(endpoint, options=ONCE) as other:
                    lost += filter(None, [await outcome(other)])
                await asyncio.gather(*calls)
                lost += filter(None, [await outcome(kept)])
            assert before < server.connections
    return lost + problems


async def get(client: Client) -> None:
    """Ask a server something."""
    await client.get(CONFIG_MAPS, "a", "n", deadline=60)


async def outcome(client: Client) -> str:
    """Why a request failed; nothing when it did not."""
    try:
        await get(client)
    except KubeError as error:
        return str(error)
    return ""


def test_cuts_during_handshakes_lose_no_connection_of_others() -> None:
    """Whatever has been done of a connection when it is cut."""
    lost = uvloop.run(lost_beside_cuts(CUTS))

    assert lost == []


class BusyServer:
    """Takes one request, and neither answers nor reads on."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self.tls = tls
        self.listening = loopback_socket()
        self.asked, self.ended = threading.Event(), threading.Event()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"https://127.0.0.1:{self.listening.getsockname()[1]}"

    def serve(self) -> None:
        """Serve one connection until it has ended."""
        with self.listening:
            accepted, _ = self.listening.accept()
        with self.tls.wrap_socket(accepted, server_side=True) as connection:
            connection.recv(65536)
            self.asked.set()
            self.ended.wait(PATIENCE_SECONDS)


async def test_a_request_that_is_cancelled_leaves_no_connection() -> None:
    """Without that, TLS waits for the farewell of a server that is busy with the request."""
    authority = Authority()
    server = BusyServer(server_context(authority.server()))
    serving = asyncio.create_task(asyncio.to_thread(server.serve))
    async with client_for(Endpoint(server.url, ca=authority.pem), options=ONCE) as client:
        asking = asyncio.create_task(client.list(CONFIG_MAPS))
        await until(server.asked.is_set, "the request has arrived")
        assert client.transport.connected()

        asking.cancel()
        await asyncio.wait([asking])
        await asyncio.sleep(0)

        assert not client.transport.connected()
    server.ended.set()
    await serving
