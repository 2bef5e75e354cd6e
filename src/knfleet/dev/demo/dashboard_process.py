"""The dashboard that `knfleet demo` starts beside its hub, as a process of the dev clusters."""

import asyncio
import sys
import time
from collections.abc import Sequence

from knfleet.dev import ports, processes
from knfleet.dev.dev_clusters import DASHBOARD, DevClusters
from knfleet.dev.errors import DevError

NAME = f"hub.{DASHBOARD}"
START_SECONDS = 30.0
POLL_SECONDS = 0.1


async def start(ground: DevClusters, flags: Sequence[str] = ()) -> str:
    """Start a dashboard of the hub; its address. It runs until the clusters are taken down."""
    folder = ground.folder
    (port,) = ports.reserve(1, ground.port_range, folder.state_file)
    url_file = folder.cluster("hub") / "dashboard.url"
    url_file.unlink(missing_ok=True)
    kubeconfig = folder.cluster("hub") / "admin.kubeconfig"
    arguments = [
        *(sys.executable, "-m", "knfleet", "web", "--kubeconfig", str(kubeconfig)),
        *("--address", f"127.0.0.1:{port}", "--url-file", str(url_file)),
        *flags,
    ]
    process = processes.start(folder, NAME, arguments)
    deadline = time.monotonic() + START_SECONDS
    while process.live() is not None and time.monotonic() < deadline:
        if url_file.exists():
            return url_file.read_text().strip()
        await asyncio.sleep(POLL_SECONDS)
    raise DevError(f"the dashboard does not start: {processes.tail(folder.log(NAME))}")


def flags_for(releases: str = "", provider_file: str = "") -> list[str]:
    """The dashboard's options for release files and access providers."""
    found = ["--releases", releases] if releases else []
    return [*found, *(["--clusterprofile-provider-file", provider_file] if provider_file else [])]
