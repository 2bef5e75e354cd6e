"""Facts about the machine, without which no figure says anything."""

import os
import platform
from pathlib import Path

import psutil
from msgspec import Struct


class Machine(Struct, frozen=True):
    """Where and when something was measured."""

    processor: str
    cores: int
    memory_mb: int
    system: str
    python: str
    load_before: float
    """How busy the machine was with other things, as the kernel counts it over a minute."""


def machine() -> Machine:
    """This machine, now."""
    return Machine(
        processor_name(),
        os.cpu_count() or 1,
        psutil.virtual_memory().total // 10**6,
        f"{platform.system()} {platform.release().partition('-')[0]}",
        platform.python_version(),
        round(os.getloadavg()[0], 1),
    )


def processor_name() -> str:
    """What the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
