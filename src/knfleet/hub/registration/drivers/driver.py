"""The interface of a registration driver on the hub: how agents get their credentials there."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from knfleet.hub.context import HubContext
from knfleet.hub.hub_controller import HubController


class DriverCleanUpFailed(Exception):
    """Something of a deleted cluster could not be removed; the message says what to do."""


async def nothing_to_clean_up(_context: HubContext, _cluster: str) -> None:
    """For drivers that keep nothing for a cluster beyond its rights."""


class HubRegistrationDriver(Struct, frozen=True):
    """A registration driver, as the ClusterManager names it."""

    auth_type: str
    controller: HubController
    """Decides on requests for credentials."""
    clean_up: Callable[[HubContext, str], Awaitable[None]] = nothing_to_clean_up
    """Removes what the driver keeps for a cluster that is deleted."""
