"""Figures of the tunnel, each part in a process of its own, all on loopback.

    python -m bench.tunnel    throughput beside a direct connection; idle tunnels; restart

Throughput is that of raw bytes by TLS, which is the worst case: an API server takes much longer to
make the same bytes. CPU seconds are the hard figures; times depend on who else uses the machine.
"""

import argparse
import asyncio
import multiprocessing
import os
import ssl
import time
from collections.abc import Callable, Coroutine
from multiprocessing.connection import Connection
from typing import Any

import psutil
import uvloop

from testbed.fakes.certificates import Authority
from testbed.fakes.server import server_context
from testbed.fakes.sockets import loopback_socket
from testbed.fakes.tunnels import NAME, TunnelHub

FORK = multiprocessing.get_context("fork")
CHUNK = b"x" * 65536
MB = 1024 * 1024


class Part:
    """A process that runs a coroutine until it is told to end."""

    def __init__(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        self.here, there = FORK.Pipe()
        self.process = FORK.Process(target=run_part, args=(work, there, *args), daemon=True)
        self.process.start()

    def ask(self, question: str) -> Any:
        """What the process answers."""
        self.here.send(question)
        return self.here.recv()

    def cpu(self) -> float:
        """CPU seconds that it has used."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def memory(self) -> int:
        """Bytes of its own."""
        return psutil.Process(self.process.pid).memory_full_info().uss

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.join()


def run_part(work: Callable[..., Coroutine[Any, Any, None]], pipe: Connection, *args: Any) -> None:
    """The body of a process."""
    import logging

    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    uvloop.run(work(pipe, *args))


async def answering(pipe: Connection, answers: dict[str, Callable[[], Any]]) -> None:
    """Answer questions until the process is killed."""
    loop = asyncio.get_running_loop()
    while True:
        question = await loop.run_in_executor(None, pipe.recv)
        pipe.send(answers[question]())


async def hub_part(pipe: Connection, hub: TunnelHub) -> None:
    """The hub."""
    async with hub.running():
        open_tunnels = lambda: len(hub.registry.tunnels)  # noqa: E731
        await answering(pipe, {"ready": lambda: True, "open": open_tunnels})


async def agents_part(pipe: Connection, hub: TunnelHub, count: int, port: int) -> None:
    """Agents, with the times between reconnections that real ones have."""
    from knfleet.agent.tunnel.tunnel_client import TunnelClient
    from knfleet.agent.tunnel.tunnel_targets import tunnel_targets

    clients: list[TunnelClient] = []
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            client = TunnelClient(tunnel_targets(f"https://127.0.0.1:{port}"))
            client.configure(hub.config(hub.certificate(f"c{number}")))
            clients.append(client)
            group.create_task(client.run())
        open_tunnels = lambda: sum(each.state.is_open for each in clients)  # noqa: E731
        await answering(pipe, {"ready": lambda: True, "open": open_tunnels})


async def source_part(pipe: Connection, listening: Any, context: ssl.SSLContext) -> None:
    """A server that sends as many bytes as it is asked for."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int(await reader.readline())
        for _ in range(size // len(CHUNK)):
            writer.write(CHUNK)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, sock=listening, ssl=context)
    async with server:
        await answering(pipe, {"ready": lambda: True})


class Sink(asyncio.Protocol):
    """Counts what it receives."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.received = 0
        self.done = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if self.received >= self.size and not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("closed early"))


async def download(port: int, trust: ssl.SSLContext, size: int, hub: TunnelHub | None) -> float:
    """Seconds for a download, directly or through a hub's front."""
    loop = asyncio.get_running_loop()
    sink = Sink(size)
    if hub is None:
        transport, _ = await loop.create_connection(
            lambda: sink, "127.0.0.1", port, ssl=trust, server_hostname="kubernetes.default.svc"
        )
    else:
        head, _, writer = await hub.consumer("c0")
        assert b" 200 " in head, head
        made = await loop.start_tls(
            writer.transport, sink, trust, server_hostname="kubernetes.default.svc"
        )
        assert made is not None
        transport = made
    began = time.perf_counter()
    transport.write(f"{size}\n".encode())
    await sink.done
    taken = time.perf_counter() - began
    transport.close()
    return taken


def wait_open(part: Part, count: int, seconds: float = 120) -> float:
    """Seconds until so many tunnels are open."""
    began = time.perf_counter()
    while part.ask("open") < count:
        assert time.perf_counter() - began < seconds, part.ask("open")
        time.sleep(0.05)
    return time.perf_counter() - began


def throughput(megabytes: int, rounds: int) -> None:
    """Downloads beside each other, directly and through the tunnel, in turn."""
    hub = TunnelHub()
    hub.accept("c0")
    authority = Authority("spoke")
    listening = loopback_socket()
    port = listening.getsockname()[1]
    context = server_context(authority.server("kubernetes.default.svc"))
    trust = ssl.create_default_context(cadata=authority.pem.decode())
    parts = [
        Part(source_part, listening, context),
        Part(hub_part, hub),
        Part(agents_part, hub, 1, port),
    ]
    try:
        wait_open(parts[2], 1)
        size = megabytes * MB
        for _ in range(rounds):
            direct = uvloop.run(download(port, trust, size, None))
            before = [each.cpu() for each in parts]
            tunnelled = uvloop.run(download(port, trust, size, hub))
            used = [each.cpu() - old for each, old in zip(parts, before, strict=True)]
            print(
                f"{megabytes} MB: direct {megabytes / direct:.0f} MB/s,"
                f" tunnel {megabytes / tunnelled:.0f} MB/s, ratio {direct / tunnelled:.2f};"
                f" CPU per MB: hub {used[1] / megabytes * 1000:.2f} ms,"
                f" agent {used[2] / megabytes * 1000:.2f} ms"
            )
    finally:
        for each in parts:
            each.kill()


def idle(count: int, seconds: float) -> None:
    """What idle tunnels cost the hub, and how soon they are back after a restart."""
    hub = TunnelHub()
    for number in range(count):
        hub.accept(f"c{number}")
    serving = Part(hub_part, hub)
    serving.ask("ready")
    memory = serving.memory()
    agents = Part(agents_part, hub, count, 1)
    try:
        took = wait_open(agents, count)
        print(f"{count} tunnels open after {took:.1f} s")
        time.sleep(2)
        before, began = serving.cpu(), time.perf_counter()
        time.sleep(seconds)
        share = (serving.cpu() - before) / (time.perf_counter() - began)
        each = (serving.memory() - memory) / count
        print(f"idle: {share * 100:.2f} % of a core, {each / 1024:.0f} KB each on the hub")
        serving.kill()
        while agents.ask("open"):
            time.sleep(0.05)
        serving = Part(hub_part, hub)
        before = time.perf_counter()
        wait_open(agents, count)
        print(f"hub restarted: all back after {time.perf_counter() - before:.1f} s")
    finally:
        serving.kill()
        agents.kill()


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tunnels", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30)
    asked = parser.parse_args()
    print(f"on {os.cpu_count()} cores; front certificate for {NAME}")
    throughput(asked.megabytes, asked.rounds)
    idle(asked.tunnels, asked.seconds)


if __name__ == "__main__":
    main()
