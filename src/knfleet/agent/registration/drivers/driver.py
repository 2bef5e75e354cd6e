"""The interface of a registration driver on a cluster: how its agent gets and keeps credentials."""

from datetime import datetime
from typing import Protocol

from msgspec import Struct

from knfleet.agent.registration.cluster_names import AgentNames
from knfleet.agent.registration.cluster_registration import RegistrationRequest, ReportFailure
from knfleet.agent.registration.identity import HubCredentials
from knfleet.kube.client.verbs import Client


class IssuedCertificate(Struct, frozen=True):
    """A client certificate, and the key that belongs to it; never printed."""

    key: bytes
    certificate: bytes

    def __repr__(self) -> str:
        return "IssuedCertificate()"


class RequestRefused(Struct, frozen=True):
    """A request was denied, failed, or removed."""

    why: str


class AgentRegistrationDriver(Protocol):
    """A way to get credentials for the hub, as the flag --registration-auth names it."""

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
