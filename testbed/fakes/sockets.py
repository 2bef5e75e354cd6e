"""Sockets for servers of tests: on loopback, below the ports that the kernel hands out.

Dev clusters take theirs from 20000 on, so tests stay below.
"""

import random
import socket

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
