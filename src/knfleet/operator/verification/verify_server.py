"""The server that our own image runs in verifications, as `knfleet verify-server`.

It answers GET with a text and any other request with 202, and logs the paths of requests, so that
the log of its pod shows which events arrived.
"""

import signal
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BODY_BYTES = 65536
"""How much of a body is read; the rest is cut off with the connection."""
SECONDS = 10.0
"""How long a client may take for one request."""


class VerifyHandler(BaseHTTPRequestHandler):
    """Answers one connection."""

    timeout = SECONDS
    text = ""

    def do_GET(self) -> None:
        self.answer(200, f"{self.text}\n".encode())

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length") or ""
        if length.isdecimal():
            self.rfile.read(min(int(length), BODY_BYTES))
        # The answer to an event is another event, or has no body.
        self.answer(202, b"")

    def answer(self, status: int, body: bytes) -> None:
        """Send an answer, and log the request."""
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        del size
        sys.stdout.write(f"{self.command} {self.path!a} {code}\n")
        sys.stdout.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base has it
        """Log nothing of what is not a request."""


class VerifyServer(ThreadingHTTPServer):
    """Listens on one address, or on all of both families."""

    def __init__(self, host: str, port: int, text: str) -> None:
        if not host and socket.has_dualstack_ipv6():
            self.address_family = socket.AF_INET6
        handler = type("Handler", (VerifyHandler,), {"text": text})
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6 and not self.server_address[0]:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def end(*_: object) -> None:
    """End the process."""
    raise SystemExit(0)


def serve(host: str, port: int, text: str) -> None:
    """Answer requests until the process is asked to end."""
    # The first process of a container has no default for it, and Knative waits for minutes.
    signal.signal(signal.SIGTERM, end)
    with VerifyServer(host, port, text) as server:
        server.serve_forever()
