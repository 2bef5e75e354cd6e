"""What is done to a fleet beside what is done to works: users change their minds, ways break."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from random import Random

from knfleet.api.addon.addondeploymentconfig import CONFIGS
from knfleet.api.addon.names import DEFAULT_NAMESPACE
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.cluster.placement import PLACEMENTS
from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS
from knfleet.api.fleet.knativefleet import KNATIVE_FLEETS
from knfleet.api.meta import Key
from knfleet.api.work.replicaset import REPLICA_SETS
from knfleet.kube.errors import NotFound
from tests.chaos.faults import persist
from tests.chaos.fleet.fleet_stage import (
    GREETING,
    LABEL,
    NAME,
    SERVING,
    SPACE,
    SPREAD,
    VERSIONS,
    FleetStage,
    deployment_config,
    work_template,
)
from tests.chaos.plan import Place, Sort, Step
from tests.chaos.works import works_faults
from tests.chaos.works.works_faults import Hand, WorksFault
from tests.chaos.works.works_stage import Member, WorksStage

SORTS = (
    *works_faults.SORTS,
    Sort("cut-tunnels", Place.SPOKE, (0.5, 10), cards=2),
    Sort("hold-tunnels", Place.SPOKE, (5, 25)),
    Sort("kill-grpc-server", Place.CENTRE, (0.5, 8)),
    Sort("move-cluster", Place.RESOURCE, cards=6),
    Sort("limit-placement", Place.RESOURCE, cards=3),
    Sort("change-set", Place.RESOURCE, cards=4),
    Sort("change-addon", Place.RESOURCE, cards=4),
    Sort("change-version", Place.RESOURCE, cards=3),
    Sort("spoil", Place.OBJECTS, cards=6),
)


def fleet_of(stage: WorksStage) -> FleetStage:
    """The stage as what it is."""
    assert isinstance(stage, FleetStage)
    return stage


@asynccontextmanager
async def cut_tunnels(stage: WorksStage, step: Step) -> AsyncGenerator[None]:
    """Reset all tunnels, and refuse new ones."""
    way = fleet_of(stage).tunnels
    way.refusing = True
    await way.cut()
    yield
    way.refusing = False


@asynccontextmanager
async def hold_tunnels(stage: WorksStage, step: Step) -> AsyncGenerator[None]:
    """Hold back everything in all tunnels."""
    way = fleet_of(stage).tunnels
    way.open.clear()
    yield
    way.open.set()


@asynccontextmanager
async def kill_grpc_server(stage: WorksStage, step: Step) -> AsyncGenerator[None]:
    """Kill the gRPC server."""
    server = fleet_of(stage).server
    await server.kill()
    yield
    await server.start()


FAULTS: dict[str, WorksFault] = {
    **works_faults.FAULTS,
    "cut-tunnels": cut_tunnels,
    "hold-tunnels": hold_tunnels,
    "kill-grpc-server": kill_grpc_server,
}


async def move_cluster(stage: WorksStage, member: Member, random: Random) -> str:
    """Have the Placement select a cluster no longer, or again; it always selects one."""
    wanted = fleet_of(stage).wanted
    leaves = member.name in wanted.chosen
    if leaves and len(wanted.chosen) == 1:
        return "stays, for it is the last one that is selected"
    if leaves:
        wanted.chosen.remove(member.name)
    else:
        wanted.chosen.add(member.name)
    patch = {"metadata": {"labels": {LABEL: "out" if leaves else "in"}}}
    await persist(
        lambda: stage.client.patch(CLUSTERS, Key("", member.name), patch),
        f"cluster {member.name} is labelled",
    )
    return "is not to be selected" if leaves else "is to be selected"


async def limit_placement(stage: WorksStage, member: Member, random: Random) -> str:
    """Change how many clusters are selected."""
    wanted = fleet_of(stage).wanted
    wanted.most = random.randrange(len(stage.members))
    patch = {"spec": {"numberOfClusters": wanted.most or None}}
    await persist(
        lambda: stage.client.patch(PLACEMENTS, Key(SPACE, NAME), patch), "the Placement is changed"
    )
    return f"the Placement selects {wanted.most or 'all'}"


async def change_set(stage: WorksStage, member: Member, random: Random) -> str:
    """Change the work of the replica set."""
    wanted = fleet_of(stage).wanted
    wanted.spread = str(random.randrange(10**6))
    patch = {"spec": {"manifestWorkTemplate": work_template(wanted.spread)}}
    await persist(
        lambda: stage.client.patch(REPLICA_SETS, Key(SPACE, NAME), patch),
        "the replica set is changed",
    )
    return f"the replica set has {wanted.spread}"


async def change_addon(stage: WorksStage, member: Member, random: Random) -> str:
    """Change the configuration of the add-on."""
    wanted = fleet_of(stage).wanted
    wanted.greeting = str(random.randrange(10**6))
    patch = {"spec": deployment_config(wanted.greeting)["spec"]}
    await persist(
        lambda: stage.client.patch(CONFIGS, Key("default", NAME), patch), "the add-on is changed"
    )
    return f"the add-on has {wanted.greeting}"


async def change_version(stage: WorksStage, member: Member, random: Random) -> str:
    """Change the version of Knative."""
    wanted = fleet_of(stage).wanted
    wanted.version = next(each for each in VERSIONS if each != wanted.version)
    patch = {"spec": {"serving": {"spec": {"version": wanted.version}}}}
    await persist(
        lambda: stage.client.patch(KNATIVE_FLEETS, Key("", NAME), patch), "the fleet is changed"
    )
    return f"the fleet has {wanted.version}"


async def spoil(stage: WorksStage, member: Member, random: Random) -> str:
    """Change or delete on a cluster what the hub spread."""
    resource, key = random.choice(
        [
            (CONFIG_MAPS, Key("default", SPREAD)),
            (CONFIG_MAPS, Key(DEFAULT_NAMESPACE, GREETING)),
            (CONFIG_MAPS, Key(SERVING, "config-network")),
            (DEPLOYMENTS, Key(SERVING, "controller")),
        ]
    )
    patch = {"spec": {"replicas": 3}} if resource == DEPLOYMENTS else {"data": {"text": "by hand"}}
    deletes = random.random() < 0.4

    async def act() -> None:
        with suppress(NotFound):
            if deletes:
                await member.client.delete(resource, key)
            else:
                await member.client.patch(resource, key, patch)

    await persist(act, f"{key} on {member.name} is spoilt")
    return f"{'deleted' if deletes else 'changed'} {resource.kind} {key}"


HANDS: dict[str, Hand] = {
    **works_faults.HANDS,
    "move-cluster": move_cluster,
    "limit-placement": limit_placement,
    "change-set": change_set,
    "change-addon": change_addon,
    "change-version": change_version,
    "spoil": spoil,
}
