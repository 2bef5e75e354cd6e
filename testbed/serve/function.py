"""A user's function: answers GET / with a greeting, keeps events, and shows them at /events."""

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import Any

EVENTS: list[dict[str, Any]] = []
MOST_BYTES = 1 << 20


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Greet, or show which events came."""
        if self.path == "/events":
            self.reply(json.dumps(EVENTS))
        else:
            self.reply(f"Hello {os.environ.get('TARGET', 'World')} from {os.uname().nodename}\n")

    def do_POST(self) -> None:
        """Keep an event in binary mode."""
        length = min(int(self.headers.get("Content-Length") or 0), MOST_BYTES)
        body = self.rfile.read(length).decode(errors="replace")
        names = ("id", "type", "source")
        event = {name: self.headers.get(f"ce-{name}", "") for name in names}
        EVENTS.append({**event, "data": body})
        self.reply("")

    def reply(self, text: str) -> None:
        """Answer with status 200."""
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def leave(number: int, frame: FrameType | None) -> None:
    """End at once; requests under way are cut off."""
    sys.exit(0)


def main() -> None:
    """Listen on the port that Knative chose, until asked to end."""
    signal.signal(signal.SIGTERM, leave)
    ThreadingHTTPServer(("", int(os.environ.get("PORT", "8080"))), Handler).serve_forever()


if __name__ == "__main__":
    main()
