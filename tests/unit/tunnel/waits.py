"""What tests of the tunnel wait for, and a server behind it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from knfleet.agent.tunnel.tunnel_client import TunnelClient
from testbed.fakes.sockets import loopback_socket
from testbed.fakes.tunnels import TunnelHub
from testbed.waiting import until


@asynccontextmanager
async def echo_server() -> AsyncGenerator[str]:
    """A server that sends back what it gets; its URL as that of an API server."""
    busy: set[asyncio.Task[None]] = set()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        busy.add(task)
        with suppress(ConnectionError, asyncio.CancelledError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()
        busy.discard(task)

    listening = loopback_socket()
    server = await asyncio.start_server(echo, sock=listening)
    try:
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.close()
        for task in list(busy):
            task.cancel()
        await server.wait_closed()


async def opened(hub: TunnelHub, cluster: str = "c1") -> None:
    await until(lambda: hub.registry.get(cluster) is not None, "the tunnel is open")


async def closed(hub: TunnelHub, cluster: str = "c1") -> None:
    await until(lambda: hub.registry.get(cluster) is None, "the tunnel is closed")


async def is_refused(client: TunnelClient, *words: str) -> None:
    await until(
        lambda: not client.state.is_open and all(each in client.state.reason for each in words),
        f"the agent is refused: {words}",
    )
