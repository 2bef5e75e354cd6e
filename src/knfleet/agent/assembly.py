"""Puts the agent together from what its flags say."""

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from knfleet.agent.main import Agent
from knfleet.agent.registration.bootstrap_kubeconfig import BootstrapFile, BootstrapSecret
from knfleet.agent.registration.credential_store import CredentialStore
from knfleet.agent.settings import AgentSettings
from knfleet.agent.status.klusterlet import KlusterletController
from knfleet.api.meta import ClusterName
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from knfleet.runtime.http.listen_address import ListenAddress
from knfleet.runtime.http.liveness import LivenessServer
from knfleet.runtime.manager import Manager

FEW_AT_ONCE = ClientOptions(concurrency=6, user_agent="knfleet-agent")
FOR_WORKS = ClientOptions(concurrency=18, user_agent="knfleet-agent")
SPOKE, HOME = ClusterName("spoke"), ClusterName("management")


class AgentEnvironment(Struct, frozen=True):
    """Where the agent runs, and where it looks."""

    spoke: Connection
    home: Connection
    """Where the agent's own Secrets are: the spoke itself, unless it is hosted elsewhere."""
    bootstrap: Path | None = None
    """The bootstrap kubeconfig; without it a Secret beside the agent counts."""
    grpc: Path | None = None
    """The configuration of a gRPC client beside it."""
    folder: Path | None = None
    """Where the identity is copied to, for others to read."""
    listen: ListenAddress | None = None


async def build(
    manager: Manager, *, environment: AgentEnvironment, settings: AgentSettings
) -> None:
    """Fill a manager with everything that the agent is."""
    spoke = Client(replace(environment.spoke, cluster=SPOKE), FOR_WORKS)
    home = Client(replace(environment.home, cluster=HOME), FEW_AT_ONCE)
    for client in (spoke, home):
        manager.close_last(client.close)
    source = (
        BootstrapFile(environment.bootstrap, environment.grpc)
        if environment.bootstrap is not None
        else BootstrapSecret(home, settings.namespace)
    )
    klusterlet = KlusterletController(home, settings.klusterlet)
    store = CredentialStore(home, settings.namespace, environment.folder)
    agent = Agent(settings, spoke=spoke, store=store, source=source, klusterlet=klusterlet)
    if environment.listen is not None:
        manager.add(LivenessServer(environment.listen), "health")
    manager.add(source, "bootstrap")
    manager.add(klusterlet, "klusterlet")
    manager.add(agent, "agent")
