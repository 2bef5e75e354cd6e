"""Clients for the servers of this folder."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec import Struct

from knfleet.api.meta import ClusterName, Resource
from knfleet.kube.auth.credentials import Credential, CredentialSource, StaticCredential
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.kube.errors import KubeError

SECRET = "sesame-open"
QUICK = ClientOptions(deadline_seconds=10, backoff_seconds=0.01, backoff_limit_seconds=0.05)


class Tokens:
    """A credential source that hands out a new token each time."""

    def __init__(self) -> None:
        self.fetched = 0

    async def fetch(self) -> Credential:
        """The next token."""
        self.fetched += 1
        return Credential(token=f"{SECRET}-{self.fetched}")


class Heard:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, int]] = []
        self.restarts: list[str] = []
        self.refreshed = 0
        self.stirred = asyncio.Event()
        """Set whenever anything was heard."""

    def request(self, cluster: ClusterName, verb: str, code: int, seconds: float) -> None:
        """Remember an attempt."""
        self.requests.append((verb, code))
        self.stirred.set()

    def watch_restarted(
        self, cluster: ClusterName, resource: Resource, error: KubeError | None
    ) -> None:
        """Remember why."""
        self.restarts.append("ended" if error is None else type(error).__name__)
        self.stirred.set()

    def credential_refreshed(self, cluster: ClusterName) -> None:
        """Count."""
        self.refreshed += 1


class Certificates(Struct):
    """A credential source whose certificate a test may change."""

    credential: Credential

    async def fetch(self) -> Credential:
        """The current one."""
        return self.credential


@asynccontextmanager
async def client_for(
    endpoint: Endpoint | str,
    *,
    options: ClientOptions = QUICK,
    credentials: CredentialSource | None = None,
) -> AsyncGenerator[Client, None]:
    """A client that is closed in the end."""
    if isinstance(endpoint, str):
        endpoint = Endpoint(endpoint)
    source = credentials or StaticCredential(Credential(token=SECRET))
    async with Client(Connection(ClusterName("spoke"), endpoint, source), options) as client:
        yield client
