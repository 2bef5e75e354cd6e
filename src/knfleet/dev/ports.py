"""Ports that no other process will take: free, on loopback, and below the ephemeral range.

A port is reserved in a file that all of a user's runs share: between choosing it and a server
listening on it there are seconds in which another run could choose it too, and a cluster whose
server was killed must find its port again.
"""

import contextlib
import socket
import time
from pathlib import Path

import msgspec
import platformdirs
from msgspec import Struct

from knfleet.dev.dev_folder import locked, write_private
from knfleet.dev.errors import DevError

DEFAULT_RANGE = range(20000, 30000)
RESERVED_SECONDS = 120.0
"""How long a port is kept for clusters whose files are not written yet."""


class Reservation(Struct, frozen=True):
    """Who a port is kept for."""

    at: float
    state_file: str

    def holds(self, now: float) -> bool:
        """Whether the clusters are still to come, or still there."""
        return now - self.at < RESERVED_SECONDS or Path(self.state_file).exists()


def parse_range(text: str) -> range:
    """A range of ports from `FIRST-LAST`."""
    first, _, last = text.partition("-")
    if not (first.isdigit() and last.isdigit()) or not 1024 <= int(first) <= int(last) < 32768:
        raise DevError(
            f"{text!r} is not a port range; write FIRST-LAST with ports from 1024 to 32767,"
            " such as 20000-29999 (higher ports belong to the kernel)"
        )
    return range(int(first), int(last) + 1)


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False


def reserve(count: int, ports: range, state_file: Path) -> list[int]:
    """Free ports that no other run gets while the clusters of a state file exist."""
    registry = platformdirs.user_cache_path("knfleet") / "ports.json"
    try:
        registry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DevError(f"cannot make {registry.parent}: {error.strerror}") from error
    lock = registry.with_suffix(".lock")
    with locked(lock, wait_seconds=10, busy=f"another process holds {lock}; end that process"):
        return choose(registry, count, ports, state_file)


def choose(registry: Path, count: int, ports: range, state_file: Path) -> list[int]:
    """Take ports that are neither in use nor reserved."""
    now = time.time()
    reservations = {port: each for port, each in read(registry).items() if each.holds(now)}
    chosen: list[int] = []
    for port in ports:
        if len(chosen) == count:
            break
        if port not in reservations and is_free(port):
            chosen.append(port)
    if len(chosen) < count:
        raise DevError(
            f"only {len(chosen)} of {count} ports are free in {ports.start}-{ports.stop - 1};"
            " give a larger --port-range, or end what uses them"
        )
    mine = Reservation(now, str(state_file.absolute()))
    write_private(registry, msgspec.json.encode(reservations | dict.fromkeys(chosen, mine)))
    return chosen


def read(registry: Path) -> dict[int, Reservation]:
    """Who each port is kept for; a missing or damaged file reserves nothing."""
    try:
        return msgspec.json.decode(registry.read_bytes(), type=dict[int, Reservation])
    except (OSError, msgspec.DecodeError):
        return {}


def owner(port: int) -> str:
    """Who listens on a port, in words."""
    import psutil

    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("inet"):
            address = connection.laddr
            if address and connection.status == psutil.CONN_LISTEN and address[1] == port:
                name = psutil.Process(connection.pid).name() if connection.pid else "a process"
                return f"{name} (pid {connection.pid})" if connection.pid else name
    return "another process"
