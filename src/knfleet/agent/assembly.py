"""Puts the agent together from what its flags say."""

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from knfleet.agent.main import Agent
from knfleet.agent.registration.bootstrap_kubeconfig import FileSource, SecretSource
from knfleet.agent.registration.credential_store import Keeper
from knfleet.agent.settings import Settings
from knfleet.agent.status.klusterlet import KlusterletStatus
from knfleet.api.meta import ClusterName
from knfleet.kube.client.verbs import Client, Options
from knfleet.kube.endpoint import Connection
from knfleet.runtime.http.listen_address import Bind
from knfleet.runtime.http.liveness import Liveness
from knfleet.runtime.manager import Manager

FEW_AT_ONCE = Options(concurrency=6, user_agent="knfleet-agent")
SPOKE, HOME = ClusterName("spoke"), ClusterName("management")


class Surroundings(Struct, frozen=True):
    """Where the agent runs, and where it looks."""

    spoke: Connection
    home: Connection
    """Where the agent's own Secrets are: the spoke itself, unless it is hosted elsewhere."""
    bootstrap: Path | None = None
    """The bootstrap kubeconfig; without it a Secret beside the agent counts."""
    folder: Path | None = None
    """Where the identity is copied to, for others to read."""
    listen: Bind | None = None


async def build(manager: Manager, *, around: Surroundings, settings: Settings) -> None:
    """Fill a manager with everything that the agent is."""
    spoke = Client(replace(around.spoke, cluster=SPOKE), FEW_AT_ONCE)
    home = Client(replace(around.home, cluster=HOME), FEW_AT_ONCE)
    for client in (spoke, home):
        manager.close_last(client.close)
    source = (
        FileSource(around.bootstrap)
        if around.bootstrap is not None
        else SecretSource(home, settings.namespace)
    )
    klusterlet = KlusterletStatus(home, settings.klusterlet)
    keeper = Keeper(home, settings.namespace, around.folder)
    agent = Agent(settings, spoke=spoke, keeper=keeper, source=source, klusterlet=klusterlet)
    if around.listen is not None:
        manager.add(Liveness(around.listen), "health")
    manager.add(source, "bootstrap")
    manager.add(klusterlet.controller, "klusterlet")
    manager.add(agent, "agent")
