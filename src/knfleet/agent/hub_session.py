"""The agent's session with a hub that knows its cluster: what all controllers of an agent share."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from knfleet.agent.registration.cluster_names import AgentNames
from knfleet.agent.registration.credential_store import CredentialStore
from knfleet.agent.registration.drivers.driver import AgentRegistrationDriver
from knfleet.agent.registration.identity import HUB, Bootstrap, HubCredentials
from knfleet.agent.settings import AgentSettings
from knfleet.api.cluster.managedcluster import CLUSTERS, ManagedCluster
from knfleet.api.conditions import StandardCondition
from knfleet.api.meta import Key, Object, Request
from knfleet.api.schema import decode
from knfleet.kube.auth.credentials import REREAD, Credential
from knfleet.kube.cache.informer import Informer, StoreChange, without_managed_fields
from knfleet.kube.client.verbs import Client
from knfleet.runtime.events.recorder import Events


class CertificateHolder:
    """The agent's current certificate: a renewed one is used without a new connection."""

    def __init__(self, credentials: HubCredentials) -> None:
        self.credentials = credentials

    async def fetch(self) -> Credential:
        """The current pair of certificate and key."""
        return Credential(
            client_certificate=self.credentials.certificate,
            client_key=self.credentials.key,
            expires=datetime.now(UTC) + min(REREAD, timedelta(seconds=10)),
        )


class HubSession:
    """A connection to the hub with the agent's credentials, and the agent's ManagedCluster."""

    def __init__(
        self,
        settings: AgentSettings,
        credentials: HubCredentials,
        bootstrap: Bootstrap,
        *,
        spoke: Client,
        store: CredentialStore,
        driver: AgentRegistrationDriver,
    ) -> None:
        self.settings = settings
        self.names = AgentNames(credentials.cluster, credentials.agent)
        self.address = bootstrap.address
        self.spoke = spoke
        self.store = store
        self.driver = driver
        self.identity = CertificateHolder(credentials)
        self.hub = driver.session_client(bootstrap, self.names.cluster, self.identity)
        self.own = Informer(
            self.hub,
            CLUSTERS,
            fields=f"metadata.name={self.names.cluster}",
            trim=without_managed_fields,
        )
        self.events = Events(self.hub, "knfleet-agent")
        self.condition: StandardCondition | None = None
        """The result of the last renewal, for the cluster's conditions."""
        self.condition_handlers: list[Callable[[], None]] = []
        self.ended = asyncio.Event()
        self.end_reason = ""

    @property
    def request(self) -> Request:
        """The one request that all controllers of an agent reconcile."""
        return Request(HUB, Key("", self.names.cluster))

    def cluster(self) -> ManagedCluster | None:
        """The ManagedCluster, as last read from the hub."""
        found = self.own.get(Key("", self.names.cluster))
        return None if found is None else decode(found, ManagedCluster)

    def regarding(self, cluster: ManagedCluster) -> Object:
        """A cluster as Events in its namespace name it."""
        meta = {"name": cluster.name, "namespace": cluster.name, "uid": cluster.metadata.uid}
        return {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind, "metadata": meta}

    def set_condition(self, condition: StandardCondition) -> None:
        """Have a condition of the agent written to the ManagedCluster."""
        self.condition = condition
        for handler in self.condition_handlers:
            handler()

    def on_cluster(
        self, wake: Callable[[], None], concern: Callable[[Object | None], object]
    ) -> None:
        """Call a function when a part of the ManagedCluster changes that concerns it."""

        def handle(change: StoreChange) -> None:
            if concern(change.old) != concern(change.new):
                wake()

        self.own.on_change(handle)

    def end(self, reason: str) -> None:
        """End the session; the first reason counts."""
        self.end_reason = self.end_reason or reason
        self.ended.set()
