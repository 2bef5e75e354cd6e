"""From a custom resource to the objects that must exist: release, facts, rendering.

The same question is not answered twice: while the custom resource, the release files and what was
read of the target are the same, so is the list of objects, down to its identity.
"""

import asyncio
from contextlib import suppress
from typing import Protocol
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from knfleet.api.core import DEPLOYMENTS
from knfleet.api.knative.resources import Knative
from knfleet.api.meta import Key, Object
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from knfleet.release.bundle import Bundle, shortfall
from knfleet.release.errors import ReleaseError
from knfleet.release.releases import Releases
from knfleet.render.eventing.ping_source import NAME as PING_SOURCE
from knfleet.render.pipeline import Need, Rendered, RenderFacts, needs, render
from knfleet.render.scopes import Scopes, from_discovery

Wish = tuple[str, str, str, str, bytes]
"""What decides what is rendered."""


class RenderResult(Struct, frozen=True):
    """The objects that must exist, and what they were made from."""

    made_from: tuple[object, ...]
    version: str
    paths: tuple[str, ...]
    rendered: Rendered
    shortfall: str = ""
    """What every release of the component has, and these objects lack."""

    @property
    def objects(self) -> list[Object]:
        """The objects, which other custom resources may share: they must not be changed."""
        return self.rendered.objects

    @property
    def warnings(self) -> list[str]:
        """Settings of the custom resource that do nothing, one sentence each."""
        return self.rendered.warnings


class RenderTarget(Protocol):
    """What rendering must know of the target of one custom resource."""

    client: Client
    rendering: RenderResult | None

    def generation_of(self, need: Need) -> int | None:
        """The generation of a live object; 0 when it is not there, None when unknown."""
        ...


class Renderer:
    """Renders custom resources."""

    def __init__(self, releases: Releases, minimum_kubernetes: str = "") -> None:
        self.releases = releases
        self.minimum_kubernetes = minimum_kubernetes
        self.shared: WeakValueDictionary[Wish, Rendered] = WeakValueDictionary()
        """What several custom resources ask for alike is kept once, as long as one needs it."""

    async def warm(self, cr: Knative) -> None:
        """Read the files that `render` will need, while others do something else."""
        if not cr.spec.manifests and not cr.spec.additional_manifests:
            with suppress(ReleaseError):
                await self.releases.load(cr)

    async def render(self, cr: Knative, place: RenderTarget) -> RenderResult:
        """The objects that a custom resource asks for; raises `ReleaseError` or `RenderError`."""
        bundle = await self.releases.load(cr)
        before = place.rendering
        known = place.generation_of((DEPLOYMENTS, Key(cr.metadata.namespace, PING_SOURCE)))
        made_from = (cr.metadata.generation, bundle.digest, bundle.version, known)
        if before is not None and before.made_from == made_from and known is not None:
            return before
        objects = await asyncio.to_thread(bundle.objects)
        facts = RenderFacts(
            version=bundle.version,
            live=await live(place.client, needs(objects, cr)),
            scopes=await self.scopes(place.client, cr),
            minimum_kubernetes=self.minimum_kubernetes,
        )
        rendered = await self.rendered(cr, bundle, objects, facts)
        lack = shortfall(bundle.manifests, cr.component) if cr.spec.manifests else ""
        place.rendering = reuse_unchanged(
            before, RenderResult(made_from, bundle.version, bundle.paths, rendered, lack)
        )
        return place.rendering

    async def rendered(
        self, cr: Knative, bundle: Bundle, objects: list[Object], facts: RenderFacts
    ) -> Rendered:
        """What a custom resource asks for, shared with others that ask for the same."""
        if facts.live or facts.scopes:
            return await asyncio.to_thread(render, objects, cr, facts)
        wish = render_inputs(cr, bundle)
        if (known := self.shared.get(wish)) is not None:
            return known
        # Others may have rendered the same meanwhile; the first one counts.
        return self.shared.setdefault(wish, await asyncio.to_thread(render, objects, cr, facts))

    async def scopes(self, client: Client, cr: Knative) -> Scopes:
        """The scopes of all kinds, where manifests may have kinds that are not known beforehand."""
        if not cr.spec.manifests and not cr.spec.additional_manifests:
            return {}
        served = await client.discovery.resources()
        return from_discovery(each.resource for each in served)


def render_inputs(cr: Knative, bundle: Bundle) -> Wish:
    """All that decides what is rendered, as far as the target has no say in it."""
    spec = replace(cr.spec, cluster_profile_ref=None)
    text = msgspec.json.encode(spec, order="deterministic")
    return cr.resource.kind, cr.metadata.namespace, bundle.digest, bundle.version, text


async def live(client: Client, wanted: list[Need]) -> dict[Need, Object]:
    """Of some objects, those that are there."""
    found: dict[Need, Object] = {}
    for resource, key in wanted:
        try:
            found[resource, key] = await client.get(resource, key.name, key.namespace)
        except NotFound:
            continue
    return found


def reuse_unchanged(before: RenderResult | None, now: RenderResult) -> RenderResult:
    """The new rendering, with the old list where it says the same: it is not prepared again."""
    if before is not None and before.rendered == now.rendered:
        return replace(now, rendered=before.rendered)
    return now
