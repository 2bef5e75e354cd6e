"""What knfleet makes of a sample: rendered, then completed by a real API server without storing."""

import asyncio
import hashlib
from pathlib import Path

import msgspec

from knfleet.api.core import CRDS
from knfleet.api.knative.resources import Knative
from knfleet.api.meta import Key, Object
from knfleet.api.schema import DecodeError
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Invalid, NotFound
from knfleet.release.errors import ReleaseError
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.releases import Releases
from knfleet.release.source.sources import cache_folder
from knfleet.release.upgrade_path import check_migration
from knfleet.render.errors import RenderError
from knfleet.render.ownership import Owner
from knfleet.render.pipeline import Need, RenderFacts, needs, render
from testbed.peers.operator import Outcome, relative
from testbed.peers.samples import Sample, typed
from testbed.peers.surroundings import define, ensure_namespace, prepare

UID = "00000000-0000-0000-0000-000000000000"


def owner(cr: Knative) -> Owner:
    """The custom resource, or on another cluster the anchor that stands for it."""
    kind, name = cr.resource.kind, cr.key.name
    if cr.spec.cluster_profile_ref is None:
        return Owner(cr.resource.api_version, kind, name, UID)
    return Owner("v1", "ConfigMap", f"{kind.lower()}-{name}-root-owner", UID)


class Ours:
    """Renders samples, and asks one API server how it would store the objects."""

    def __init__(self, kodata: Path, client: Client, folder: Path) -> None:
        self.kodata, self.client, self.folder = kodata, client, folder
        self.releases = Releases(kodata, cache=ParsedCache(cache_folder() / "manifests"))
        self.stored: dict[str, Object] = {}
        self.defined: set[str] = set()

    async def outcome(self, sample: Sample) -> Outcome:
        """What would be installed for a sample, or why nothing would be."""
        folder = self.folder / sample.name
        folder.mkdir(parents=True, exist_ok=True)
        await self.make_room(sample)
        try:
            cr = typed(sample.placed(folder, self.kodata))
            check_migration("", self.releases.target(cr), kind=cr.resource.kind)
            bundle = await self.releases.load(cr)
            facts = RenderFacts(
                version=bundle.version,
                owner=owner(cr),
                live=await self.live(needs(bundle.objects(), cr)),
                minimum_kubernetes=sample.minimum_kubernetes,
            )
            objects = render(bundle.objects(), cr, facts).objects
        except (ReleaseError, RenderError, DecodeError) as error:
            return relative(Outcome(problem=str(error)), folder, self.kodata)
        try:
            stored = await self.completed(objects)
        except Invalid as error:
            return Outcome(problem=str(error))
        finally:
            await self.leave(sample)
        outcome = Outcome(objects=stored, version=bundle.version, manifests=list(bundle.paths))
        return relative(outcome, folder, self.kodata)

    async def make_room(self, sample: Sample) -> None:
        """Make the cluster ready for a sample."""
        if not self.defined:
            await prepare(self.client, sample, [])
            self.defined.add("")
        await ensure_namespace(self.client, sample.namespace)
        for manifest in sample.beforehand:
            resource = await self.client.discovery.resource(
                manifest["apiVersion"], manifest["kind"]
            )
            await self.client.create(resource, manifest, Key.of(manifest).namespace)

    async def leave(self, sample: Sample) -> None:
        """Remove what was there only for one sample."""
        for manifest in sample.beforehand:
            resource = await self.client.discovery.resource(
                manifest["apiVersion"], manifest["kind"]
            )
            await self.client.delete(resource, Key.of(manifest))

    async def live(self, wanted: list[Need]) -> dict[Need, Object]:
        """Of the objects that rendering must know, those that there are."""
        found: dict[Need, Object] = {}
        for resource, key in wanted:
            try:
                found[resource, key] = await self.client.get(resource, key.name, key.namespace)
            except NotFound:
                continue
        return found

    async def completed(self, objects: list[Object]) -> list[Object]:
        """The objects as the API server would store them."""
        definitions = [each for each in objects if each["kind"] == CRDS.kind]
        new = [each for each in definitions if each["metadata"]["name"] not in self.defined]
        if new:
            await define(self.client, new)
            self.defined |= {each["metadata"]["name"] for each in new}
        return list(await asyncio.gather(*(self.complete(each) for each in objects)))

    async def complete(self, manifest: Object) -> Object:
        """One object as the API server would store it; equal ones are asked for once."""
        digest = hashlib.sha256(msgspec.json.encode(manifest, order="sorted")).hexdigest()
        if digest not in self.stored:
            resource = await self.client.discovery.resource(
                manifest["apiVersion"], manifest["kind"]
            )
            answer = await self.client.apply(resource, manifest, dry_run=True)
            answer["metadata"].pop("managedFields", None)
            self.stored[digest] = answer
        return self.stored[digest]
