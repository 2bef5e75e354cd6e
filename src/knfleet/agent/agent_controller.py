"""A controller of the agent as a value: its name, what it watches, what it does, its rights.

Each module of a controller offers one as `CONTROLLER`, and `agent.controllers` lists them. All of
them reconcile the one ManagedCluster of the agent, so a request carries nothing.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from knfleet.agent.hub_session import HubSession
from knfleet.api.meta import Object, Request
from knfleet.runtime.controller import Result
from knfleet.runtime.manager import Component

Wake = Callable[[], None]


class SessionReconciler(Protocol):
    """What a controller watches and does for as long as a session lasts."""

    def watch(self, wake: Wake) -> Sequence[Component]:
        """Have `wake` called when there is something to do; what must run for that."""
        ...

    async def reconcile(self, request: Request, /) -> Result:
        """Do what is to be done now."""
        ...


class AgentController(Struct, frozen=True):
    """A controller that `agent.controllers` runs."""

    name: str
    """As logs name it."""
    build: Callable[[HubSession], SessionReconciler]
    managed_rules: Sequence[Object] = ()
    """The rules of RBAC that it needs on the managed cluster."""
    home_rules: Sequence[Object] = ()
    """The rules that it needs in the agent's own namespace."""
