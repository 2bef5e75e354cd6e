"""What is done to hub, clusters, agents and works; each fault that lasts is lifted again."""

import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from random import Random

from knfleet.agent.work.desired.content import WORK_LABEL
from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import Key
from knfleet.api.work.manifestwork import WORKS
from knfleet.kube.errors import Conflict, NotFound
from tests.chaos.faults import SLOW_SECONDS, dead, frozen, persist
from tests.chaos.plan import Place, Sort, Step
from tests.chaos.works.wanted_works import MOST_WORKS, PLACE, manifests, work_manifest
from tests.chaos.works.works_stage import Member, WorksStage

WorksFault = Callable[[WorksStage, Step], AbstractAsyncContextManager[None]]
Hand = Callable[[WorksStage, Member, Random], Awaitable[str]]

SORTS = (
    Sort("kill-agent", Place.SPOKE, (0.1, 8), cards=3),
    Sort("freeze-agent", Place.SPOKE, (2, 20)),
    Sort("cut", Place.SPOKE, (2, 25), cards=2),
    Sort("blackhole", Place.SPOKE, (5, 30)),
    Sort("slow", Place.SPOKE, (10, 25)),
    Sort("kill-cluster", Place.SPOKE, (2, 15), stops_server=True),
    Sort("freeze-cluster", Place.SPOKE, (2, 15), stops_server=True),
    Sort("create-work", Place.RESOURCE, cards=6),
    Sort("change-work", Place.RESOURCE, cards=8),
    Sort("delete-work", Place.RESOURCE, cards=4),
    Sort("replace-work", Place.RESOURCE, cards=2),
    Sort("edit-object", Place.OBJECTS, cards=4),
    Sort("delete-object", Place.OBJECTS, cards=4),
    Sort("unlabel-object", Place.OBJECTS, cards=2),
    Sort("kill-hub", Place.CENTRE, (0.5, 10)),
    Sort("freeze-server", Place.CENTRE, (2, 10)),
    Sort("kill-server", Place.CENTRE, (1, 10)),
)


@asynccontextmanager
async def kill_agent(stage: WorksStage, step: Step) -> AsyncGenerator[None]:
    """End an agent by force, and keep it down for a while."""
    member = stage.members[step.target]
    async with member.is_down:
        await member.agent.end(signal.SIGKILL)
        yield


@asynccontextmanager
async def freeze_agent(stage: WorksStage, step: Step) -> AsyncGenerator[None]:
    """Stop the clock of an agent."""
    member = stage.members[step.target]
    async with member.is_down:
        process = member.agent.process
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGSTOP)
        yield
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def cut(stage: WorksStage, step: Step) -> AsyncGenerator[None]:
    """Reset every connection of an agent to the hub."""
    way = stage.members[step.target].way
    way.refusing = True
    await way.cut()
    yield
    way.refusing = False


@asynccontextmanager
async def blackhole(stage: WorksStage, step: Step) -> AsyncGenerator[None]:
    """Hold back everything between an agent and the hub."""
    way = stage.members[step.target].way
    way.open.clear()
    yield
    way.open.set()


@asynccontextmanager
async def slow(stage: WorksStage, step: Step) -> AsyncGenerator[None]:
    """Let everything between an agent and the hub arrive late."""
    way = stage.members[step.target].way
    way.delay_seconds = SLOW_SECONDS
    yield
    way.delay_seconds = 0.0


@asynccontextmanager
async def kill_cluster(stage: WorksStage, step: Step) -> AsyncGenerator[None]:
    """Kill the API server of a cluster."""
    async with dead(stage.pool, step.target):
        yield


@asynccontextmanager
async def freeze_cluster(stage: WorksStage, step: Step) -> AsyncGenerator[None]:
    """Stop the clock of the API server of a cluster."""
    with frozen(stage.pool, step.target):
        yield


@asynccontextmanager
async def kill_hub(stage: WorksStage, step: Step) -> AsyncGenerator[None]:
    """Kill the hub's process."""
    await stage.process.kill()
    yield
    await stage.start_hub()


@asynccontextmanager
async def freeze_server(stage: WorksStage, step: Step) -> AsyncGenerator[None]:
    """Stop the clock of the hub's API server."""
    with frozen(stage.pool, stage.lent.name):
        yield


@asynccontextmanager
async def kill_server(stage: WorksStage, step: Step) -> AsyncGenerator[None]:
    """Kill the hub's API server."""
    async with dead(stage.pool, stage.lent.name):
        yield


FAULTS: dict[str, WorksFault] = {
    "kill-agent": kill_agent,
    "freeze-agent": freeze_agent,
    "cut": cut,
    "blackhole": blackhole,
    "slow": slow,
    "kill-cluster": kill_cluster,
    "freeze-cluster": freeze_cluster,
    "kill-hub": kill_hub,
    "freeze-server": freeze_server,
    "kill-server": kill_server,
}


