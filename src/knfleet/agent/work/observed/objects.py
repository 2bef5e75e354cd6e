"""The objects of works in the cluster, known by watch: one for each kind, selected by our label.

Of every object only a small record is kept: what tells states apart, who owns it, and the values
and conditions that rules of works ask for. Objects without our label are watched by name, and
beyond a number of them read now and then.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from msgspec import Struct

from knfleet.agent.work.act.own_writes import is_newer
from knfleet.agent.work.desired.content import SELECTOR, WORK_LABEL, content, covers, digest
from knfleet.agent.work.desired.manifest_options import ManifestOptions
from knfleet.agent.work.desired.owners import OwnedState, is_work
from knfleet.agent.work.observed.condition_rules import RuleResult, environment, evaluate_rules
from knfleet.agent.work.observed.feedback import Feedback, FeedbackOptions, read_feedback
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import items, part
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError, NotFound
from knfleet.runtime.logs import log

MOST_KINDS = 200
"""Kinds that are watched at once; objects of others are read when they are written."""
MOST_NAMED = 50
"""Objects that are watched by name."""
SYNC_SECONDS = 15.0
"""How long to wait for what exists of a kind."""
LINGER_SECONDS = 300.0
"""How long a kind is watched on after its last object."""
MOST_REMOVED = 10_000
"""Objects that are gone and still remembered."""
RECENT_SECONDS = 10.0
"""For so long an older event is taken to be older than our own write."""

RECORD = "record"
RECORD_BYTES, VALUE_BYTES = 2048, 512
"""What a record and a value of it take, about."""
NO_JSON = FeedbackOptions()


class Expectation(Struct, frozen=True):
    """What one work wants to know about an object."""

    labels: Object = {}
    annotations: Object = {}
    options: ManifestOptions = ManifestOptions()
    named: bool = False
    """Whether the object does not carry our label, and is watched by name."""


class View(Struct, frozen=True):
    """An object as one work wants to see it."""

    expectation: Expectation
    is_labelled: bool
    """Whether labels and annotations are as the work wants them."""
    feedback: Feedback | None
    rules: tuple[RuleResult, ...]


class Record(Struct, frozen=True):
    """What is kept of an object."""

    version: str
    state: OwnedState
    content: str
    """Digest of everything but metadata and status."""
    owners: tuple[Object, ...]
    has_label: bool
    finalizers: tuple[str, ...] = ()
    views: Mapping[str, View] = {}


class Watched(Struct):
    """An informer that runs."""

    informer: Informer
    task: asyncio.Task[None] | None = None


class SpokeObjects:
    """Records of the objects of all works."""

    def __init__(
        self,
        client: Client,
        *,
        feedback: FeedbackOptions = NO_JSON,
        poll_seconds: float = 60.0,
    ) -> None:
        self.client = client
        self.feedback = feedback
        self.poll_seconds = poll_seconds
        self.cel = environment()
        self.records: dict[str, Record] = {}
        self.owned: defaultdict[str, set[str]] = defaultdict(set)
        """Paths of the objects of each owner, by UID."""
        self.targets: dict[str, tuple[Resource, Key]] = {}
        self.expectations: defaultdict[str, dict[str, Expectation]] = defaultdict(dict)
        """By path and work."""
        self.expected: defaultdict[str, set[str]] = defaultdict(set)
        """Paths by work."""
        self.kinds: dict[str, Watched] = {}
        self.named: dict[str, Watched] = {}
        self.polled: set[str] = set()
        self.removed: OrderedDict[str, tuple[str, str]] = OrderedDict()
        """UID and last version of objects that are gone, by path: answers may come later.

        The end of an object has a version of its own, the loss of its label that of the object.
        """
        self.written: dict[str, float] = {}
        self.handlers: list[Callable[[set[str]], None]] = []
        self.group: asyncio.TaskGroup | None = None
        self.started = asyncio.Event()

    def on_change(self, handler: Callable[[set[str]], None]) -> None:
        """Call a function with the works that a changed object concerns."""
        self.handlers.append(handler)

    async def run(self) -> None:
        """Follow everything that is expected, until cancelled."""
        async with asyncio.TaskGroup() as group:
            self.group = group
            self.started.set()
            await self.poll()

    async def poll(self) -> None:
        """Read objects now and then that are too many to be watched by name."""
        while True:
            await asyncio.sleep(self.poll_seconds)
            for path in list(self.polled):
                target = self.targets.get(path)
                if target is not None:
                    before = self.records.get(path)
                    await self.read(*target)
                    if self.records.get(path) != before:
                        self.tell(set(self.expectations.get(path, {})))

    def expect(self, work: str, resource: Resource, key: Key, expectation: Expectation) -> None:
        """Observe an object for a work."""
        path = resource.path(key.namespace, key.name)
        self.targets[path] = (resource, key)
        self.expectations[path][work] = expectation
        self.expected[work].add(path)
        if expectation.named:
            self.watch_named(path, resource, key)

    def forget(self, work: str, keep: Iterable[str] = ()) -> None:
        """Observe for a work only some objects from now on."""
        for path in self.expected[work] - set(keep):
            self.expected[work].discard(path)
            self.expectations[path].pop(work, None)
            if not self.expectations[path]:
                self.drop(path)
        if not self.expected[work]:
            del self.expected[work]

    def drop(self, path: str) -> None:
        """No work asks for an object any more."""
        del self.expectations[path]
        target = self.targets.get(path)
        self.polled.discard(path)
        self.written.pop(path, None)
        watched = self.named.pop(path, None)
        if watched is not None:
            stop(watched)
        record = self.records.get(path)
        if record is None or not record.has_label:
            self.put(path, None)
            self.targets.pop(path, None)
        if target is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(LINGER_SECONDS, self.drop_kind, target[0].path())

    def drop_kind(self, collection: str) -> None:
        """Stop to watch a kind of which nothing is expected."""
        if any(self.targets[path][0].path() == collection for path in self.expectations):
            return
        watched = self.kinds.pop(collection, None)
        if watched is not None:
            stop(watched)
            for path in [
                path for path, (kind, _) in self.targets.items() if kind.path() == collection
            ]:
                self.put(path, None)
                del self.targets[path]

    async def ready(self, resource: Resource) -> KubeError | None:
        """Have the objects of a kind known; why they are not, if so."""
        await self.started.wait()
        collection = resource.path()
        if collection not in self.kinds:
            if len(self.kinds) >= MOST_KINDS:
                log.warning("too many kinds to watch", resource=str(resource), limit=MOST_KINDS)
                return KubeError(f"more than {MOST_KINDS} kinds are watched already")
            self.kinds[collection] = self.start(self.informer(resource, labels=SELECTOR))
        informer = self.kinds[collection].informer
        return await settled(informer, SYNC_SECONDS)

    def informer(
        self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Informer:
        """An informer that keeps records."""
        informer = Informer(
            self.client,
            resource,
            namespace,
            labels=labels,
            fields=fields,
            trim=partial(self.reduce, resource),
            kept_weight=weight_of,
        )
        informer.on_change(partial(self.changed, resource))
        return informer

    def start(self, informer: Informer) -> Watched:
        """Run an informer."""
        assert self.group is not None
        return Watched(informer, self.group.create_task(informer.run()))

    def watch_named(self, path: str, resource: Resource, key: Key) -> None:
        """Watch one object by name, or have it read now and then."""
        if path in self.named or path in self.polled or self.group is None:
            return
        if len(self.named) >= MOST_NAMED:
            self.polled.add(path)
            return
        fields = f"metadata.name={key.name}"
        self.named[path] = self.start(self.informer(resource, key.namespace, fields=fields))

    async def named_ready(self, resource: Resource, key: Key) -> KubeError | None:
        """Have an object known that is watched by name; why it is not, if so."""
        path = resource.path(key.namespace, key.name)
        watched = self.named.get(path)
        if watched is None:
            return await self.read(resource, key)
        return await settled(watched.informer, SYNC_SECONDS)

    async def read(self, resource: Resource, key: Key) -> KubeError | None:
        """Read an object from the cluster; why it cannot be, if so."""
        try:
            self.saw(resource, await self.client.get(resource, key.name, key.namespace))
        except NotFound:
            self.gone(resource, key)
        except KubeError as error:
            return error
        return None

    def is_followed(self, resource: Resource) -> bool:
        """Whether a kind's watch tells of every change; not when the kind itself is gone."""
        watched = self.kinds.get(resource.path())
        return (
            watched is not None
            and watched.informer.synced.is_set()
            and watched.informer.failing is None
        )

    def get(self, resource: Resource, key: Key) -> Record | None:
        """The record of an object; none when it is not there, or not known."""
        return self.records.get(resource.path(key.namespace, key.name))

    def of_owner(self, uid: str) -> list[tuple[Resource, Key]]:
        """All objects that are known to have an owner."""
        return [self.targets[path] for path in sorted(self.owned.get(uid, ()))]

    def saw(self, resource: Resource, manifest: Object) -> Record:
        """Remember an object that the cluster answered with, unless it is gone by now."""
        key = Key.of(manifest)
        path = resource.path(key.namespace, key.name)
        record = self.record(resource, path, manifest)
        known = self.records.get(path)
        uid, last = self.removed.get(path, ("", ""))
        if uid == record.state.uid and is_newer(last, record.version):
            return record
        if known is not None and is_newer(known.version, record.version):
            return known
        self.targets.setdefault(path, (resource, key))
        self.written[path] = asyncio.get_running_loop().time()
        self.put(path, record)
        return record

    def gone(self, resource: Resource, key: Key) -> None:
        """Remember that an object is gone."""
        self.put(resource.path(key.namespace, key.name), None)

    def put(self, path: str, record: Record | None) -> None:
        """Keep the record of an object, or none."""
        old = self.records.pop(path, None)
        for uid in old.state.works if old is not None else ():
            self.owned[uid].discard(path)
            if not self.owned[uid]:
                del self.owned[uid]
        if record is not None:
            self.records[path] = record
            for uid in record.state.works:
                self.owned[uid].add(path)

    def reduce(self, resource: Resource, manifest: Object) -> Object:
        """An event's object as the informer keeps it."""
        meta = manifest["metadata"]
        name, namespace = meta["name"], meta.get("namespace", "")
        kept = {"name": name, "namespace": namespace}
        record = self.record(resource, resource.path(namespace, name), manifest)
        return {"metadata": {**kept, "resourceVersion": record.version}, RECORD: record}

    def record(self, resource: Resource, path: str, manifest: Object) -> Record:
        """The record of an object."""
        meta = part(manifest, "metadata")
        owners = tuple(items(manifest, "metadata", "ownerReferences"))
        state = OwnedState(
            str(meta.get("uid", "")),
            frozenset(str(each.get("uid")) for each in owners if is_work(each)),
            deleting="deletionTimestamp" in meta,
        )
        named: Object = {**manifest, "apiVersion": resource.api_version, "kind": resource.kind}
        return Record(
            str(meta.get("resourceVersion", "")),
            state,
            digest(content(manifest)),
            owners,
            WORK_LABEL in part(meta, "labels"),
            tuple(map(str, meta.get("finalizers") or ())),
            {
                work: self.view(named, expectation)
                for work, expectation in self.expectations.get(path, {}).items()
            },
        )

    def view(self, manifest: Object, expectation: Expectation) -> View:
        """An object as one work wants to see it."""
        meta, options = part(manifest, "metadata"), expectation.options
        return View(
            expectation,
            covers(expectation.labels, part(meta, "labels"))
            and covers(expectation.annotations, part(meta, "annotations")),
            read_feedback(manifest, options.feedback, self.feedback) if options.feedback else None,
            evaluate_rules(manifest, options.conditions, self.cel),
        )

    def changed(self, resource: Resource, change: StoreChange) -> None:
        """Take in a change that a watch shows."""
        path = resource.path(change.key.namespace, change.key.name)
        shown = change.new or change.old
        known = self.records.get(path)
        new: Record | None = None if change.new is None else change.new[RECORD]
        if known is not None and shown is not None:
            version: str = shown["metadata"]["resourceVersion"]
            if not is_newer(version, known.version) and (new is not None or self.is_recent(path)):
                return
        if new is None and known is not None and path in self.named and not self.is_named(change):
            # It lost our label, and is watched by name.
            return
        if new is None and shown is not None:
            self.note_removed(path, shown[RECORD])
        self.targets.setdefault(path, (resource, change.key))
        self.put(path, new)
        if known is None or new is None or differs(known, new):
            self.tell(set(self.expectations.get(path, {})))

    def note_removed(self, path: str, last: Record) -> None:
        """Remember that a watch showed the end of an object, or the loss of its label."""
        self.removed[path] = (last.state.uid, last.version)
        self.removed.move_to_end(path)
        if len(self.removed) > MOST_REMOVED:
            self.removed.popitem(last=False)

    def is_recent(self, path: str) -> bool:
        """Whether we wrote an object a moment ago."""
        moment = self.written.get(path)
        return moment is not None and (asyncio.get_running_loop().time() - moment < RECENT_SECONDS)

    def is_named(self, change: StoreChange) -> bool:
        """Whether a change was shown by a watch of one name."""
        old = change.old
        return old is not None and RECORD in old and not old[RECORD].has_label

    def tell(self, works: set[str]) -> None:
        """Tell which works a change concerns."""
        if works:
            for handler in self.handlers:
                handler(works)


