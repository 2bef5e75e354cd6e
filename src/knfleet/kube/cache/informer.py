"""One collection of one cluster, kept in memory.

The informer lists once, then watches, and resumes where it was whenever the watch ends. When the
server has forgotten that place it lists again, and notices what was deleted meanwhile; until then
the old objects are served on. It never gives up: what is wrong at the moment is in `failing`.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping

import structlog

from knfleet.api.meta import Key, Object, Resource
from knfleet.kube.cache.store import Index, Store, StoreChange
from knfleet.kube.cache.watch import WatchEvent
from knfleet.kube.client.retry import backoff
from knfleet.kube.client.verbs import Client, ListSelection
from knfleet.kube.errors import BadRequest, BadResponse, Expired, Invalid, KubeError, RequestTimeout
from knfleet.kube.nesting import flattened

__all__ = ["Informer", "StoreChange", "as_is", "without_managed_fields"]

BACKOFF_SECONDS = 0.5
BACKOFF_LIMIT_SECONDS = 30
WATCH_SECONDS = (300, 600)
"""The server is asked to end a watch after this long, at random, so that load spreads."""
QUICK_SECONDS = 1
"""A watch that ends sooner than this without an event counts as a failure."""
COMPLAINT_SECONDS = 60
"""Between two log lines about handlers that fail."""

log = structlog.get_logger()


def as_is(manifest: Object) -> Object:
    return manifest


def without_managed_fields(manifest: Object) -> Object:
    """Drop what is often half of an object and rarely read."""
    manifest["metadata"].pop("managedFields", None)
    return manifest


class Informer:
    """Keeps one collection of one cluster in memory."""

    def __init__(  # noqa: PLR0913 - each is a choice of its own
        self,
        client: Client,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        trim: Callable[[Object], Object] = as_is,
        indexes: Mapping[str, Index] | None = None,
        kept_weight: Callable[[Object], int] | None = None,
    ) -> None:
        self.client = client
        self.resource = resource
        self.selection = ListSelection(resource, namespace, labels, fields, metadata_only)
        self.trim = trim
        self.kept_weight = kept_weight
        """How much memory a trimmed object takes; without it, each counts as it was sent."""
        self.store = Store(indexes or {})
        self.handlers: list[Callable[[StoreChange], None]] = []
        self.synced = asyncio.Event()
        self.resource_version = ""
        self.last_contact = 0.0
        self.failing: KubeError | None = None
        self.failures = 0
        self.relists = 0
        """How often in a row the server forgot a place soon after a list."""
        self.listed = 0.0
        self.received_any = False
        self.handler_failures = 0
        self.quiet_until = 0.0
        """When the next error of a handler is logged at the soonest."""
        self.streams_lists = True
        self.weights: dict[Key, int] = {}
        """How much memory each object counts."""

    def on_change(self, handler: Callable[[StoreChange], None]) -> None:
        """Call a function with every change, in order; it must not block."""
        self.handlers.append(handler)

    def get(self, key: Key) -> Object | None:
        """One object; it is shared, so it must not be changed."""
        return self.store.objects.get(key)

    def items(self) -> list[Object]:
        return list(self.store.objects.values())

    def by_index(self, index: str, value: str) -> list[Object]:
        return self.store.by_index(index, value)

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        try:
            await self.follow_on()
        finally:
            self.client.transport.budget.release(sum(self.weights.values()))
            self.weights.clear()

    async def follow_on(self) -> None:
        """Follow the collection, whatever happens."""
        while True:
            opened = time.monotonic()
            self.received_any = False
            try:
                await self.follow()
                ended: KubeError | None = None
                delay = self.after_end(opened)
            except KubeError as error:
                ended = error
                delay = self.after_error(error, opened)
            self.client.options.observe.watch_restarted(self.client.cluster, self.resource, ended)
            await asyncio.sleep(delay)

    def after_end(self, opened: float) -> float:
        """How long to wait after a watch that the server ended; only the first one is free."""
        if time.monotonic() - opened >= QUICK_SECONDS:
            self.failures = 0
            return 0
        is_first = not self.failures
        delay = self.next_backoff()
        return 0 if self.received_any and is_first else delay

    def before_relist(self) -> float:
        """How long to wait before a new list; only the first one soon after another is free.

        Not by how long the watch lasted: a large list alone takes longer than a failure may.
        """
        if time.monotonic() - self.listed >= BACKOFF_LIMIT_SECONDS:
            self.relists = 0
            return 0
        self.relists += 1
        if self.relists == 1:
            return 0
        return backoff(self.relists - 1, base=BACKOFF_SECONDS, limit=BACKOFF_LIMIT_SECONDS)

    def after_error(self, error: KubeError, opened: float) -> float:
        """How long to wait after a list or watch that failed, and from where to go on."""
        if isinstance(error, Expired) and self.resource_version:
            self.resource_version = ""
            return self.before_relist()
        if self.streams_lists and isinstance(error, BadRequest | Invalid):
            self.streams_lists = False
            return 0
        if isinstance(error, RequestTimeout) and not self.received_any:
            # Nothing at all, not even a bookmark: the server may have been restored from a backup
            # and wait for a version that is in its future.
            self.resource_version = ""
        self.failing = error
        if time.monotonic() - opened >= (
            QUICK_SECONDS if self.received_any else BACKOFF_LIMIT_SECONDS
        ):
            self.failures = 0
        asked = getattr(error, "retry_after_seconds", None) or 0
        return max(self.next_backoff(), min(asked, BACKOFF_LIMIT_SECONDS))

    def next_backoff(self) -> float:
        """A wait that grows with each failure in a row."""
        self.failures += 1
        limit = self.client.options.watch_backoff_limit_seconds
        return backoff(self.failures, base=BACKOFF_SECONDS, limit=limit)

    async def follow(self) -> None:
        """List if need be, then watch until the server ends it."""
        if not self.resource_version and not self.streams_lists:
            await self.relist()
        initial = not self.resource_version
        seen: set[Key] = set()
        async with self.client.watching(
            self.selection,
            since=self.resource_version,
            timeout_seconds=random.randint(*WATCH_SECONDS),  # noqa: S311 - not a secret
        ) as events:
            self.contact()
            seconds = self.client.options.list_seconds if initial else None
            async with self.client.within(seconds, self.selection) as clock:
                async for event in events:
                    self.received_any = True
                    self.last_contact = time.monotonic()
                    if not initial:
                        self.handle(event)
                    elif self.handle_initial(event, seen):
                        initial = False
                        clock.reschedule(None)
        if initial:
            # A server that does not know streaming lists may ignore the wish for one.
            self.streams_lists = False

    def contact(self) -> None:
        """The server answers as it should."""
        self.last_contact = time.monotonic()
        self.failing = None

    async def relist(self) -> None:
        """Handle the collection page by page, then drop what is not in it."""
        seen: set[Key] = set()
        version = ""
        pages = self.client.pages_of(self.selection)
        async with (
            self.client.within(self.client.options.list_seconds, self.selection),
            self.client.holding(self.selection, pages) as held,
        ):
            async for page in held:
                self.contact()
                for manifest, size in zip(page.items, page.weights, strict=True):
                    seen.add(self.put(manifest, size))
                version = page.resource_version
        self.complete(seen, version)

    def handle_initial(self, event: WatchEvent, seen: set[Key]) -> bool:
        """Handle an event of a streaming list; True when it was the last."""
        if event.type == "BOOKMARK":
            if event.ends_initial_events:
                self.complete(seen, version_of(event.object))
            return event.ends_initial_events
        if event.type == "DELETED":
            seen.discard(self.remove(event.object))
        else:
            seen.add(self.put(event.object, event.weight))
        return False

    def handle(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self.remove(event.object)
        elif event.type != "BOOKMARK":
            self.put(event.object, event.weight)
        self.resource_version = version_of(event.object)

    def complete(self, seen: set[Key], version: str) -> None:
        """A list is complete: what it did not contain is gone."""
        for key in self.store.others(seen):
            self.weigh(key, 0)
            self.notify(self.store.remove(key))
        seen.clear()
        self.listed = time.monotonic()
        self.resource_version = version
        self.synced.set()

    def put(self, manifest: Object, size: int = 0) -> Key:
        """Handle the state of an object."""
        key = key_of(manifest)
        kept = self.trimmed(manifest)
        self.weigh(key, size if self.kept_weight is None else self.kept_weight(kept))
        self.notify(self.store.put(key, kept))
        return key

    def remove(self, manifest: Object) -> Key:
        """Handle that an object is gone."""
        key = key_of(manifest)
        self.weigh(key, 0)
        self.notify(self.store.remove(key, self.trimmed(manifest)))
        return key

    def trimmed(self, manifest: Object) -> Object:
        """What is kept of an object."""
        try:
            return self.trim(manifest)
        except RecursionError:
            # A decoder takes a little more than what else is done with the object.
            return self.trim(flattened(manifest))

    def weigh(self, key: Key, size: int) -> None:
        """Count an object by its size, which is 0 when it is gone."""
        where = f"{self.client.cluster}: GET {self.selection.path}"
        self.client.transport.budget.acquire(size - self.weights.get(key, 0), where)
        if size:
            self.weights[key] = size
        else:
            self.weights.pop(key, None)

    def notify(self, change: StoreChange | None) -> None:
        """Tell all handlers; one that fails is skipped, the others are not affected."""
        if change is None:
            return
        for handler in self.handlers:
            try:
                handler(change)
            except Exception:
                self.handler_failures += 1
                # Now and then only: a server may send what fails without end.
                if time.monotonic() >= self.quiet_until:
                    self.quiet_until = time.monotonic() + COMPLAINT_SECONDS
                    log.exception(
                        "an informer's handler failed",
                        cluster=self.client.cluster,
                        resource=str(self.resource),
                        key=str(change.key),
                        failures=self.handler_failures,
                    )


def key_of(manifest: Object) -> Key:
    """The key of an object that a server sent."""
    try:
        return Key.of(manifest)
    except (KeyError, TypeError, AttributeError) as error:
        raise BadResponse("the server sent an object without a name") from error


def version_of(manifest: Object) -> str:
    """The resource version of an object that a server sent."""
    try:
        return str(manifest["metadata"]["resourceVersion"])
    except (KeyError, TypeError) as error:
        raise BadResponse("the server sent an object without a resource version") from error
