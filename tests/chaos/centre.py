"""What is done to the hub and to the operator that leads; and every fault that lasts a while."""

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.chaos.faults import SPOKE_FAULTS, Fault, dead, frozen, held, lasting
from tests.chaos.plan import Step
from tests.chaos.stage import Stage


@asynccontextmanager
async def freeze_hub(stage: Stage, step: Step) -> AsyncGenerator[None]:
    """Stop the clock of the hub's API server."""
    hub = stage.hub.lent.name
    with lasting(stage.evidence.troubled), held(stage, hub), frozen(stage.pool, hub):
        yield


@asynccontextmanager
async def kill_hub(stage: Stage, step: Step) -> AsyncGenerator[None]:
    """Kill the hub's API server."""
    with lasting(stage.evidence.troubled):
        async with dead(stage.pool, stage.hub.lent.name):
            yield


@asynccontextmanager
async def kill_leader(stage: Stage, step: Step) -> AsyncGenerator[None]:
    """Kill the operator that leads."""
    async with down(stage, signal.SIGKILL):
        yield


@asynccontextmanager
async def stop_leader(stage: Stage, step: Step) -> AsyncGenerator[None]:
    """Ask the operator that leads to end."""
    async with down(stage, signal.SIGTERM):
        yield


@asynccontextmanager
async def down(stage: Stage, blow: signal.Signals) -> AsyncGenerator[None]:
    """End the leader, and keep it down for a while."""
    leader = stage.leader
    with lasting(stage.evidence.troubled):
        leader.may_run.clear()
        leader.signal(blow)
        yield
        leader.may_run.set()


@asynccontextmanager
async def freeze_leader(stage: Stage, step: Step) -> AsyncGenerator[None]:
    """Stop the clock of the operator that leads, longer than its Lease lasts, or not."""
    leader = stage.leader
    with lasting(stage.evidence.troubled):
        leader.signal(signal.SIGSTOP)
        yield
        leader.signal(signal.SIGCONT)


@asynccontextmanager
async def cut_leader(stage: Stage, step: Step) -> AsyncGenerator[None]:
    """Cut the operator that leads off from the hub, while it still reaches every spoke."""
    leader = stage.leader
    hub = stage.hub.lent.name
    with lasting(stage.evidence.troubled), held(stage, hub, leader.name):
        if step.draw % 2:
            leader.way.refusing = True
            await leader.way.cut()
        else:
            leader.way.open.clear()
        yield
        leader.way.refusing = False
        leader.way.open.set()


FAULTS: dict[str, Fault] = {
    **SPOKE_FAULTS,
    "freeze-hub": freeze_hub,
    "kill-hub": kill_hub,
    "kill-leader": kill_leader,
    "stop-leader": stop_leader,
    "freeze-leader": freeze_leader,
    "cut-leader": cut_leader,
}


async def strike(stage: Stage, step: Step) -> None:
    """Play a fault that lasts."""
    stage.struck.append(step.target)
    try:
        async with FAULTS[step.fault](stage, step):
            await asyncio.sleep(step.seconds)
    finally:
        stage.struck.remove(step.target)
