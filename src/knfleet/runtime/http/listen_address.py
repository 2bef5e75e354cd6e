"""Where a process listens."""

import os
from collections.abc import Mapping

from msgspec import Struct


class ListenAddress(Struct, frozen=True):
    """Where to listen."""

    host: str | None = "127.0.0.1"
    """None: on all addresses."""
    port: int = 0
    """0: any that is free."""


def bind_host(environment: Mapping[str, str] = os.environ) -> str | None:
    """The address to listen on when none is given: all in a pod, else only this machine's own.

    KNFLEET_BIND_ADDRESS says otherwise.
    """
    if host := environment.get("KNFLEET_BIND_ADDRESS"):
        return host
    return None if "KUBERNETES_SERVICE_HOST" in environment else "127.0.0.1"
