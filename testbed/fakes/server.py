"""An HTTP server on loopback that does exactly what a test tells it, good or bad.

Each request takes the next behaviour from `script`; the last one stays. A behaviour gets the
request and the writer, and returns whether the connection may be used again.
"""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

from testbed.fakes.certificates import Pair
from testbed.fakes.sockets import loopback_socket


class Asked(Struct, frozen=True):
    """A request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    """Which connection it came on, counted from 1."""


Behaviour = Callable[[Asked, asyncio.StreamWriter], Awaitable[bool]]


def server_context(pair: Pair, client_ca: bytes | None = None) -> ssl.SSLContext:
    """A server's TLS context; with a client CA it asks for certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with TemporaryDirectory() as folder:
        certificate, key = Path(folder, "crt"), Path(folder, "key")
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_ca.decode())
    return context


class Server:
    """A server that follows a script."""

    def __init__(self, *script: Behaviour, tls: ssl.SSLContext | None = None) -> None:
        self.script = list(script)
        self.tls = tls
        self.requests: list[Asked] = []
        self.arrived = asyncio.Event()
        self.connections = 0
        self.handlers: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        listening = loopback_socket()
        self.port: int = listening.getsockname()[1]
        self.server = await asyncio.start_server(self.serve, sock=listening, ssl=self.tls)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.server.close()
        for handler in self.handlers:
            handler.cancel()
        await asyncio.gather(*self.handlers, return_exceptions=True)
        await self.server.wait_closed()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        task = asyncio.current_task()
        assert task is not None
        self.handlers.add(task)
        self.connections += 1
        number = self.connections
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                while await self.one(reader, writer, number):
                    pass
        except asyncio.CancelledError:
            pass
        finally:
            self.handlers.discard(task)
            writer.transport.abort()

    async def one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> bool:
        """Answer one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        pairs = (line.split(": ", 1) for line in head[1:] if line)
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        asked = Asked(method, path, headers, body, number)
        self.requests.append(asked)
        self.arrived.set()
        behave = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return await behave(asked, writer)


def answer(
    body: bytes | str | Mapping[str, Any],
    code: int = 200,
    *,
    content_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> Behaviour:
    """Answer as a good server does."""
    content = encoded(body)

    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        lines = {
            "Content-Type": content_type,
            "Content-Length": str(len(content)),
            **(headers or {}),
        }
        writer.write(head_of(code, lines) + content)
        await writer.drain()
        return True

    return behave


def status(
    code: int,
    reason: str,
    message: str = "no",
    *,
    details: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Behaviour:
    """Answer with a Status."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": dict(details or {}),
    }
    return answer(body, code, headers=headers)


async def drop(asked: Asked, writer: asyncio.StreamWriter) -> bool:
    """Close the connection instead of answering."""
    return False


async def silence(asked: Asked, writer: asyncio.StreamWriter) -> bool:
    """Never answer, and keep the connection open."""
    await asyncio.Event().wait()
    return False


def cut_body(body: bytes | str | Mapping[str, Any], sent: int) -> Behaviour:
    """Announce a body, and close after a part of it."""
    content = encoded(body)

    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        lines = {"Content-Type": "application/json", "Content-Length": str(len(content))}
        writer.write(head_of(200, lines) + content[:sent])
        await writer.drain()
        writer.close()
        return False

    return behave


def stream(*chunks: bytes | Mapping[str, Any], end: str = "end", code: int = 200) -> Behaviour:
    """Answer in chunks, then `end` properly, `cut` the connection, or `hang`."""

    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        lines = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
        writer.write(head_of(code, lines))
        for chunk in chunks:
            content = chunk if isinstance(chunk, bytes) else encoded(chunk) + b"\n"
            writer.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
            await writer.drain()
        if end == "hang":
            await asyncio.Event().wait()
        if end == "end":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        writer.close()
        return False

    return behave


def head_of(code: int, headers: Mapping[str, str]) -> bytes:
    """The beginning of an answer."""
    lines = [f"HTTP/1.1 {code} X", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def encoded(body: bytes | str | Mapping[str, Any]) -> bytes:
    """A body as bytes."""
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()