async def create_work(stage: WorksStage, member: Member, random: Random) -> str:
    """Create a work, unless there are enough."""
    if len(member.works.works) >= MOST_WORKS:
        return await delete_work(stage, member, random)
    name, wanted = member.works.drawn(random)
    member.works.works[name] = wanted
    await put(stage, member, name)
    return f"created {name} with {len(wanted.objects)} objects"


async def put(stage: WorksStage, member: Member, name: str) -> None:
    """Have a work on the hub as it is wanted."""
    made = work_manifest(member.name, name, member.works.works[name].objects)

    async def create() -> None:
        with suppress(Conflict):
            await stage.client.create(WORKS, made)

    await persist(create, f"work {name} of {member.name} is created")


async def change_work(stage: WorksStage, member: Member, random: Random) -> str:
    """Change the objects of a work."""
    if not member.works.works:
        return await create_work(stage, member, random)
    name = random.choice(sorted(member.works.works))
    wanted = member.works.works[name]
    wanted.objects = member.works.changed(name, random)
    wanted.uids = {key: uid for key, uid in wanted.uids.items() if key in wanted.objects}
    patch = {"spec": {"workload": {"manifests": manifests(wanted.objects)}}}
    await persist(
        lambda: stage.client.patch(WORKS, Key(member.name, name), patch), f"work {name} is changed"
    )
    return f"changed {name}"


async def delete_work(stage: WorksStage, member: Member, random: Random) -> str:
    """Delete a work."""
    if not member.works.works:
        return await create_work(stage, member, random)
    name = random.choice(sorted(member.works.works))
    del member.works.works[name]
    await remove(stage, member, name)
    return f"deleted {name}"


async def remove(stage: WorksStage, member: Member, name: str) -> None:
    """Delete a work on the hub."""

    async def delete() -> None:
        with suppress(NotFound):
            await stage.client.delete(WORKS, Key(member.name, name))

    await persist(delete, f"work {name} of {member.name} is deleted")


async def replace_work(stage: WorksStage, member: Member, random: Random) -> str:
    """Delete a work, and create it again as soon as it is gone."""
    if not member.works.works:
        return await create_work(stage, member, random)
    name = random.choice(sorted(member.works.works))
    wanted = member.works.works.pop(name)
    await remove(stage, member, name)

    async def is_gone() -> None:
        fields = f"metadata.name={name}"
        if (await stage.client.list(WORKS, member.name, fields=fields)).items:
            raise NotGone(f"work {name} is still there")

    await persist(is_gone, f"work {name} of {member.name} is gone")
    wanted.uids.clear()
    member.works.works[name] = wanted
    await put(stage, member, name)
    return f"replaced {name}"


class NotGone(Conflict):
    """A work that is deleted is still there."""

    def __init__(self, text: str) -> None:
        super().__init__(text, code=409, reason="Conflict")


async def chosen_object(member: Member, random: Random) -> str:
    """The name of an object of a work; empty when there is none."""
    names = sorted(member.works.all_objects())
    return random.choice(names) if names else ""


async def edit_object(stage: WorksStage, member: Member, random: Random) -> str:
    """Change an object on the cluster by hand."""
    name = await chosen_object(member, random)
    patch = {"data": {"value": "by hand"}}

    async def edit() -> None:
        with suppress(NotFound):
            await member.client.patch(CONFIG_MAPS, Key(PLACE, name), patch)

    if name:
        await persist(edit, f"{name} on {member.name} is edited")
    return f"edited {name}"


async def delete_object(stage: WorksStage, member: Member, random: Random) -> str:
    """Delete an object on the cluster by hand."""
    name = await chosen_object(member, random)
    for wanted in member.works.works.values():
        wanted.uids.pop(name, None)

    async def delete() -> None:
        with suppress(NotFound):
            await member.client.delete(CONFIG_MAPS, Key(PLACE, name))

    if name:
        await persist(delete, f"{name} on {member.name} is deleted")
    return f"deleted object {name}"


async def unlabel_object(stage: WorksStage, member: Member, random: Random) -> str:
    """Take our label off an object."""
    name = await chosen_object(member, random)
    patch = {"metadata": {"labels": {WORK_LABEL: None}}}

    async def edit() -> None:
        with suppress(NotFound):
            await member.client.patch(CONFIG_MAPS, Key(PLACE, name), patch)

    if name:
        await persist(edit, f"{name} on {member.name} has no label")
    return f"took the label off {name}"


HANDS: dict[str, Hand] = {
    "create-work": create_work,
    "change-work": change_work,
    "delete-work": delete_work,
    "replace-work": replace_work,
    "edit-object": edit_object,
    "delete-object": delete_object,
    "unlabel-object": unlabel_object,
}
