"""The Klusterlet on the spoke: its conditions tell how the agent and its way to the hub are.

An agent that was not installed by a Klusterlet has none, and says nothing.
"""

import asyncio
from datetime import UTC, datetime
from typing import Literal

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
from knfleet.apply.manifest_fields import part
from knfleet.aws.eks_arns import ArnProblem, EksArn, RegistrationRoles
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, Forbidden, NotFound
from knfleet.runtime.controller import Controller, Result

LOOK_SECONDS = 300.0
READY_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 0.05


class HubConnectionStatus(Struct, frozen=True):
    """How the way to the hub is."""

    status: str
    """True when it is not as it should be."""
    reason: str
    message: str


class AddOnTokens(Struct, frozen=True, rename="camel"):
    """Tokens of add-ons' agents."""

    expiration_seconds: int = 0


class AddOnDriver(Struct, frozen=True, rename="camel"):
    """How agents of add-ons reach the hub."""

    auth_type: Literal["", "csr", "token"] = ""
    token: AddOnTokens = AddOnTokens()


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
        self.informer = Informer(client, KLUSTERLETS, fields=f"metadata.name={name}")
        self.informer.on_change(self.changed)
        self.driver_changed = asyncio.Event()

    async def run(self) -> None:
        """Follow the Klusterlet, and write its conditions."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.controller.run())
            if self.name:
                group.create_task(self.informer.run())

    def changed(self, change: StoreChange) -> None:
        """Note when the Klusterlet asks for another registration driver."""
        old, new = (
            (driver_part(each), addon_driver_part(each)) for each in (change.old, change.new)
        )
        if change.old is not None and old != new:
            self.driver_changed.set()

    async def ready(self) -> None:
        """Return when the Klusterlet was read once, or cannot be."""
        ends = asyncio.get_running_loop().time() + READY_SECONDS
        while self.name and not self.informer.synced.is_set() and self.informer.failing is None:
            if asyncio.get_running_loop().time() > ends:
                return
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    @property
    def auth_type(self) -> str:
        """The registration driver that the Klusterlet asks for; empty when it says nothing."""
        return auth_type_of(self.informer.get(Key("", self.name)))

    @property
    def roles(self) -> RegistrationRoles | None:
        """The EKS clusters that the Klusterlet names; None when it does not name both."""
        found = part(driver_part(self.informer.get(Key("", self.name))), "awsIrsa")
        arns = (str(found.get(name, "")) for name in ("hubClusterArn", "managedClusterArn"))
        try:
            return RegistrationRoles(*(EksArn.of(each) for each in arns))
        except ArnProblem:
            return None

    @property
    def addon_driver(self) -> AddOnDriver:
        """How agents of add-ons are to reach the hub; empty when the Klusterlet says nothing."""
        found = addon_driver_part(self.informer.get(Key("", self.name)))
        try:
            return msgspec.convert(found, AddOnDriver)
        except msgspec.ValidationError:
            return AddOnDriver()

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


def auth_type_of(manifest: Object | None) -> str:
    """The registration driver that a Klusterlet asks for."""
    found = driver_part(manifest)
    return str(found.get("authType", ""))


def driver_part(manifest: Object | None) -> Object:
    """What a Klusterlet says of the registration driver."""
    return part(manifest or {}, "spec", "registrationConfiguration", "registrationDriver")


def addon_driver_part(manifest: Object | None) -> Object:
    """What a Klusterlet says of the registration of add-ons."""
    configuration = part(manifest or {}, "spec", "registrationConfiguration")
    return part(configuration, "addOnKubeClientRegistrationDriver")


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
