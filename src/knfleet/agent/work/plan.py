"""A work's plan: one entry for each manifest, with what is wanted of it and how it was left."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from knfleet.agent.work.desired.content import WORK_LABEL, WORK_LABEL_VALUE, content, digest
from knfleet.agent.work.desired.manifest_options import ManifestOptions, is_orphaned, options_for
from knfleet.agent.work.desired.manifests import (
    ObjectRef,
    WorkManifest,
    duplicates,
    read_manifests,
)
from knfleet.agent.work.observed.objects import Expectation, Record
from knfleet.agent.work.work_status import APPLY_FAILED
from knfleet.api.meta import Key, Resource
from knfleet.api.work.appliedmanifestwork import AppliedResource
from knfleet.api.work.manifestwork import ManifestResourceMeta, ManifestWorkSpec
from knfleet.apply.manifest_fields import part

Kinds = Mapping[tuple[str, str], Resource | str]
"""How kinds are addressed, by apiVersion and kind; a text says why one is not known."""


class Left(Struct, frozen=True):
    """How an object was left by us."""

    uid: str
    content: str


class Located(Struct, frozen=True):
    """Where an object is."""

    resource: Resource
    key: Key
    ref: ObjectRef

    def applied(self, uid: str) -> AppliedResource:
        """The object as an AppliedManifestWork lists it."""
        return AppliedResource(
            group=self.resource.group,
            version=self.resource.version,
            resource=self.resource.plural,
            namespace=self.key.namespace,
            name=self.key.name,
            uid=uid,
        )


class Entry(Struct):
    """One manifest of a work."""

    meta: ManifestResourceMeta
    rank: int
    digest: str
    """Of the manifest, with all that decides how it is written."""
    resource: Resource | None = None
    key: Key = Key("", "")
    ref: ObjectRef | None = None
    options: ManifestOptions = ManifestOptions()
    owned: bool = True
    literal: str = ""
    """Digest of the content as the manifest has it."""
    expectation: Expectation = Expectation()
    flaw: str = ""
    """Why it can never be applied."""
    completed: bool = False
    problem: str = ""
    reason: str = APPLY_FAILED
    failures: int = 0
    tried_at: float = 0.0
    retry_at: float = 0.0
    left: Left | None = None
    unknown: str = ""
    """Why it is not known whether the object is there."""

    @property
    def located(self) -> Located | None:
        """Where the object is, when its kind is known."""
        if self.resource is None or self.ref is None:
            return None
        return Located(self.resource, self.key, self.ref)

    @property
    def strategy(self) -> str:
        """How the object is written."""
        return self.options.strategy.type

    @property
    def path(self) -> str:
        """The path of the object; empty when it is not known."""
        if self.resource is None:
            return ""
        return self.resource.path(self.key.namespace, self.key.name)

    def fail(self, problem: str, retry_at: float, reason: str = APPLY_FAILED) -> None:
        """The manifest is not applied now."""
        self.problem, self.reason, self.retry_at = problem, reason, retry_at
        self.failures += 1

    def settle(self, record: Record | None) -> None:
        """The object is as the work wants it."""
        self.problem, self.failures, self.retry_at = "", 0, 0.0
        if record is not None and self.strategy in ("Update", "ServerSideApply"):
            self.left = Left(record.state.uid, record.content)


def make_entries(spec: ManifestWorkSpec, kinds: Kinds, old: Sequence[Entry]) -> list[Entry]:
    """The entries of a work; those that want the same as before keep how they were left."""
    manifests = read_manifests(spec.workload.manifests)
    entries = [entry_of(each, spec, kinds) for each in manifests]
    refs = [(each.meta.ordinal, each.ref) for each in entries if each.ref is not None]
    for ordinal, first in duplicates(refs).items():
        entries[ordinal].flaw = f"the same object as manifest {first} of this work"
    before = {(each.path, each.digest): each for each in old if each.path}
    for each in entries:
        known = before.get((each.path, each.digest))
        if known is not None:
            each.left, each.completed = known.left, known.completed
            if known.expectation.named:
                each.expectation = replace(each.expectation, named=True)
    return entries


def entry_of(manifest: WorkManifest, spec: ManifestWorkSpec, kinds: Kinds) -> Entry:
    """What is wanted of one manifest."""
    meta = ManifestResourceMeta(
        ordinal=manifest.ordinal,
        group=manifest.group,
        version=manifest.version,
        kind=manifest.kind,
        name=manifest.name,
        namespace=manifest.namespace,
    )
    if manifest.problem:
        return Entry(meta, manifest.rank, "", flaw=manifest.problem)
    resource = kinds.get((manifest.api_version, manifest.kind), "the kind is not known")
    if isinstance(resource, str):
        return Entry(meta, manifest.rank, "", problem=resource)
    ref = manifest.ref(resource)
    options = options_for(ref, spec.manifest_configs)
    owned = options.strategy.type != "ReadOnly" and not is_orphaned(ref, spec.delete_option)
    body = manifest.body
    labels = {**part(body, "metadata", "labels"), WORK_LABEL: WORK_LABEL_VALUE}
    writes = options.strategy.type in ("Update", "ServerSideApply")
    flaw = ""
    if resource.namespaced and not manifest.namespace:
        flaw = f"the {manifest.kind} has no metadata.namespace, which its kind needs"
    return Entry(
        replace(meta, resource=resource.plural, namespace=ref.namespace),
        manifest.rank,
        digest([body, options.strategy, owned]),
        resource=resource,
        key=Key(ref.namespace, ref.name),
        ref=ref,
        options=options,
        owned=owned,
        literal=digest(content(body)),
        expectation=Expectation(
            labels if writes else {},
            part(body, "metadata", "annotations") if writes else {},
            options,
            named=options.strategy.type == "ReadOnly",
        ),
        flaw=flaw,
    )


def is_settled(entry: Entry, record: Record | None, work: str, owner: str) -> bool:
    """Whether an object is as the work wants it, without a look at the cluster."""
    if entry.completed or entry.strategy == "ReadOnly":
        return True
    if record is None or record.state.deleting or (owner in record.state.works) != entry.owned:
        return False
    return entry.strategy == "CreateOnly" or is_as_left(entry, record, work)


def is_as_left(entry: Entry, record: Record, work: str) -> bool:
    """Whether metadata and content of an object are as we left them, or as the manifest has them.

    After a restart nothing is known of how an object was left; a manifest that needs nothing filled
    in by the cluster tells it just as well.
    """
    view = record.views.get(work)
    if view is None or view.expectation != entry.expectation or not view.is_labelled:
        return False
    if entry.left is not None:
        return entry.left == Left(record.state.uid, record.content)
    return entry.strategy == "Update" and record.content == entry.literal


def is_drift(entry: Entry, record: Record | None) -> bool:
    """Whether an object is not as we left it, because another client changed it."""
    return (
        entry.left is not None
        and not entry.problem
        and not (record is not None and record.state.deleting)
    )


def is_protected(ref: ObjectRef, entries: Sequence[Entry]) -> bool:
    """Whether an object may be that of a manifest whose kind cannot be resolved now."""
    return any(
        each.ref is None
        and each.meta.name == ref.name
        and each.meta.group == ref.group
        and (not ref.namespace or each.meta.namespace == ref.namespace)
        for each in entries
    )
