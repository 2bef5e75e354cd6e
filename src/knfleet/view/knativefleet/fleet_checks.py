"""What a change of a fleet needs beyond the hub: images of releases, and CRDs of the clusters.

Release files are those of the machine that asks. A cluster that cannot be asked is named, and
hides no other.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from knfleet.api.core import CRDS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import Component, Knative
from knfleet.api.meta import Key, Object
from knfleet.apply.manifest_fields import items
from knfleet.clusters.access_errors import AccessError
from knfleet.clusters.provider_file import ProviderFile
from knfleet.hub.knativefleet.template.fleet_template import KINDS
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError, NotFound
from knfleet.operator.spoke_access.release_rights import rendered
from knfleet.release.errors import ReleaseError
from knfleet.release.releases import Releases
from knfleet.render.errors import RenderError
from knfleet.view.images.image_list import images
from knfleet.view.knativefleet.fleet_images import FleetImage, ImageNeed, fleet_images
from knfleet.view.knativefleet.planned_installs import PlannedInstall
from knfleet.view.knativefleet.stored_versions import (
    ReleaseCrds,
    dropped_versions,
    release_crds,
)
from knfleet.view.target_access import target_of

CLUSTERS_AT_ONCE = 16
CHECK_SECONDS = 120.0
"""For all clusters together; those that are not reached by then are named."""
API_VERSION = re.compile(r"v[0-9]{1,3}((alpha|beta)[0-9]{1,3})?")


class FleetFindings(Struct, frozen=True, kw_only=True):
    """What was found out."""

    images: Sequence[FleetImage] = ()
    refused: Sequence[str] = ()
    """What API servers of clusters would refuse."""
    unchecked: Sequence[str] = ()
    """What could not be looked at, and why."""


class ReleaseContent(Struct, frozen=True):
    """What is read of a release for an installation."""

    images: frozenset[str]
    crds: ReleaseCrds


class FleetChecks:
    """Looks at releases and clusters for one change of a fleet."""

    def __init__(self, hub: Client, releases: Releases, providers: ProviderFile) -> None:
        self.hub = hub
        self.releases = releases
        self.providers = providers
        self.known: dict[bytes, ReleaseContent | str] = {}
        """What a release has, or why that is not known; many clusters get the same."""

    async def run(self, installs: Sequence[PlannedInstall], namespace: str) -> FleetFindings:
        """Look at everything; profiles are in a namespace."""
        unchecked: dict[str, None] = {}
        needs: list[ImageNeed] = []
        ways: dict[str, list[tuple[ReleaseCrds | None, list[ReleaseCrds]]]] = {}
        for each in installs:
            steps = [await self.content(each.at(version)) for version in each.versions]
            there = None if each.before is None else await self.content(each.before)
            found = [step for step in steps if isinstance(step, ReleaseContent)]
            unchecked |= {step: None for step in (*steps, there) if isinstance(step, str)}
            before = there if isinstance(there, ReleaseContent) else None
            present = before.images if before is not None else frozenset[str]()
            needs += [ImageNeed(step.crds.title, step.images, present) for step in found]
            crds = None if before is None else before.crds
            ways.setdefault(each.cluster, []).append((crds, [step.crds for step in found]))
        stored, silent = await self.stored_versions(
            {name: crd_names(way) for name, way in ways.items()}, namespace
        )
        refused = [
            f"cluster {name}: {text}"
            for name, versions in stored.items()
            for before, steps in ways[name]
            for text in dropped_versions(versions, before, steps)
        ]
        return FleetFindings(
            images=fleet_images(needs), refused=refused, unchecked=[*unchecked, *silent]
        )

    async def content(self, knative: Knative) -> ReleaseContent | str:
        """What the release of a custom resource has, or why that is not known."""
        wish = msgspec.json.encode([knative.component, knative.spec], order="deterministic")
        if wish not in self.known:
            self.known[wish] = await self.read(knative)
        return self.known[wish]

    async def read(self, knative: Knative) -> ReleaseContent | str:
        """The same, of the release files."""
        component: Component = knative.component
        try:
            version = self.releases.target(knative)
            objects = await rendered(self.releases, knative)
        except (ReleaseError, RenderError) as error:
            wanted = knative.spec.version or "newest"
            return f"images and definitions of {component} {wanted}: {error}"
        return ReleaseContent(images(objects), release_crds(f"{component} {version}", objects))

    async def stored_versions(
        self, wanted: Mapping[str, frozenset[str]], namespace: str
    ) -> tuple[dict[str, dict[str, tuple[str, ...]]], list[str]]:
        """`status.storedVersions` of CRDs by cluster, and the clusters that did not say."""
        found: dict[str, dict[str, tuple[str, ...]]] = {}
        silent: dict[str, str] = {}
        slots = asyncio.Semaphore(CLUSTERS_AT_ONCE)

        async def ask(cluster: str) -> None:
            async with slots:
                try:
                    profile = Key(namespace, cluster)
                    found[cluster] = await self.ask(profile, wanted[cluster])
                except (AccessError, KubeError) as error:
                    silent[cluster] = str(error)

        with suppress(TimeoutError):
            async with asyncio.timeout(CHECK_SECONDS):
                await asyncio.gather(*(ask(name) for name in wanted if wanted[name]))
        late = f"not asked within {CHECK_SECONDS:g} s"
        texts = [
            f"definitions of cluster {name}: {silent.get(name, late)}"
            for name in wanted
            if wanted[name] and name not in found
        ]
        return found, texts

    async def ask(self, profile: Key, crds: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The same of one cluster."""
        async with target_of(self.hub, referring(profile), self.providers) as client:
            names = sorted(crds)
            answers = await asyncio.gather(*(stored(client, name) for name in names))
        return dict(zip(names, answers, strict=True))


async def stored(client: Client, crd: str) -> tuple[str, ...]:
    """The versions that objects of a CRD may be stored in; none when it is not there."""
    try:
        found = await client.get(CRDS, crd)
    except NotFound:
        return ()
    texts = map(str, items(found, "status", "storedVersions"))
    return tuple(text for text in texts if API_VERSION.fullmatch(text))


def referring(profile: Key) -> Object:
    """A custom resource that refers to a profile, for the way to its cluster."""
    reference = {"name": profile.name, "namespace": profile.namespace}
    return {
        "kind": KINDS["serving"].resource.kind,
        "metadata": {"name": PROFILES.plural, "namespace": profile.namespace},
        "spec": {"clusterProfileRef": reference},
    }


def crd_names(ways: Iterable[tuple[ReleaseCrds | None, list[ReleaseCrds]]]) -> frozenset[str]:
    """The CRDs of all releases on some ways."""
    return frozenset(name for _, steps in ways for step in steps for name in step.versions)
