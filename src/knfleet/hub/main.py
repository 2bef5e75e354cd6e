"""The hub as a process: everything that the operator is, and the fleet beside it."""

import asyncio

from msgspec import Struct

from knfleet.api.core import CRDS
from knfleet.api.crds.fleet import HUB_DEFINITIONS, hub_definitions
from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS
from knfleet.api.inventory import PROFILES
from knfleet.clusters.provider_file import ProviderFile
from knfleet.hub.manager import HubManager, HubOptions, start_hub
from knfleet.kube.endpoint import Connection
from knfleet.operator.main import OneTimeTask, Operator
from knfleet.operator.settings import OperatorSettings
from knfleet.release.releases import Releases
from knfleet.runtime import served_kinds
from knfleet.runtime.manager import Manager

OPTIONAL = (KNATIVE_FLEETS,)
"""Kinds without which all but their own controllers work."""


class HubSettings(Struct, frozen=True):
    """What the hub was started with."""

    operator: OperatorSettings
    hub: HubOptions = HubOptions()


class HubProcess:
    """The fleet's part of the process, which shares the operator's client and election."""

    def __init__(self, operator: Operator, options: HubOptions) -> None:
        self.operator = operator
        self.options = options
        self.hub_manager: HubManager | None = None
        self.started = asyncio.Event()
        """Set when the fleet's controllers have begun to watch."""

    def start(self) -> None:
        """Add everything to the operator's manager."""
        self.operator.health.readiness["fleet"] = self.readiness_problem
        self.operator.manager.add(OneTimeTask(self.run_controllers), "fleet")

    async def run_controllers(self) -> None:
        """Start the fleet's controllers when there is something to control."""
        client = self.operator.client
        if self.operator.settings.install_crds:
            for manifest in hub_definitions(self.options.namespace):
                await client.apply(CRDS, manifest)
        kinds = [each.resource for each in HUB_DEFINITIONS if each.resource not in OPTIONAL]
        await served_kinds.wait_for(client, [PROFILES, *kinds])
        self.hub_manager = start_hub(
            self.operator.manager,
            self.operator.leading_writer,
            metrics=self.operator.metrics,
            options=self.options,
            replica_client=client,
        )
        self.started.set()

    def readiness_problem(self) -> str | None:
        """Why the hub is of no use, if it is of none."""
        if self.hub_manager is None:
            return "custom resource definitions of the fleet are missing"
        failing = self.hub_manager.informers.failing
        return None if failing is None else str(failing)


async def build(
    manager: Manager,
    *,
    connection: Connection,
    releases: Releases,
    settings: HubSettings,
    providers: ProviderFile | None,
) -> None:
    """Fill a manager with everything that a hub is."""
    operator = Operator(manager, connection, settings.operator, providers)
    await operator.start(releases)
    HubProcess(operator, settings.hub).start()
