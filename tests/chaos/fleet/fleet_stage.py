"""A hub whose clusters join in three ways: behind a tunnel, over gRPC, and by certificate requests.

A Placement selects some of them, and has them get a replica set's work, an add-on and Knative.
"""

from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import Struct, field

from knfleet.agent.grpc.grpc_config import GrpcConfig
from knfleet.api.addon.addondeploymentconfig import CONFIGS
from knfleet.api.addon.addontemplate import ADDON_TEMPLATES
from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.names import DEFAULT_NAMESPACE
from knfleet.api.cluster.placement import PLACEMENT_LABEL, PLACEMENTS
from knfleet.api.core import NAMESPACES
from knfleet.api.fleet.knativefleet import KNATIVE_FLEETS
from knfleet.api.meta import Object
from knfleet.api.operator import OPERATOR_NAMESPACE
from knfleet.api.work.replicaset import REPLICA_SETS
from knfleet.kube.endpoint import Endpoint
from testbed import small_release
from testbed.agent_process import bootstrap_token
from testbed.fakes.sockets import free_port
from testbed.fakes.ways import Way
from testbed.grpc_servers import HOST, GrpcServerProcess, grpc_manager, published_ca, server_process
from tests.chaos.works.works_stage import Member, WorksStage
from tests.support import addons
from tests.support.placements import DecisionHistory, bind, decided, history, relabel, thing

SPACE = OPERATOR_NAMESPACE
"""Where ClusterProfiles are, and so the Placement of a KnativeFleet."""
NAME = "chaos"
"""Of the Placement, and of all that it spreads."""
LABEL = "chaos"
SPREAD, GREETING = "spread", "greeting"
"""The ConfigMaps of the replica set and of the add-on on each cluster."""
SERVING = "knative-serving"
NOWHERE = "https://127.0.0.1:9"
"""Where the hub finds nothing: there is no way to the cluster but the tunnel."""
BY_TUNNEL, OVER_GRPC = 0, 1
"""Which clusters join in which way; all others join by certificate requests, and are reached."""
VERSIONS = ("1.22.0", "1.23.0")


class WantedFleet(Struct):
    """What is wanted of all clusters together."""

    chosen: set[str] = field(default_factory=set[str])
    """The clusters with the label that the Placement selects by; never none."""
    most: int = 0
    """The most clusters that are to be selected; 0: all."""
    spread: str = "first"
    greeting: str = "first"
    version: str = VERSIONS[0]

    @property
    def count(self) -> int:
        """How many clusters are to be selected."""
        return min(self.most or len(self.chosen), len(self.chosen))


