"""A controller of the hub as a value: its name, what it watches, what it does, its rights.

Each folder of `hub` offers one as `CONTROLLER`, and `hub.manager` lists them. The hub's role, its
metrics and its health follow from that list.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from knfleet.api.meta import Object, Request
from knfleet.hub.context import HubContext
from knfleet.kube.cache.informer import StoreChange
from knfleet.runtime.controller import Result

Handler = Callable[[StoreChange], None]


class Watch(Struct, frozen=True):
    """Where changes come from, and which requests each of them calls for."""

    on_change: Callable[[Handler], object]
    requests: Callable[[StoreChange], Iterable[Request]]


class HubReconciler(Protocol):
    """What a controller watches and does."""

    def watches(self) -> Sequence[Watch]:
        """The changes that lead to requests."""
        ...

    async def reconcile(self, request: Request, /) -> Result:
        """Bring one object to its desired state."""
        ...


class HubController(Struct, frozen=True):
    """A controller that `hub.manager` runs."""

    name: str
    """As metrics and logs name it."""
    build: Callable[[HubContext], HubReconciler]
    rules: Sequence[Object]
    """The rules of RBAC that it needs on the hub."""
    initial: Sequence[Request] = ()
    """Requests that are made at the start, whatever is watched."""
