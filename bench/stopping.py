"""Runs a measurement so that it leaves nothing behind, whoever stops it, and however."""

import asyncio
import signal
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def measured(measure: Callable[[Path], Coroutine[Any, Any, T]]) -> T:
    """What a measurement finds; it gets a folder that is removed afterwards.

    Shells start what goes to the background with SIGINT ignored, and `make` passes SIGTERM on:
    both end the measurement as Ctrl-C does, so that it stops the processes that it started.
    """
    for blow in (signal.SIGINT, signal.SIGTERM):
        signal.signal(blow, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="knfleet-bench-") as folder:
        return asyncio.run(measure(Path(folder)))
