"""What is done to spokes, to the way to them and to logins: each fault strikes, and is lifted.

While a fault lasts, the evidence says what follows from it: which spoke is silent, whose bytes wait
on the way, and that the hub or an operator was struck.
"""

import os
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress

from knfleet.api.core import SERVICE_ACCOUNTS
from knfleet.api.meta import Key, Object, Resource
from knfleet.dev import processes
from knfleet.dev.binaries import locate
from knfleet.dev.control_plane import API_SERVER, process_name
from knfleet.dev.dev_clusters import ProcessEnded
from knfleet.dev.progress_reporter import SilentProgress
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import BadRequest, Forbidden, Invalid, KubeError, NotFound
from testbed.clusters import Pool
from testbed.waiting import until
from tests.chaos.evidence import Held, Span
from tests.chaos.plan import Step
from tests.chaos.stage import ACCOUNTS, GROUP, REPLICAS, Stage, hand_out

PERSIST_SECONDS = 240.0
SLOW_SECONDS = 0.25
"""How much later each piece arrives by a slow way."""
FLOWS = Resource(
    "flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas", namespaced=False
)
LEVELS = Resource(
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "PriorityLevelConfiguration",
    "prioritylevelconfigurations",
    namespaced=False,
)
THROTTLE = Key("", "chaos-throttle")
UNCONFIGURED = "failed to configure policy"
"""What an API server answers that was started just now, and does not know yet of all CRDs."""
REJECTED = "apiserver_flowcontrol_rejected_requests_total"

Fault = Callable[[Stage, Step], AbstractAsyncContextManager[None]]


async def persist(
    act: Callable[[], Awaitable[object]], what: str, *, seconds: float = PERSIST_SECONDS
) -> None:
    """Do something, again and again while a server cannot be reached."""
    last: KubeError | None = None

    async def done() -> bool:
        nonlocal last
        try:
            await act()
        except (BadRequest, Forbidden, Invalid) as error:
            if UNCONFIGURED not in str(error):
                raise
            last = error
            return False
        except KubeError as error:
            last = error
            return False
        return True

    try:
        await until(done, what, seconds=seconds)
    except AssertionError as error:
        raise AssertionError(f"{error}: {last}") from last


@contextmanager
def lasting(spans: list[Span]) -> Generator[None]:
    """Note from when to when something lasted."""
    begun = Span(time.time())
    spans.append(begun)
    try:
        yield
    finally:
        spans[spans.index(begun)] = Span(begun.begin, time.time())


@contextmanager
def silent(stage: Stage, spoke: str) -> Generator[None]:
    """A spoke gives the operators no answer."""
    with lasting(stage.evidence.silent.setdefault(spoke, [])):
        yield


@contextmanager
def held(stage: Stage, cluster: str, user: str = "") -> Generator[None]:
    """What is sent to a cluster waits on the way."""
    begun = Held(cluster, Span(time.time()), user)
    stage.evidence.held.append(begun)
    try:
        yield
    finally:
        index = stage.evidence.held.index(begun)
        stage.evidence.held[index] = Held(cluster, Span(begun.span.begin, time.time()), user)


def signal_server(
    pool: Pool, cluster: str, blow: signal.Signals, component: str = API_SERVER
) -> processes.RecordedProcess:
    """Send a signal to an API server, or to another component, that this run has started."""
    known = processes.recorded(pool.folder)[process_name(cluster, component)]
    os.kill(known.pid, blow)
    return known


