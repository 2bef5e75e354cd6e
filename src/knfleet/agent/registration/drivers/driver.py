"""The interface of a registration driver on a cluster: how its agent gets and keeps credentials."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from knfleet.agent.registration.cluster_names import AgentNames
from knfleet.agent.registration.cluster_registration import RegistrationRequest, ReportFailure
from knfleet.agent.registration.identity import Bootstrap, HubCredentials
from knfleet.kube.client.verbs import Client

if TYPE_CHECKING:
    from knfleet.agent.hub_session import CertificateHolder
    from knfleet.agent.work.source import WorkSource
    from knfleet.runtime.manager import Component


class IssuedCertificate(Struct, frozen=True):
    """A client certificate, and the key that belongs to it; never printed.

    Both are empty for a driver whose agents log in by something else.
    """

    key: bytes
    certificate: bytes

    def __repr__(self) -> str:
        return "IssuedCertificate()"


class RequestRefused(Struct, frozen=True):
    """A request was denied, failed, or removed."""

    why: str


class AgentRegistrationDriver(Protocol):
    """A way to get credentials for the hub, as the flag --registration-auth names it."""

    signer: str
    """Who signs its certificates."""

    @property
    def annotations(self) -> Mapping[str, str]:
        """What the ManagedCluster must say so that the hub can accept it."""
        ...

    async def bootstrap_client(self, bootstrap: Bootstrap, cluster: str) -> Client:
        """A client of a hub that does not know us yet."""
        ...

    def session_client(
        self, bootstrap: Bootstrap, cluster: str, identity: "CertificateHolder"
    ) -> Client:
        """A client of a hub that knows us."""
        ...

    def components(self, hub: Client) -> "Sequence[Component]":
        """What must run for as long as a session lasts."""
        ...

    def work_source(self, hub: Client, server: str, cluster: str) -> "WorkSource":
        """Where works come from; `server` tells hubs apart."""
        ...

    def located(
        self, credentials: HubCredentials, bootstrap: Bootstrap, folder: Path | None
    ) -> HubCredentials:
        """Credentials with the address of a hub; the same when it is where they say."""
        ...

    def problem(self, credentials: HubCredentials, names: AgentNames, now: datetime) -> str:
        """Why credentials cannot be used; empty when they can."""
        ...

    def expires(self, credentials: HubCredentials) -> datetime | None:
        """When credentials end; None when they cannot be used at all."""
        ...

    def renew_at(self, credentials: HubCredentials, chance: float) -> datetime | None:
        """When to renew credentials; `chance` is a number from 0 to 1 that spreads a fleet."""
        ...

    def validity(self, credentials: HubCredentials) -> str:
        """From when to when credentials are valid, for conditions and logs."""
        ...

    async def obtain(
        self, hub: Client, wanted: RegistrationRequest, report: ReportFailure
    ) -> IssuedCertificate | RequestRefused:
        """Ask for credentials, first or next ones, and wait for the answer."""
        ...
