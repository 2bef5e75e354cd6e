"""The command line as people type it, in a process of its own."""

import asyncio
import os
import sys
from pathlib import Path

from msgspec import Struct

SECONDS = 240.0
IMAGE = "localhost/knfleet:test"
"""An image of ours: the dev node runs it as a process of this machine."""


class Printed(Struct, frozen=True):
    """What a command printed."""

    code: int
    out: str
    err: str


async def type_in(kubeconfig: Path, *arguments: str, seconds: float = SECONDS) -> Printed:
    """Run a command with the kubeconfig of a cluster."""
    inherited = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "knfleet", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=inherited | {"KUBECONFIG": str(kubeconfig)},
    )
    out, err = await asyncio.wait_for(process.communicate(), seconds)
    assert process.returncode is not None
    return Printed(process.returncode, out.decode(), err.decode())


async def done(kubeconfig: Path, *arguments: str) -> str:
    """Run a command that must succeed; what it printed."""
    printed = await type_in(kubeconfig, *arguments)
    assert printed.code == 0, f"{arguments}: {printed.out}{printed.err}"
    return printed.out


async def refused(kubeconfig: Path, *arguments: str) -> str:
    """Run a command that must fail; what it said."""
    printed = await type_in(kubeconfig, *arguments)
    assert printed.code != 0, f"{arguments}: {printed.out}{printed.err}"
    assert "Traceback" not in printed.err, printed.err
    return " ".join(printed.err.split())
