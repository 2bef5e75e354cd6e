"""A spoke that takes little memory, so that a thousand of them fit into one process.

It keeps its objects as the text that it answers with; what is equal on all spokes is kept once. It
knows server-side apply, with the managed fields that go with it, and what follows from it where
somebody waits for it: Deployments become available, Jobs complete, CRDs served, Services get
endpoints.
"""

import uuid
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from knfleet.api import core
from knfleet.api.core import CRDS, DEPLOYMENTS, ENDPOINT_SLICES, JOBS, NAMESPACES, SERVICES
from knfleet.api.meta import Key, Object, Resource
from testbed.fakes.lean.ownership import Share, entry_of, merged, share_of

encode = msgspec.json.Encoder().encode
decode = msgspec.json.decode

HISTORY = 64
MORE = (
    Resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Resource("networking.k8s.io", "v1", "Ingress", "ingresses"),
)
BUILT_IN = (
    *(each for each in vars(core).values() if isinstance(each, Resource)),
    *MORE,
)
EMPTY = b"{}"


class Refused(Exception):
    """The server says no."""

    def __init__(self, code: int, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.code = code
        self.reason = reason


class Stored(Struct, frozen=True):
    """One object as it is at one version."""

    key: Key
    uid: str
    version: int
    generation: int
    shares: tuple[Share, ...]
    labels: Object
    meta: bytes
    body: bytes
    """Everything but names, metadata and status; the same bytes for all spokes that have it."""
    status: bytes = EMPTY


class Event(Struct, frozen=True):
    """One thing that happened."""

    version: int
    type: str
    resource: Resource
    stored: Stored


class Selected(Struct, frozen=True):
    """Which objects somebody wants to see."""

    resource: Resource
    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    name: str = ""

    def fits(self, stored: Stored) -> bool:
        """Whether an object is one of them."""
        return (
            (not self.namespace or stored.key.namespace == self.namespace)
            and (not self.name or stored.key.name == self.name)
            and all(stored.labels.get(label) == value for label, value in self.labels)
        )


class Bodies:
    """Texts that many spokes share."""

    def __init__(self) -> None:
        self.known: dict[bytes, bytes] = {}

    def share(self, text: bytes) -> bytes:
        """The one copy of a text."""
        return self.known.setdefault(text, text)


class LeanSpoke:
    """The objects of one spoke."""

    def __init__(self, name: str, bodies: Bodies, changed: Callable[[Event], None]) -> None:
        self.name = name
        self.bodies = bodies
        self.changed = changed
        self.resources = {(each.group, each.version, each.plural): each for each in BUILT_IN}
        self.objects: dict[Resource, dict[Key, Stored]] = {}
        self.version = 1
        self.history: deque[Event] = deque(maxlen=HISTORY)
        uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.kube-system"))
        self.write(NAMESPACES, Key("", "kube-system"), (), uid=uid)

    def get(self, resource: Resource, key: Key) -> Stored:
        """One object."""
        found = self.objects.get(resource, {}).get(key)
        if found is None:
            raise Refused(404, "NotFound", f'{resource} "{key.name}" not found')
        return found

    def select(self, wanted: Selected) -> list[Stored]:
        """All objects that somebody wants to see."""
        if wanted.resource is ENDPOINT_SLICES:
            return list(self.endpoints(wanted))
        if wanted.name and (wanted.namespace or not wanted.resource.namespaced):
            key = Key(wanted.namespace if wanted.resource.namespaced else "", wanted.name)
            found = self.objects.get(wanted.resource, {}).get(key)
            return [found] if found is not None and wanted.fits(found) else []
        return [
            each for each in self.objects.get(wanted.resource, {}).values() if wanted.fits(each)
        ]

    def endpoints(self, wanted: Selected) -> Iterable[Stored]:
        """A ready endpoint for each Service, as if pods were there."""
        service = dict(wanted.labels).get("kubernetes.io/service-name", "")
        found = self.objects.get(SERVICES, {}).get(Key(wanted.namespace, service))
        if found is not None:
            meta = encode({"name": service, "namespace": wanted.namespace, "resourceVersion": "1"})
            ready = [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}]
            body = encode({"addressType": "IPv4", "endpoints": ready})
            yield replace(found, meta=meta, body=body, status=EMPTY)

    def since(self, version: int, wanted: Selected) -> list[Event]:
        """What happened after a version."""
        oldest = self.history[0].version if self.history else self.version
        if version + 1 < oldest and version < self.version:
            raise Refused(410, "Expired", f"too old resource version: {version} ({oldest})")
        return [
            each
            for each in self.history
            if each.version > version
            and each.resource == wanted.resource
            and wanted.fits(each.stored)
        ]

    def create(self, resource: Resource, manifest: Object, manager: str) -> Stored:
        """Make an object."""
        key = Key.of(manifest)
        if key in self.objects.get(resource, {}):
            raise Refused(409, "AlreadyExists", f'{resource} "{key.name}" already exists')
        return self.write(resource, key, (share_of(manager, "Update", manifest),))

    def apply(self, resource: Resource, key: Key, manifest: Object, manager: str) -> Stored:
        """Make the fields of a manifest so."""
        old = self.objects.get(resource, {}).get(key)
        wanted = manifest.get("metadata", {}).get("resourceVersion")
        if wanted and (old is None or str(old.version) != wanted):
            raise Refused(409, "Conflict", "the object has been modified")
        given = share_of(manager, "Apply", manifest)
        return self.write(resource, key, replaced(old, given))

    def patch(self, resource: Resource, key: Key, patch: Object, manager: str) -> Stored:
        """Merge a patch into what is there."""
        old = self.get(resource, key)
        before = next(
            (each for each in old.shares if (each.manager, each.operation) == (manager, "Update")),
            Share(manager, "Update", {}, EMPTY),
        )
        given = share_of(manager, "Update", patch)
        meta = merged(before.metadata, given.metadata)
        body = encode(merged(decode(before.body), decode(given.body)))
        return self.write(resource, key, replaced(old, Share(manager, "Update", meta, body)))

    def delete(self, resource: Resource, key: Key, uid: str = "") -> Stored:
        """Remove an object."""
        found = self.get(resource, key)
        if uid and uid != found.uid:
            raise Refused(409, "Conflict", "the uid in the precondition is another")
        del self.objects[resource][key]
        self.tell("DELETED", resource, found)
        return found

    def write(
        self, resource: Resource, key: Key, shares: tuple[Share, ...], uid: str = ""
    ) -> Stored:
        """Store what all managers say together, unless it is what is there."""
        old = self.objects.get(resource, {}).get(key)
        if old is not None and old.shares == shares:
            return old
        shares = tuple(replace(each, body=self.bodies.share(each.body)) for each in shares)
        text = self.body_of(shares)
        same = old is not None and old.body == text
        generation = (old.generation if old else 0) + (0 if same else 1)
        self.version += 1
        stored = with_meta(
            resource,
            Stored(
                key,
                old.uid if old else uid or str(uuid.uuid4()),
                self.version,
                generation,
                shares,
                {},
                EMPTY,
                text,
                old.status if old else EMPTY,
            ),
        )
        self.put("MODIFIED" if old else "ADDED", resource, stored)
        if resource is CRDS:
            self.serve(decode(text))
        return stored

    def body_of(self, shares: tuple[Share, ...]) -> bytes:
        """What all managers say together."""
        bodies = [share.body for share in shares if share.body != EMPTY]
        if len(bodies) < 2:
            return bodies[0] if bodies else EMPTY
        whole: Object = {}
        for body in bodies:
            whole = merged(whole, decode(body))
        return self.bodies.share(encode(whole))

    def serve(self, spec: Object) -> None:
        """Serve the kind that a CRD defines."""
        definition = spec["spec"]
        names = definition["names"]
        for version in definition["versions"]:
            place = (definition["group"], version["name"], names["plural"])
            namespaced = definition["scope"] == "Namespaced"
            self.resources[place] = Resource(*place[:2], names["kind"], names["plural"], namespaced)

    def progress(self, resource: Resource, key: Key) -> None:
        """Do what controllers do with an object."""
        stored = self.objects.get(resource, {}).get(key)
        if stored is None:
            return
        status = status_of(resource, stored)
        if status != stored.status:
            self.version += 1
            new = replace(stored, version=self.version, status=status)
            self.put("MODIFIED", resource, with_meta(resource, new))

    def put(self, kind: str, resource: Resource, stored: Stored) -> None:
        """Keep an object, and tell of it."""
        self.objects.setdefault(resource, {})[stored.key] = stored
        self.record(Event(stored.version, kind, resource, stored))

    def tell(self, kind: str, resource: Resource, stored: Stored) -> None:
        """Tell of an object at a version of its own."""
        self.version += 1
        new = with_meta(resource, replace(stored, version=self.version))
        self.record(Event(self.version, kind, resource, new))

    def record(self, event: Event) -> None:
        """Remember what happened, and tell of it."""
        self.history.append(event)
        self.changed(event)


