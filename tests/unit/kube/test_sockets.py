"""A connection that lost its file does not keep others from being made."""

import asyncio
import os
import socket

import uvloop

from knfleet.kube.sockets import Sockets
from testbed.fakes.sockets import loopback_socket

ADDRESS = (int(socket.AF_INET), int(socket.SOCK_STREAM), 0, "", ("127.0.0.1", 1))


async def serve_nobody(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take a connection, and close it."""
    writer.close()


async def lose_a_file() -> tuple[int, list[int]]:
    """Close a connection's file behind the loop's back; its number, and those opened next."""
    loop = asyncio.get_running_loop()
    listening = loopback_socket()
    async with await asyncio.start_server(serve_nobody, sock=listening):
        transport, _ = await loop.create_connection(
            asyncio.Protocol, "127.0.0.1", listening.getsockname()[1]
        )
        lost: int = transport.get_extra_info("socket").fileno()
        os.close(lost)
        sockets = Sockets()
        opened = [sockets.open(ADDRESS) for _ in range(3)]
        numbers = [one.fileno() for one in opened]
        for one in opened:
            one.close()
        sockets.shut()
        transport.abort()
        await asyncio.sleep(0)
        return lost, numbers


def test_a_number_that_the_loop_believes_in_use_is_not_handed_out() -> None:
    """Every socket would get it, and fail."""
    lost, numbers = uvloop.run(lose_a_file())

    assert len(numbers) == 3
    assert lost not in numbers
