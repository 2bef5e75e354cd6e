"""`/healthz` and `/readyz` for a process that has nothing to say but that it is alive.

`runtime.health` says more, and takes megabytes for it that an agent on a small cluster can spare.
"""

import asyncio
import contextlib

from knfleet.runtime.http.connection_limits import ConnectionAdmission, ConnectionLimits
from knfleet.runtime.http.listen_address import ListenAddress
from knfleet.runtime.logs import log

PATHS = ("/healthz", "/readyz")
LONGEST_HEAD = 8192


class LivenessServer:
    """Answers as long as the event loop turns."""

    def __init__(self, bind: ListenAddress, *, limits: ConnectionLimits | None = None) -> None:
        self.bind = bind
        self.admission = ConnectionAdmission(limits or ConnectionLimits())
        self.address: tuple[str, int] | None = None
        """Where it listens, once it does."""
        self.listening = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled."""
        host, port = self.bind.host, self.bind.port
        server = await asyncio.start_server(self.serve, host, port, limit=LONGEST_HEAD)
        self.address = server.sockets[0].getsockname()[:2]
        self.listening.set()
        log.info("serving health", host=host, port=port)
        try:
            await server.serve_forever()
        finally:
            server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        address = str(writer.get_extra_info("peername", ("",))[0])
        guest = self.admission.admit(address, writer.transport.abort)
        broken = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
        try:
            with contextlib.suppress(*broken):
                async with asyncio.timeout(self.admission.limits.header_seconds if guest else 0):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(answer(head))
                    await writer.drain()
        finally:
            if guest is not None:
                self.admission.leave(guest)
            writer.close()


def answer(head: bytes) -> bytes:
    """The answer to a request, by its first line."""
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    path = words[1].partition("?")[0] if len(words) == 3 else ""
    status, text = ("200 OK", "ok") if path in PATHS else ("404 Not Found", "not here")
    if words[0] not in ("GET", "HEAD"):
        status, text = "405 Method Not Allowed", "GET alone"
    body = "" if words[0] == "HEAD" else text
    fields = f"Content-Type: text/plain\r\nContent-Length: {len(text)}\r\nConnection: close"
    return f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n{body}".encode()
