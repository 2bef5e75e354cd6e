"""Sockets for servers of tests: on loopback, below the ports that the kernel hands out.

Dev clusters take theirs from 20000 on, so tests stay below.
"""

import random
import socket
import struct
from collections.abc import Generator
from contextlib import contextmanager
from threading import Thread

PORTS = (10000, 19999)


def loopback_socket() -> socket.socket:
    """A listening socket that nobody else has."""
    while True:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", random.randint(*PORTS)))
            listening.listen(128)
        except OSError:
            listening.close()
            continue
        return listening


def free_port() -> int:
    """A port on which a server can be started now."""
    with loopback_socket() as listening:
        return listening.getsockname()[1]


@contextmanager
def resetting() -> Generator[tuple[str, int]]:
    """The address of a server that resets every connection as soon as it is there.

    It has a thread of its own, so that it is sooner than the client's next step.
    """
    listening = loopback_socket()
    thread = Thread(target=reset_all, args=(listening,))
    thread.start()
    try:
        yield listening.getsockname()
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        listening.close()


def reset_all(listening: socket.socket) -> None:
    """Reset connections until the socket is shut down."""
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
