"""Which kinds a cluster serves, and how they are addressed.

One kind is looked up in its own group and version, which costs one small request per group and
version; a kind that is not there is asked for again, but not more often than every few seconds, so
that a new CRD is learned soon and a wrong one costs little. The whole of a cluster is one
aggregated request, or, on servers that do not know it, one request for each group.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct, field

from knfleet.api.meta import Resource, api_group
from knfleet.kube.errors import ApiError, BadResponse, NotFound
from knfleet.kube.untrusted_json import decode_json

AGGREGATED = {
    "Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
}
PATIENCE_SECONDS = 3
"""How long a kind that is not served is believed not to be."""


JSON = {"Accept": "application/json"}
T = TypeVar("T")


class DiscoveryClient(Protocol):
    """What discovery needs of a client."""

    async def raw(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """The bare answer at a path."""
        ...


class Served(Struct, frozen=True):
    """A resource, and what can be done with it."""

    resource: Resource
    verbs: frozenset[str]


class ClassicResource(Struct):
    """An entry of an APIResourceList."""

    name: str
    kind: str
    namespaced: bool
    verbs: frozenset[str] = frozenset()


class ClassicResources(Struct):
    """An APIResourceList."""

    resources: list[ClassicResource] = []


class GroupVersion(Struct, rename="camel"):
    """A version of a group."""

    group_version: str


class ApiGroup(Struct, rename="camel"):
    """An APIGroup."""

    name: str
    versions: list[GroupVersion]
    preferred_version: GroupVersion | None = None


class ApiGroupList(Struct):
    """An APIGroupList."""

    groups: list[ApiGroup] = []


class ResponseKind(Struct):
    """The kind that a resource answers with."""

    kind: str = ""


class AggregatedResource(Struct, rename="camel"):
    """A resource in aggregated discovery."""

    resource: str
    scope: str
    verbs: frozenset[str] = frozenset()
    response_kind: ResponseKind | None = None


class AggregatedVersion(Struct):
    """A version of a group in aggregated discovery."""

    version: str
    resources: list[AggregatedResource] = []
    freshness: str = "Current"


class AggregatedName(Struct):
    """Metadata of which only the name counts."""

    name: str = ""


class AggregatedGroup(Struct):
    """A group in aggregated discovery; the version that the server prefers comes first."""

    metadata: AggregatedName = field(default_factory=AggregatedName)
    versions: list[AggregatedVersion] = []


class AggregatedGroups(Struct):
    """An APIGroupDiscoveryList."""

    items: list[AggregatedGroup] = []


class KindOnly(Struct):
    """An answer of which only the kind is known yet."""

    kind: str = ""


class Discovery:
    """What one cluster serves."""

    def __init__(self, server: DiscoveryClient, now: Callable[[], float] = time.monotonic) -> None:
        self.server = server
        self.now = now
        self.known: dict[str, dict[str, Resource]] = {}
        self.asked: dict[str, float] = {}
        self.asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.unavailable: tuple[str, ...] = ()
        """Groups, with version, that the last `resources()` could not see: their server is down."""

    def forget(self) -> None:
        """Ask again for everything."""
        self.known.clear()
        self.asked.clear()

    def ask_again(self, api_version: str) -> None:
        """Ask for kinds of a group and version that were not there, at once: they may be now."""
        self.asked.pop(api_version, None)

    def forget_version(self, api_version: str) -> None:
        """Forget the kinds of a group and version: one of them is not there any more."""
        self.known.pop(api_version, None)
        self.asked.pop(api_version, None)

    async def resource(self, api_version: str, kind: str) -> Resource:
        """How a kind is addressed; raises `NotFound` when the cluster does not serve it."""
        if (found := self.known.get(api_version, {}).get(kind)) is not None:
            return found
        async with self.asking[api_version]:
            age = self.now() - self.asked.get(api_version, float("-inf"))
            if kind not in self.known.get(api_version, {}) and age >= PATIENCE_SECONDS:
                served = await self.group_version(api_version)
                self.known[api_version] = {entry.resource.kind: entry.resource for entry in served}
                self.asked[api_version] = self.now()
        if (found := self.known.get(api_version, {}).get(kind)) is not None:
            return found
        raise NotFound(
            f"the cluster does not serve {kind} in {api_version}",
            code=404,
            reason="NotFound",
            where=f"discovery of {api_version}",
        )

    async def group_version(self, api_version: str) -> list[Served]:
        """All resources of one group and version; none when it is not served."""
        group, version = api_group(api_version)
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            answer = await self.read(path, ClassicResources)
        except NotFound:
            return []
        return [
            Served(Resource(group, version, entry.kind, entry.name, entry.namespaced), entry.verbs)
            for entry in answer.resources
            if "/" not in entry.name
        ]

    async def resources(self) -> list[Served]:
        """All resources of the cluster, each in the version that the server prefers."""
        parts = [await self.everything(path) for path in ("/api", "/apis")]
        return [served for part in parts for served in part]

    async def other_versions(self, resource: Resource) -> list[Resource]:
        """The same resource in the other versions that the server has."""
        group = await self.read(f"/apis/{resource.group}", ApiGroup)
        found: list[Resource] = []
        for each in group.versions:
            if each.group_version != resource.api_version:
                served = await self.group_version(each.group_version)
                found += [one.resource for one in served if one.resource.plural == resource.plural]
        return found

    async def everything(self, path: str) -> list[Served]:
        """All resources below /api or /apis."""
        body = await self.server.raw("GET", path, headers=AGGREGATED)
        kind = decode(body, KindOnly, path).kind
        if kind == "APIGroupDiscoveryList":
            groups = decode(body, AggregatedGroups, path).items
            stale = stale_versions(groups)
            found = list(aggregated(groups))
        elif path == "/api":
            stale, found = [], await self.group_version("v1")
        else:
            stale, found = await self.each_group(decode(body, ApiGroupList, path).groups)
        if path == "/apis":
            self.unavailable = tuple(stale)
        return found

    async def each_group(self, groups: list[ApiGroup]) -> tuple[list[str], list[Served]]:
        """Groups that cannot be seen, and the resources of all others, asked one by one."""
        failed: list[str] = []
        found: dict[tuple[str, str], Served] = {}
        for group in groups:
            preferred = group.preferred_version
            order = sorted(group.versions, key=lambda version, first=preferred: version != first)
            for version in order:
                try:
                    served = await self.group_version(version.group_version)
                except ApiError:
                    failed.append(version.group_version)
                    continue
                for entry in served:
                    found.setdefault((group.name, entry.resource.plural), entry)
        return failed, list(found.values())

    async def read(self, path: str, kind: type[T]) -> T:
        """The answer at a path, decoded."""
        return decode(await self.server.raw("GET", path, headers=JSON), kind, path)


def aggregated(groups: list[AggregatedGroup]) -> Iterator[Served]:
    """Each resource of some groups in the first version that has it."""
    for group in groups:
        seen: set[str] = set()
        for version in group.versions:
            for entry in version.resources:
                if entry.resource in seen or entry.response_kind is None:
                    continue
                seen.add(entry.resource)
                name, kind = group.metadata.name, entry.response_kind.kind
                namespaced = entry.scope == "Namespaced"
                yield Served(
                    Resource(name, version.version, kind, entry.resource, namespaced), entry.verbs
                )


def stale_versions(groups: list[AggregatedGroup]) -> list[str]:
    """Groups, with version, whose own server did not answer the API server of late."""
    return [
        f"{group.metadata.name}/{version.version}"
        for group in groups
        for version in group.versions
        if version.freshness == "Stale"
    ]


def decode(body: bytes, kind: type[T], path: str) -> T:
    """An answer of discovery, decoded."""
    try:
        return decode_json(body, kind)
    except msgspec.DecodeError as error:
        raise BadResponse(f"GET {path}: not an answer of discovery: {error}") from error