def weight_of(kept: Object) -> int:
    """About how much memory a record takes: values of hostile objects may be long."""
    record: Record = kept[RECORD]
    total = RECORD_BYTES
    for view in record.views.values():
        values = view.feedback.values if view.feedback is not None else ()
        texts = [each.field_value.string or each.field_value.json_raw or "" for each in values]
        texts += [each.message for each in view.rules]
        total += sum(VALUE_BYTES + len(each) for each in texts)
    return total


def differs(old: Record, new: Record) -> bool:
    """Whether a change of an object can concern a work."""
    return (old.state, old.content, old.finalizers, old.views) != (
        new.state,
        new.content,
        new.finalizers,
        new.views,
    )


def stop(watched: Watched) -> None:
    """End an informer."""
    if watched.task is not None:
        watched.task.cancel()


async def settled(informer: Informer, seconds: float) -> KubeError | None:
    """Wait for an informer's first list; why there is none, if so."""
    ends = asyncio.get_running_loop().time() + seconds
    while not informer.synced.is_set():
        if informer.failing is not None:
            return informer.failing
        if asyncio.get_running_loop().time() > ends:
            return KubeError(f"{informer.resource} could not be listed in {seconds:g} s")
        try:
            await asyncio.wait_for(informer.synced.wait(), 0.2)
        except TimeoutError:
            continue
    return None
