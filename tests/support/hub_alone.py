"""The controllers of a hub as a process, without an operator: `python -m … KUBECONFIG`."""

import asyncio
import sys
from pathlib import Path

from knfleet.hub.manager import start_hub
from knfleet.kube.auth.kubeconfig import load
from knfleet.kube.client.verbs import Client
from knfleet.runtime.manager import Manager
from knfleet.runtime.metrics import Metrics


async def run(kubeconfig: Path) -> None:
    """Run until killed."""
    manager = Manager()
    async with Client(load([kubeconfig])) as client:
        start_hub(manager, client, metrics=Metrics())
        await manager.run()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
