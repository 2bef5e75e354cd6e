"""The operator that `knfleet demo` starts on the hub, as a process of the dev clusters."""

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import psutil

from knfleet.dev import ports, processes
from knfleet.dev.dev_clusters import OPERATOR, DevClusters

NAME = f"hub.{OPERATOR}"
GRACE_SECONDS = 15.0


def start(ground: DevClusters, releases: str, flags: Sequence[str] = ()) -> psutil.Process:
    """Start the operator; it runs until `stop`, or until the clusters are taken down."""
    folder = ground.folder
    (port,) = ports.reserve(1, ground.port_range, folder.state_file)
    kubeconfig = folder.cluster("hub") / "admin.kubeconfig"
    arguments = [
        *(sys.executable, "-m", "knfleet", "operator", "--kubeconfig", str(kubeconfig)),
        *("--disable-ha", "--install-crds", f"--health-port={port}", "--releases", releases),
        *flags,
    ]
    return psutil.Process(processes.start(folder, NAME, arguments).pid)


def stop(ground: DevClusters) -> None:
    """End the operator, politely."""
    found = processes.recorded(ground.folder).get(NAME)
    if found is not None:
        processes.stop(ground.folder, [found], grace_seconds=GRACE_SECONDS)


@asynccontextmanager
async def operator(
    ground: DevClusters, releases: str, *flags: str, keep: bool = False
) -> AsyncGenerator[psutil.Process]:
    """The operator while something is shown; with `keep` it runs on if all went well."""
    process = start(ground, releases, flags)
    is_fine = False
    try:
        yield process
        is_fine = True
    finally:
        if not (keep and is_fine):
            stop(ground)