def replaced(old: Stored | None, given: Share) -> tuple[Share, ...]:
    """All shares, with a new one in its place."""
    others = () if old is None else old.shares
    place = (given.manager, given.operation)
    if any((each.manager, each.operation) == place for each in others):
        return tuple(given if (each.manager, each.operation) == place else each for each in others)
    return (*others, given)


def with_meta(resource: Resource, stored: Stored) -> Stored:
    """An object with the metadata that follows from all else."""
    meta: Object = {"name": stored.key.name}
    if stored.key.namespace:
        meta["namespace"] = stored.key.namespace
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    meta |= {
        "uid": stored.uid,
        "resourceVersion": str(stored.version),
        "generation": stored.generation,
        "creationTimestamp": now,
    }
    for share in stored.shares:
        meta = merged(meta, share.metadata)
    entries = [entry_of(share, resource.api_version, now) for share in stored.shares]
    if stored.status != EMPTY:
        status = Share(
            "kube-controller-manager", "Update", {}, b'{"status":' + stored.status + b"}"
        )
        entries.append(entry_of(status, resource.api_version, now) | {"subresource": "status"})
    if entries:
        meta["managedFields"] = entries
    return replace(stored, labels=meta.get("labels") or {}, meta=encode(meta))


def status_of(resource: Resource, stored: Stored) -> bytes:
    """What a cluster's controllers make of an object."""
    if resource is CRDS:
        names = {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts"}
        served = {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"}
        return encode({"conditions": [names, served]})
    if resource is JOBS:
        return encode({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]})
    if resource is not DEPLOYMENTS:
        return stored.status
    count = decode(stored.body)["spec"].get("replicas", 1)
    available = {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"}
    moved = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
    return encode(
        {
            "observedGeneration": stored.generation,
            **dict.fromkeys(
                ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), count
            ),
            "conditions": [available, moved],
        }
    )


def text_of(resource: Resource, stored: Stored, *, only_metadata: bool = False) -> bytes:
    """An object as it is answered."""
    if only_metadata:
        head = b'{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":'
        return head + stored.meta + b"}"
    head = f'{{"apiVersion":"{resource.api_version}","kind":"{resource.kind}","metadata":'.encode()
    body = b"" if stored.body == EMPTY else b"," + stored.body[1:-1]
    status = b"" if stored.status == EMPTY else b',"status":' + stored.status
    return b"".join((head, stored.meta, body, status, b"}"))
