"""Plans works: which kinds they need, which objects they want, and which of two gets one."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from knfleet.agent.work.desired.manifests import ObjectRef, WorkManifest, read_manifests
from knfleet.agent.work.observed.objects import SpokeObjects
from knfleet.agent.work.plan import Entry, make_entries
from knfleet.agent.work.source import Work
from knfleet.agent.work.work_pass import WorkState
from knfleet.agent.work.work_status import is_complete, previous
from knfleet.api.meta import Resource
from knfleet.api.schema import DecodeError
from knfleet.api.work.manifestwork import COMPLETE
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError, NotFound


class ObjectClaim(Struct, frozen=True, order=True):
    """A work's wish for an object; the lowest has precedence."""

    orphans: bool
    """A work that lets the object go comes after those that keep it."""
    created: str
    work: str
    digest: str


class Claims:
    """Which works want an object to themselves, by Update."""

    def __init__(self) -> None:
        self.by_object: dict[ObjectRef, dict[str, ObjectClaim]] = {}

    def replace(self, work: str, wanted: dict[ObjectRef, ObjectClaim]) -> set[str]:
        """Note what a work wants now; works that want one of the objects that this changes."""
        touched: set[str] = set()
        for ref in [ref for ref, works in self.by_object.items() if work in works]:
            works = self.by_object[ref]
            if works[work] != wanted.get(ref):
                del works[work]
                touched |= works.keys()
                if not works:
                    del self.by_object[ref]
        for ref, claim in wanted.items():
            self.by_object.setdefault(ref, {})[work] = claim
        return touched

    def rival(self, work: str, ref: ObjectRef) -> str:
        """The work that has precedence for an object, if it wants another content."""
        works = self.by_object.get(ref, {})
        own = works.get(work)
        if own is None or len(works) == 1:
            return ""
        first = min(works.values())
        return first.work if first.digest != own.digest and first.work != work else ""


class WorkPlanner:
    """Makes plans, and has their objects observed."""

    def __init__(self, client: Client, objects: SpokeObjects) -> None:
        self.client = client
        self.objects = objects
        self.claims = Claims()

    async def plan(self, work: Work, state: WorkState) -> set[str]:
        """Make the plan of a work, unless there is one for this generation with all kinds.

        Works that wait for an object that this one does not want any more are returned.
        """
        current = state.generation == work.generation
        if current and all(each.ref is not None or each.flaw for each in state.entries):
            return set()
        try:
            spec = work.spec()
        except DecodeError as error:
            state.generation, state.entries, state.flaw = work.generation, [], error.problem
            return set()
        state.flaw, state.executor = "", spec.executor
        manifests = read_manifests(spec.workload.manifests)
        kinds = await self.kinds(manifests, again=not current or state.poked)
        state.entries = make_entries(spec, kinds, state.entries)
        state.generation = work.generation
        self.observe(work, state)
        return self.claims.replace(work.name, claims(work, state.entries))

    def observe(self, work: Work, state: WorkState) -> None:
        """Have the objects of a plan observed, and no others."""
        reported = work.status().resource_status.manifests
        for each in state.entries:
            has_rule = any(rule.condition == COMPLETE for rule in each.options.conditions)
            each.completed = has_rule and is_complete(previous(each.meta, reported))
            if each.resource is not None and not each.flaw:
                self.objects.expect(work.name, each.resource, each.key, each.expectation)
        kept = {each.path for each in state.entries} | {each.path for each in state.leftovers}
        self.objects.forget(work.name, kept)

    def forget(self, work: str) -> set[str]:
        """A work wants nothing any more; works that wait for its objects are returned."""
        return self.claims.replace(work, {})

    async def kinds(
        self, manifests: Iterable[WorkManifest], *, again: bool
    ) -> dict[tuple[str, str], Resource | str]:
        """How the kinds of manifests are addressed, or why that is not known."""
        wanted = {(each.api_version, each.kind) for each in manifests if not each.problem}
        found: dict[tuple[str, str], Resource | str] = {}
        for api_version, kind in sorted(wanted):
            if again:
                self.client.discovery.ask_again(api_version)
            try:
                found[api_version, kind] = await self.client.discovery.resource(api_version, kind)
            except NotFound:
                found[api_version, kind] = (
                    f"the server doesn't have a resource type {kind!r} in {api_version};"
                    " applied when it is there"
                )
            except KubeError as error:
                found[api_version, kind] = f"the kind {kind} cannot be looked up: {error}"
        return found


def claims(work: Work, entries: Sequence[Entry]) -> dict[ObjectRef, ObjectClaim]:
    """What a work wants to itself."""
    created = work.metadata.creation_timestamp
    return {
        each.ref: ObjectClaim(not each.owned, created, work.name, each.digest)
        for each in entries
        if each.ref is not None and each.strategy == "Update"
    }
