"""Two operators that compete for the Lease, each kept running as a Deployment would keep it."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil

from knfleet.dev import ports, processes
from knfleet.dev.dev_clusters import OPERATOR
from knfleet.dev.dev_folder import DevFolder
from testbed.fakes.ways import Way

SYSTEM_NAMESPACE = "knative-operator"
POLL_SECONDS = 0.2
AGAIN_SECONDS = 1.0


class Replica:
    """`knfleet operator`, started again whenever it ends, unless it is to stay down."""

    def __init__(self, name: str, folder: DevFolder, way: Way, command: list[str]) -> None:
        self.name = name
        self.folder = folder
        self.way = way
        self.command = command
        self.may_run = asyncio.Event()
        self.may_run.set()
        self.recorded: processes.RecordedProcess | None = None

    @property
    def log(self) -> Path:
        """Where it logs to."""
        return self.folder.log(f"{self.name}.{OPERATOR}")

    async def keep(self, say: Callable[[str], None]) -> None:
        """Keep it running until cancelled."""
        while True:
            await self.may_run.wait()
            (port,) = ports.reserve(1, ports.DEFAULT_RANGE, self.log)
            self.recorded = processes.start(
                self.folder,
                f"{self.name}.{OPERATOR}",
                [*self.command, f"--health-port={port}"],
                {"SYSTEM_NAMESPACE": SYSTEM_NAMESPACE},
            )
            await self.ended()
            say(f"{self.name} ended: {last_words(self.log)}")
            await asyncio.sleep(AGAIN_SECONDS)

    async def ended(self) -> None:
        """Wait until it has ended."""
        while self.recorded is not None and self.recorded.live() is not None:
            await asyncio.sleep(POLL_SECONDS)
            processes.reap(self.recorded.pid)

    def signal(self, blow: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        live = self.recorded.live() if self.recorded is not None else None
        if live is not None:
            with suppress(psutil.NoSuchProcess):
                os.kill(live.pid, blow)


def last_words(log: Path) -> str:
    """What a process logged last, as a sentence."""
    lines = log.read_text(errors="replace").splitlines()
    line = lines[-1] if lines else "it said nothing"
    try:
        logged = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.MsgspecError:
        return line
    return ": ".join(str(logged[name]) for name in ("event", "error") if name in logged)


def command(kubeconfig: Path, providers: Path, releases: Path) -> list[str]:
    """How an operator is started."""
    return [
        *(sys.executable, "-m", "knfleet", "operator"),
        f"--kubeconfig={kubeconfig}",
        f"--clusterprofile-provider-file={providers}",
        f"--releases={releases}",
    ]