@contextmanager
def frozen(pool: Pool, cluster: str) -> Generator[None]:
    """An API server takes connections, and answers nothing."""
    signal_server(pool, cluster, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            signal_server(pool, cluster, signal.SIGCONT)


@asynccontextmanager
async def dead(pool: Pool, cluster: str, component: str = API_SERVER) -> AsyncGenerator[None]:
    """An API server, or another component, is killed, and started again."""
    known = signal_server(pool, cluster, signal.SIGKILL, component)
    await until(lambda: known.live() is None, "it is dead")
    processes.reap(known.pid)
    try:
        yield
    finally:
        await start_server(pool, cluster)


async def start_server(pool: Pool, cluster: str) -> None:
    """Start what does not run of one cluster, and nothing that is frozen elsewhere."""
    ground = pool.ground
    state = ground.folder.read().cluster(cluster)
    assert state is not None
    tools = await locate.ensure(SilentProgress())
    try:
        await ground.bring_up_one(state, tools)
    except ProcessEnded:
        await ground.bring_up_one(state, tools)


@asynccontextmanager
async def freeze(stage: Stage, step: Step) -> AsyncGenerator[None]:
    """Stop the clock of a spoke's API server."""
    with silent(stage, step.target), held(stage, step.target), frozen(stage.pool, step.target):
        yield


@asynccontextmanager
async def kill(stage: Stage, step: Step) -> AsyncGenerator[None]:
    """Kill a spoke's API server."""
    async with dead(stage.pool, step.target):
        # It may answer as soon as it is started, long before all of its cluster works again.
        with silent(stage, step.target):
            yield


@asynccontextmanager
async def refuse(stage: Stage, step: Step) -> AsyncGenerator[None]:
    """Reset every connection to a spoke."""
    way = stage.spokes[step.target].way
    with silent(stage, step.target):
        way.refusing = True
        await way.cut()
        yield
        way.refusing = False


@asynccontextmanager
async def blackhole(stage: Stage, step: Step) -> AsyncGenerator[None]:
    """Let nothing through to a spoke or from it; what was sent arrives afterwards."""
    way = stage.spokes[step.target].way
    with silent(stage, step.target), held(stage, step.target):
        way.open.clear()
        yield
        way.open.set()


@asynccontextmanager
async def slow(stage: Stage, step: Step) -> AsyncGenerator[None]:
    """Let everything to a spoke and from it arrive late."""
    way = stage.spokes[step.target].way
    with held(stage, step.target):
        way.delay_seconds = SLOW_SECONDS
        yield
        way.delay_seconds = 0.0


@asynccontextmanager
async def throttle(stage: Stage, step: Step) -> AsyncGenerator[None]:
    """Have a spoke's API server answer 429 to everything that operators ask."""
    client = stage.spokes[step.target].client
    await persist(lambda: client.apply(LEVELS, level()), f"{step.target} has the level")
    await persist(lambda: client.apply(FLOWS, flow()), f"{step.target} has the flow")
    before = await rejected(client)
    yield
    stage.evidence.throttled += max(0, await rejected(client) - before)
    for resource in (FLOWS, LEVELS):
        await persist(lambda each=resource: gone(client, each), f"{step.target} throttles no more")


async def rejected(client: Client) -> int:
    """How many requests a server has refused as too many, by its own count; 0 when it is down."""
    try:
        text = (await client.raw("GET", "/metrics", deadline=10)).decode()
    except KubeError:
        return 0
    lines = [line for line in text.splitlines() if line.startswith(REJECTED)]
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if THROTTLE.name in line)


async def gone(client: Client, resource: Resource) -> None:
    """Remove what throttles."""
    with suppress(NotFound):
        await client.delete(resource, THROTTLE)


def level() -> Object:
    """A priority level with no seat at all."""
    return {
        "apiVersion": LEVELS.api_version,
        "kind": LEVELS.kind,
        "metadata": {"name": THROTTLE.name},
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 0,
                "lendablePercent": 0,
                "borrowingLimitPercent": 0,
                "limitResponse": {"type": "Reject"},
            },
        },
    }


def flow() -> Object:
    """All requests of the operators, before any other rule."""
    every: Object = {
        "subjects": [{"kind": "Group", "group": {"name": GROUP}}],
        "resourceRules": [
            {
                "verbs": ["*"],
                "apiGroups": ["*"],
                "resources": ["*"],
                "namespaces": ["*"],
                "clusterScope": True,
            }
        ],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }
    return {
        "apiVersion": FLOWS.api_version,
        "kind": FLOWS.kind,
        "metadata": {"name": THROTTLE.name},
        "spec": {
            "matchingPrecedence": 2,
            "priorityLevelConfiguration": {"name": THROTTLE.name},
            "rules": [every],
        },
    }


@asynccontextmanager
async def revoke(stage: Stage, step: Step) -> AsyncGenerator[None]:
    """Make all tokens for a spoke worthless, and hand out new ones later."""
    spoke = stage.spokes[step.target]

    async def drop() -> None:
        for name in REPLICAS:
            with suppress(NotFound):
                await spoke.client.delete(SERVICE_ACCOUNTS, Key(ACCOUNTS, name))

    await persist(drop, f"the tokens for {step.target} are worthless")
    yield
    await persist(
        lambda: hand_out(stage, spoke.name, spoke.client), f"there are tokens for {step.target}"
    )


SPOKE_FAULTS: dict[str, Fault] = {
    "freeze": freeze,
    "kill": kill,
    "refuse": refuse,
    "blackhole": blackhole,
    "slow": slow,
    "throttle": throttle,
    "revoke": revoke,
}