class FleetStage(WorksStage):
    """Everything that faults can strike."""

    server: GrpcServerProcess
    decisions: DecisionHistory

    def releases(self) -> Path:
        """The folder with the release files of a small Knative."""
        folder = self.root / "releases"
        return folder if folder.exists() else small_release.write(folder)

    def cluster_manager(self) -> Object:
        """How the hub is configured."""
        return grpc_manager()

    async def prepare(self, closing: AsyncExitStack) -> None:
        """Make the hub and its tunnel ready to be started."""
        self.closing = closing
        self.wanted = WantedFleet()
        agents, consumers = free_port(), free_port()
        self.tunnels = await closing.enter_async_context(Way(f"https://127.0.0.1:{agents}"))
        self.flags = (
            "--disable-ha",
            f"--tunnel-endpoint=127.0.0.1:{self.tunnels.port}",
            f"--tunnel-listen=127.0.0.1:{agents}",
            f"--tunnel-front-listen=127.0.0.1:{consumers}",
            f"--tunnel-front=https://localhost:{consumers}",
        )
        await super().prepare(closing)

    async def way_to_hub(self, closing: AsyncExitStack) -> Way:
        """The connection of the next cluster to the hub or its gRPC server."""
        if len(self.members) != OVER_GRPC:
            return await super().way_to_hub(closing)
        self.ca = await published_ca(self.client)
        self.server = await server_process(self.lent.connection, self.folder("grpc"))
        closing.push_async_callback(self.server.kill)
        await self.server.start()
        return await closing.enter_async_context(Way(f"https://{HOST}:{self.server.port}"))

    def folder(self, name: str) -> Path:
        """A new folder."""
        made = self.root / name
        made.mkdir()
        return made

    async def introduce(self, member: Member) -> None:
        """Tell an agent where the hub or its gRPC server is."""
        await super().introduce(member)
        await member.client.apply(NAMESPACES, thing(NAMESPACES, DEFAULT_NAMESPACE))
        if len(self.members) == BY_TUNNEL:
            member.flags = ("--spoke-external-server-urls", NOWHERE)
        if len(self.members) == OVER_GRPC:
            member.agent.point_to(Endpoint("https://127.0.0.1:1"), "")
            path = member.agent.folder / "grpc.yaml"
            token = await bootstrap_token(self.client)
            path.write_bytes(GrpcConfig(f"{HOST}:{member.way.port}", self.ca, token).with_token())
            member.flags = ("--registration-auth", "grpc", "--grpc-bootstrap-config", str(path))

    async def spread(self) -> None:
        """Select all clusters, and have them get everything."""
        client, wanted = self.client, self.wanted
        await bind(client, SPACE, "default")
        await client.apply(NAMESPACES, thing(NAMESPACES, SERVING))
        for name in self.members:
            await relabel(client, name, **{LABEL: "in"})
            wanted.chosen.add(name)
        await client.create(PLACEMENTS, placement())
        await client.create(REPLICA_SETS, replica_set(wanted.spread))
        greeting = addons.config_map(GREETING, text="{{TEXT}}")
        await client.create(ADDON_TEMPLATES, addons.template(NAME, greeting))
        await client.apply(CONFIGS, deployment_config(wanted.greeting))
        selected = {"name": NAME, "namespace": SPACE}
        await client.create(
            CLUSTER_ADDONS, addons.cluster_addon(NAME, selected, default_config=NAME)
        )
        await client.create(KNATIVE_FLEETS, knative_fleet(wanted.version))

    async def watch_decisions(self) -> None:
        """Remember what a reader of the decisions can see, from the first complete ones on."""
        await decided(self.client, SPACE, NAME, *self.members)
        labels = f"{PLACEMENT_LABEL}={NAME}"
        self.decisions = await self.closing.enter_async_context(history(self.client, SPACE, labels))


def placement() -> Object:
    """Selects clusters by a label, whatever state they are in."""
    selector = {"labelSelector": {"matchLabels": {LABEL: "in"}}}
    spec = {
        "clusterSets": ["default"],
        "predicates": [{"requiredClusterSelector": selector}],
        "tolerations": [{"operator": "Exists"}],
    }
    return thing(PLACEMENTS, NAME, SPACE, spec=spec)


def replica_set(text: str) -> Object:
    """A replica set with one ConfigMap."""
    spec = {"placementRefs": [{"name": NAME}], "manifestWorkTemplate": work_template(text)}
    return thing(REPLICA_SETS, NAME, SPACE, spec=spec)


def work_template(text: str) -> Object:
    """The work of each cluster."""
    return {"workload": {"manifests": [addons.config_map(SPREAD, text=text)]}}


def deployment_config(text: str) -> Object:
    """What the add-on is to write."""
    return addons.deployment_config(NAME, customizedVariables=[{"name": "TEXT", "value": text}])


def knative_fleet(version: str) -> Object:
    """Knative on all selected clusters, one after the other."""
    return thing(
        KNATIVE_FLEETS,
        NAME,
        spec={
            "clusters": {"namespace": SPACE, "placementRef": {"name": NAME}},
            "serving": {"spec": {"version": version, "ingress": {}}},
            "strategy": {"maxConcurrency": 1},
        },
    )
