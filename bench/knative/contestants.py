"""The operators that are measured: how each is started, and how one sees what it does."""

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import psutil
from msgspec import Struct

from testbed.operators import Hub, Operator
from testbed.peers.goproject import GoProject
from testbed.peers.operator import running, silenced
from testbed.peers.samples import serving
from testbed.waiting import until

AS_SHIPPED = ("--kube-api-qps=0", "--kube-api-burst=0")
"""What the flags are when nobody gives them: 10 requests a second, after a burst of 20."""
ANY = serving("bench", {})
"""The Knative Operator's surroundings, whatever it is to install."""


class Running(Struct, frozen=True):
    """An operator at work."""

    pid: int
    passes: Callable[[], Awaitable[float]]
    """How many passes over custom resources it has completed."""

    @property
    def memory_bytes(self) -> int:
        """What the operator holds; the Knative Operator is the child of a small process."""
        process = psutil.Process(self.pid)
        return max(each.memory_info().rss for each in (process, *process.children()))


class Contestant(Struct, frozen=True):
    """One operator, and how it is started for a cluster; ready to work when it is entered."""

    name: str
    started: Callable[[Hub, Path, Sequence[str]], contextlib.AbstractAsyncContextManager[Running]]
    """With the hub, a folder for files, and more flags."""


def knfleet(releases: Path) -> Contestant:
    """Ours."""

    @contextlib.asynccontextmanager
    async def started(hub: Hub, folder: Path, flags: Sequence[str]) -> AsyncGenerator[Running]:
        operator = Operator(hub.lent.kubeconfig, releases, folder / "knfleet.log")
        async with running_knfleet(operator, flags) as running:
            yield running

    return Contestant("knfleet", started)


@contextlib.asynccontextmanager
async def running_knfleet(
    operator: Operator, flags: Sequence[str], environment: Mapping[str, str] | None = None
) -> AsyncGenerator[Running]:
    """Our operator, from when it is ready to work until it is killed."""
    await operator.start("--disable-ha", *flags, **(environment or {}))
    assert operator.process is not None

    async def is_ready() -> bool:
        try:
            return (await operator.fetch("/readiness")).startswith("ok")
        except OSError:
            return False

    try:
        await until(is_ready, "knfleet is ready to work")
        yield Running(operator.process.pid, operator.passes)
    finally:
        await operator.kill()


def knative_operator(project: GoProject, *limits: str, name: str) -> Contestant:
    """The Knative Operator, with flags that say how many requests it may send."""

    @contextlib.asynccontextmanager
    async def started(hub: Hub, folder: Path, flags: Sequence[str]) -> AsyncGenerator[Running]:
        log = folder / "knative-operator.log"
        options = ["--kubeconfig", str(hub.lent.kubeconfig), *limits, *flags]

        async def passes() -> float:
            return log.read_bytes().count(b'"Reconcile succeeded"')

        with silenced():
            async with running(project, ANY, options, log) as process:
                await until(
                    lambda: log.read_bytes().count(b'"Started workers"') >= 2,
                    "the Knative Operator is ready to work",
                )
                yield Running(process.pid, passes)

    return Contestant(name, started)
