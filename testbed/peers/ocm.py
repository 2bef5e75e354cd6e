"""The agents of Open Cluster Management as processes: built once, and run beside our hub.

They keep who they are in a Secret of one namespace, so a cluster has one of each.
"""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

from msgspec import Struct

from knfleet.dev.progress_reporter import ProgressReporter
from testbed.clusters import Lent
from testbed.go_build import built
from testbed.peers.leashed import leashed, reserved_port

OFTEN = ("--status-sync-interval", "2s")
"""For tests that wait for feedback, which the work agent reads every 10 seconds otherwise."""
PACKAGES = "open-cluster-management.io/ocm/cmd"


class OcmAgents(Struct, frozen=True):
    """What we need of Open Cluster Management."""

    registration: Path
    work: Path


async def ocm_agents(progress: ProgressReporter) -> OcmAgents:
    """The agents, built unless they are in the cache."""
    built_as = {
        name: await built("ocm", f"{PACKAGES}/{name}", name, progress)
        for name in ("registration", "work")
    }
    return OcmAgents(**built_as)


class OcmSpoke(Struct, frozen=True):
    """A cluster on which the agents run, and where they keep their files."""

    name: str
    lent: Lent
    folder: Path

    @property
    def bootstrap(self) -> Path:
        """The bootstrap kubeconfig."""
        return self.folder / "bootstrap.kubeconfig"

    @property
    def hub_folder(self) -> Path:
        """Where the registration agent puts the hub's kubeconfig."""
        return self.folder / "hub"

    def log(self, agent: str) -> Path:
        """What an agent says."""
        return self.folder / f"{agent}-agent.log"

    @contextlib.asynccontextmanager
    async def registering(self, agents: OcmAgents, *flags: str) -> AsyncGenerator[int]:
        """The registration agent runs; its pid."""
        own = ("--bootstrap-kubeconfig", str(self.bootstrap))
        folder = ("--hub-kubeconfig-dir", str(self.hub_folder))
        started = self.running("registration", agents.registration, *own, *folder, *flags)
        async with started as pid:
            yield pid

    @contextlib.asynccontextmanager
    async def working(self, agents: OcmAgents, *flags: str) -> AsyncGenerator[int]:
        """The work agent runs, as the agent that the registration agent has become; its pid."""
        own = ("--agent-id", (self.hub_folder / "agent-name").read_text())
        source = ("--workload-source-driver", "kube")
        config = ("--workload-source-config", str(self.hub_folder / "kubeconfig"))
        async with self.running("work", agents.work, *own, *source, *config, *flags) as pid:
            yield pid

    @contextlib.asynccontextmanager
    async def running(self, agent: str, binary: Path, *flags: str) -> AsyncGenerator[int]:
        """An agent as a process that ends with this one."""
        port = reserved_port(self.folder / f"{agent}-ports")
        command = (
            *(str(binary), "agent"),
            *("--kubeconfig", str(self.lent.kubeconfig), "--spoke-cluster-name", self.name),
            *("--disable-leader-election", "--listen", f"127.0.0.1:{port}", *flags),
        )
        async with leashed(command, log=self.log(agent), home=self.folder) as pid:
            yield pid
