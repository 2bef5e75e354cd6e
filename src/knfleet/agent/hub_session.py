"""A cluster's place on a hub that knows it: what everything that runs there works with."""

import asyncio
from datetime import UTC, datetime, timedelta

from knfleet.agent.registration.cluster_names import AgentNames
from knfleet.agent.registration.identity import HUB, HubAddress, HubCredentials
from knfleet.agent.settings import AgentSettings
from knfleet.api.cluster.managedcluster import CLUSTERS, ManagedCluster
from knfleet.api.conditions import StandardCondition
from knfleet.api.meta import Key, Object, Request
from knfleet.api.schema import decode
from knfleet.kube.auth.credentials import REREAD, Credential
from knfleet.kube.cache.informer import Informer, without_managed_fields
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from knfleet.runtime.events.recorder import Events

FEW_AT_ONCE = ClientOptions(concurrency=12, user_agent="knfleet-agent")


class CertificateHolder:
    """The agent's certificate as it is now: a renewed one is used without a new connection."""

    def __init__(self, credentials: HubCredentials) -> None:
        self.credentials = credentials

    async def fetch(self) -> Credential:
        """The pair that is held now."""
        return Credential(
            client_certificate=self.credentials.certificate,
            client_key=self.credentials.key,
            expires=datetime.now(UTC) + min(REREAD, timedelta(seconds=10)),
        )


class HubSession:
    """The hub as the agent sees it, and what it tells the hub."""

    def __init__(
        self,
        settings: AgentSettings,
        credentials: HubCredentials,
        address: HubAddress,
        spoke: Client,
    ) -> None:
        self.settings = settings
        self.names = AgentNames(credentials.cluster, credentials.agent)
        self.address = address
        self.spoke = spoke
        self.identity = CertificateHolder(credentials)
        self.hub = Client(Connection(HUB, address.endpoint, self.identity), FEW_AT_ONCE)
        self.own = Informer(
            self.hub,
            CLUSTERS,
            fields=f"metadata.name={self.names.cluster}",
            trim=without_managed_fields,
        )
        self.events = Events(self.hub, "knfleet-agent")
        self.rotated: StandardCondition | None = None
        """What became of the last renewal, for the cluster's conditions."""
        self.over = asyncio.Event()
        self.why = ""

    @property
    def request(self) -> Request:
        """The one thing that all controllers of an agent look at."""
        return Request(HUB, Key("", self.names.cluster))

    def cluster(self) -> ManagedCluster | None:
        """The ManagedCluster as the hub last showed it."""
        found = self.own.get(Key("", self.names.cluster))
        return None if found is None else decode(found, ManagedCluster)

    def regarding(self, cluster: ManagedCluster) -> Object:
        """A cluster as Events in its namespace name it."""
        meta = {"name": cluster.name, "namespace": cluster.name, "uid": cluster.metadata.uid}
        return {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind, "metadata": meta}

    def leave(self, why: str) -> None:
        """The agent has no place here any more."""
        self.why = self.why or why
        self.over.set()
