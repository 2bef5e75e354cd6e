"""The server that our own image runs in verifications."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from knfleet.dev import ports
from testbed.waiting import until


@asynccontextmanager
async def serving(
    folder: Path, host: str
) -> AsyncGenerator[tuple[str, asyncio.subprocess.Process]]:
    """The server as a process; where it answers."""
    (port,) = ports.reserve(1, ports.DEFAULT_RANGE, folder)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "knfleet", "verify-server", "--text", "Hello"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PORT": str(port), "KNFLEET_BIND_ADDRESS": host},
    )

    async def listens() -> bool:
        try:
            _, writer = await asyncio.open_connection(host, port)
        except OSError:
            return False
        writer.close()
        return True

    try:
        await until(listens, "the server listens")
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}", process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_requests_are_answered_and_logged_until_the_process_is_asked_to_end(tmp_path: Path):
    """The log has what came, without what could spoil it."""
    async with serving(tmp_path, "127.0.0.1") as (url, process), aiohttp.ClientSession() as session:
        async with session.get(f"{url}/a") as answer:
            assert (answer.status, await answer.text()) == (200, "Hello\n")
        async with session.post(f"{url}/verify-1", data=b"x" * 1000) as answer:
            assert (answer.status, await answer.read()) == (202, b"")
        async with session.get(f"{url}/%1B%0a\u2028") as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        log = (await process.stdout.read()).decode()
        code = await asyncio.wait_for(process.wait(), 60)

    assert code == 0
    assert log.splitlines() == [
        "GET '/a' 200",
        "POST '/verify-1' 202",
        "GET '/%1B%0A%E2%80%A8' 200",
    ]


@pytest.mark.parametrize(
    "body", [b"GET /\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"]
)
async def test_what_is_no_request_ends_nothing(tmp_path: Path, body: bytes):
    async with serving(tmp_path, "127.0.0.1") as (url, process):
        port = int(url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(body)
        await writer.drain()
        await asyncio.wait_for(reader.read(10), 60)
        writer.close()
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert answer.status == 200
        assert process.returncode is None
