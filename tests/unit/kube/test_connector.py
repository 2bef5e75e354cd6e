"""Whoever stops waiting for a connection leaves it alone."""

import asyncio

import pytest
from aiohttp import TCPConnector

from knfleet.api.core import NAMESPACES
from knfleet.api.meta import ClusterName
from knfleet.kube.client import Client, Options
from knfleet.kube.connector import Connector
from knfleet.kube.credentials import Credential, StaticCredential
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.kube.errors import Unanswered
from tests.fakes.certificates import Authority
from tests.fakes.sockets import loopback_socket
from tests.waiting import until


class Mute:
    """A server that takes connections and says nothing, not even for TLS."""

    def __init__(self) -> None:
        self.taken: list[asyncio.StreamWriter] = []
        self.lost = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection, and notice its end."""
        self.taken.append(writer)
        await reader.read()
        self.lost += 1
        writer.close()


@pytest.mark.parametrize("connect_seconds", [0.05, 10.0])
async def test_a_connection_that_is_being_made_is_not_cut_off(connect_seconds: float):
    """Neither a deadline nor the time for connecting does it; closing the client does."""
    mute, listening = Mute(), loopback_socket()
    server = await asyncio.start_server(mute.take, sock=listening)
    endpoint = Endpoint(f"https://127.0.0.1:{listening.getsockname()[1]}", ca=Authority().pem)
    source = StaticCredential(Credential(token="t"))
    options = Options(attempts=1, connect_seconds=connect_seconds)
    client = Client(Connection(ClusterName("mute"), endpoint, source), options)
    async with server:
        with pytest.raises(Unanswered):
            await client.get(NAMESPACES, "kube-system", deadline=0.2)
        session = client.transport.session
        assert session is not None
        connector = session.connector
        assert isinstance(connector, Connector)
        assert isinstance(connector, TCPConnector)
        assert len(connector.making) == 1
        assert mute.lost == 0

        await client.close()

        await until(lambda: not connector.making, "nothing is being made any more", seconds=20)
        await until(lambda: mute.lost == 1, "the server has noticed", seconds=20)
