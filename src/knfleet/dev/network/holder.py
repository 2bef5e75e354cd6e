"""Holds a network namespace, and gives sockets of it to processes outside.

`python -m knfleet.dev.network.holder PATH` is started inside. Each client of the Unix socket PATH,
which only the owner can open, gets one new TCP socket: what it connects or binds is inside. It is
how an administrator works on a cluster that no address leads to.
"""

import fcntl
import socket
import struct
import sys
from pathlib import Path

from msgspec import Struct

INTERFACE_FLAGS, SET_INTERFACE_FLAGS, IS_UP = 0x8913, 0x8914, 0x1
"""Of Linux: SIOCGIFFLAGS, SIOCSIFFLAGS and IFF_UP."""
LOOPBACK = b"lo"
ANSWER_SECONDS = 5.0


class InnerSockets(Struct, frozen=True):
    """Makes TCP sockets in the network of a holder."""

    path: str

    def __call__(self) -> int:
        """A new socket, as a file; raises `OSError` when the holder is gone."""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(ANSWER_SECONDS)
            asking.connect(self.path)
            _, files, _, _ = socket.recv_fds(asking, 1, 1)
        if not files:
            raise ConnectionError(f"the holder of the network at {self.path} gives no socket")
        return files[0]


def bring_loopback_up() -> None:
    """Turn on the only interface of a new namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sH14x", LOOPBACK, 0)
        answer = fcntl.ioctl(any_socket, INTERFACE_FLAGS, asked)
        flags: int = struct.unpack("16sH14x", answer)[1]
        wanted = struct.pack("16sH14x", LOOPBACK, flags | IS_UP)
        fcntl.ioctl(any_socket, SET_INTERFACE_FLAGS, wanted)


def serve(path: Path) -> None:
    """Give sockets until the process ends."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        path.chmod(0o600)
        server.listen()
        while True:
            client, _ = server.accept()
            with client, socket.socket(socket.AF_INET) as made:
                try:
                    socket.send_fds(client, [b"1"], [made.fileno()])
                except OSError:
                    continue


if __name__ == "__main__":
    bring_loopback_up()
    serve(Path(sys.argv[1]))
