"""Our own commands, and kubectl, typed by the demonstration."""

import asyncio
import os
import sys
from pathlib import Path

from knfleet.dev.binaries import locate
from knfleet.dev.demo.demo_steps import limit
from knfleet.dev.dev_clusters import DevClusters
from knfleet.dev.errors import DevError
from knfleet.dev.progress_reporter import ProgressReporter


class Shell:
    """Runs commands."""

    def __init__(self, ground: DevClusters, progress: ProgressReporter) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        kubeconfig = str(ground.folder.kubeconfig)
        self.environment = {**os.environ, "KUBECONFIG": kubeconfig, "PATH": path}
        self.progress = progress
        self.ground = ground

    async def type(
        self, *arguments: str, shown: str = "", code: int = 0, place: str = "hub"
    ) -> str:
        """Run one of our commands in the network of a cluster, and say which; what it printed.

        Raises if it ends with another code.
        """
        entering = self.ground.entering(place)
        where = f" # inside the network of {place}" if entering else ""
        self.progress.report(f"$ knfleet {shown or ' '.join(arguments)}{where}")
        return await self.run(*entering, sys.executable, "-m", "knfleet", *arguments, code=code)

    async def kubectl(self, kubeconfig: Path, *arguments: str) -> str:
        """Run kubectl with a kubeconfig; what it printed."""
        self.progress.report(f"$ kubectl --kubeconfig {kubeconfig.name} {' '.join(arguments)}")
        tools = await locate.ensure(self.progress)
        return await self.run(
            str(tools["kubectl"].path), "--kubeconfig", str(kubeconfig), *arguments
        )

    async def run(self, *command: str, code: int = 0) -> str:
        """What a program prints; raises with what it reported if it ends with another code."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environment,
        )
        name = " ".join([each for each in command if not each.startswith("-")][:4])
        async with limit(f"{name} does not end"):
            out, errors = await process.communicate()
        if process.returncode != code:
            raise DevError(f"{name} failed: {errors.decode().strip()}")
        return out.decode()
