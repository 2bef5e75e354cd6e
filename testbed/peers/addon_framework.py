"""The example add-on of Open Cluster Management's addon-framework: its manager as a process.

Its objects are those that the framework ships for it.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import urlsplit

from knfleet.api.meta import Object
from knfleet.dev.binaries.build import modules
from knfleet.dev.progress_reporter import ProgressReporter
from knfleet.kube.yaml import load_all
from testbed.clusters import Lent
from testbed.go_build import built
from testbed.peers.isolated import isolated
from testbed.peers.leashed import leashed

MODULE = "open-cluster-management.io/addon-framework"
EXAMPLE = "helloworld"
FILES = (
    "addon_deployment_config",
    "managed_clusterset_binding",
    "placement",
    "helloworld_clustermanagementaddon",
)


async def helloworld(progress: ProgressReporter) -> Path:
    """The program, built unless it is in the cache."""
    return await built("addon", f"{MODULE}/cmd/example/{EXAMPLE}", EXAMPLE, progress)


async def objects(namespace: str) -> list[Object]:
    """What an administrator applies to the hub, in a namespace where it has one."""
    go = shutil.which("go")
    assert go is not None
    command = (go, "list", "-m", "-f", "{{.Dir}}", MODULE)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=modules() / "addon", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(process.communicate(), 600)
    assert process.returncode == 0, command
    folder = Path(output.decode().strip()) / "examples" / "deploy" / "addon" / EXAMPLE / "resources"
    found = [each for name in FILES for each in load_all((folder / f"{name}.yaml").read_bytes())]
    for each in found[:-1]:
        each["metadata"]["namespace"] = namespace
    return found


@contextlib.asynccontextmanager
async def running(binary: Path, hub: Lent, folder: Path) -> AsyncGenerator[int]:
    """The manager of the add-on runs on a hub; its pid."""
    command = (
        *(str(binary), "controller", "--kubeconfig", str(hub.kubeconfig)),
        *("--component-namespace", "default"),
    )
    port = urlsplit(hub.connection.endpoint.server).port
    assert port is not None
    # It listens on all addresses, and on a port that cannot be chosen.
    async with (
        isolated(command, port, folder) as apart,
        leashed(apart, log=folder / "helloworld.log", home=folder) as pid,
    ):
        yield pid
