"""The Klusterlet on the spoke: its conditions tell how the agent and its way to the hub are.

An agent that nobody installed by a Klusterlet has none, and says nothing.
"""

from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from knfleet.api.conditions import StandardCondition, put
from knfleet.api.meta import HUB, Key, Object, Request
from knfleet.api.operator import (
    APPLIED,
    AVAILABLE,
    HUB_CONNECTION_DEGRADED,
    KLUSTERLETS,
    REGISTRATION_DESIRED_DEGRADED,
    WORK_DESIRED_DEGRADED,
    Klusterlet,
)
from knfleet.api.schema import decode
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, Forbidden, NotFound
from knfleet.runtime.controller import Controller, Result

LOOK_SECONDS = 300.0


class HubConnectionStatus(Struct, frozen=True):
    """How the way to the hub is."""

    status: str
    """True when it is not as it should be."""
    reason: str
    message: str


CONNECTED = HubConnectionStatus(
    "False", "BootstrapSecretFunctional,HubConnectionFunctional", "The hub can be reached"
)
WAITING = HubConnectionStatus(
    "True", "BootstrapSecretFunctional,HubKubeConfigSecretMissing", "Not accepted by the hub yet"
)


class KlusterletController:
    """Writes the conditions of one Klusterlet."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.reported = HubConnectionStatus("Unknown", "Starting", "The agent has just started")
        self.controller = Controller("klusterlet", self.reconcile)

    def report(self, connection: HubConnectionStatus) -> None:
        """Tell how the way to the hub is from now on."""
        self.reported = connection
        if self.name:
            self.controller.queue.add(Request(HUB, Key("", self.name)))

    def fail(self, reason: str, message: str) -> None:
        """Tell that the hub cannot be joined, and why."""
        self.report(HubConnectionStatus("True", reason, message))

    async def reconcile(self, _request: Request) -> Result:
        """Write the conditions, unless they are so already."""
        try:
            found = decode(await self.client.get(KLUSTERLETS, self.name), Klusterlet)
            patch = patch_of(found, self.reported, datetime.now(UTC))
            if patch:
                key = Key("", self.name)
                await self.client.patch(KLUSTERLETS, key, patch, subresource="status")
        except Conflict:
            return Result.after(0.2)
        except (NotFound, Forbidden):
            return Result.after(LOOK_SECONDS)
        return Result.after(LOOK_SECONDS)


def patch_of(klusterlet: Klusterlet, connection: HubConnectionStatus, now: datetime) -> Object:
    """The merge patch that makes a Klusterlet tell how the agent is; empty when it does."""
    generation = klusterlet.metadata.generation
    reported: list[tuple[str, str, str, str]] = [
        (APPLIED, "True", "KlusterletApplied", "Klusterlet components are applied"),
        (AVAILABLE, "True", "KlusterletAvailable", "The agent is running"),
        (REGISTRATION_DESIRED_DEGRADED, "False", "DeploymentsFunctional", "The agent is running"),
        (WORK_DESIRED_DEGRADED, "False", "DeploymentsFunctional", "The agent is running"),
        (
            HUB_CONNECTION_DEGRADED,
            connection.status,
            connection.reason,
            connection.message,
        ),
    ]
    wanted = list(klusterlet.status.conditions)
    for type_, status, reason, message in reported:
        new = {"type": type_, "status": status, "reason": reason, "message": message}
        condition = msgspec.convert({**new, "observedGeneration": generation}, StandardCondition)
        wanted = put(wanted, condition, now)
    is_same = wanted == klusterlet.status.conditions
    if is_same and klusterlet.status.observed_generation == generation:
        return {}
    return {
        "metadata": {"resourceVersion": klusterlet.metadata.resource_version},
        "status": {
            "observedGeneration": generation,
            "conditions": msgspec.to_builtins(wanted),
        },
    }
