"""The least rights for releases and components of Knative, from their release files."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from knfleet.api.knative.resources import (
    Component,
    EventSources,
    Knative,
    KnativeEventing,
    KnativeServing,
)
from knfleet.api.meta import Object
from knfleet.api.schema import decode
from knfleet.operator.spoke_access.rights import NONE, SpokeRights, spoke_rights
from knfleet.operator.verification.verify_objects import verify_namespace
from knfleet.operator.verification.verify_rights import PROXIES, proxy_rights, verify_rights
from knfleet.release.errors import NotAvailable
from knfleet.release.layout import COMPONENTS, listed
from knfleet.release.releases import Releases
from knfleet.release.version import is_latest, minor_of
from knfleet.render.pipeline import RenderFacts, render

INGRESSES = ("contour", "gateway-api", "istio", "kourier")
GUARD = "security-guard"
SOURCES = EventSources.__struct_encode_fields__
PARTS: Mapping[Component, tuple[str, ...]] = {
    "serving": (*INGRESSES, GUARD),
    "eventing": SOURCES,
}
"""What may be installed with each component."""
NAMES = tuple(sorted({*PARTS, *(part for parts in PARTS.values() for part in parts)}))
TYPES: dict[Component, type[KnativeServing] | type[KnativeEventing]] = {
    "serving": KnativeServing,
    "eventing": KnativeEventing,
}


class RightsChoice(Struct, frozen=True):
    """Which releases and components may be installed, and where."""

    releases: tuple[str, ...] = ()
    """Versions such as 1.23 or 1.23.0; all that there are when none is given."""
    components: tuple[str, ...] = ()
    """Names of `NAMES`; all when none is given."""
    namespaces: Mapping[Component, str] = field(default_factory=lambda: dict(COMPONENTS))

    @property
    def chosen(self) -> dict[Component, tuple[str, ...]]:
        """The parts of each component that is chosen, itself or by one of its parts."""
        wanted = self.components or NAMES
        return {
            component: tuple(part for part in parts if part in wanted)
            for component, parts in PARTS.items()
            if component in wanted or not set(parts).isdisjoint(wanted)
        }


async def release_rights(releases: Releases, choice: RightsChoice) -> SpokeRights:
    """The least rights to install, upgrade, repair and remove what is chosen."""
    found = NONE
    for component, parts in choice.chosen.items():
        home = choice.namespaces[component]
        for version in chosen_versions(releases.versions(component), choice.releases, component):
            objects = await rendered(releases, resource(component, version, parts, home))
            found = found.joined(spoke_rights(objects, home))
        found = found.joined(verification_rights(component, home, parts))
    return found


def verification_rights(component: Component, home: str, parts: Collection[str]) -> SpokeRights:
    """What `knfleet verify` takes, with its own namespace."""
    rights = (*verify_rights(component, home), *proxy_rights(component, home, parts))
    return SpokeRights(frozenset(rights), (verify_namespace(component),), {})


def parts_within(component: Component, places: Collection[str]) -> list[str]:
    """The parts of a component whose ingress is in the namespaces of an installation."""
    known = {"", *places}
    return [
        name
        for name in PARTS[component]
        if all(namespace in known for namespace, _ in PROXIES.get(name, ()))
    ]


def chosen_versions(
    there: Sequence[str], wanted: Collection[str], component: Component
) -> list[str]:
    """The versions that are there of those that are wanted."""
    numbered = [each for each in there if not is_latest(each)]
    if not wanted:
        return numbered
    bare = [each.removeprefix("v") for each in wanted]
    found = [each for each in numbered if each in bare or minor_of(each) in bare]
    missing = [each for each in bare if not any(fits(version, each) for version in found)]
    if missing:
        raise NotAvailable(
            f"there are no release files of {COMPONENTS[component]} {listed(missing)}; there is"
            f" {listed(numbered)}; get others with `knfleet bundle pull`"
        )
    return found


def fits(version: str, wanted: str) -> bool:
    """Whether a version is one that is wanted, which may be written without its last number."""
    return wanted in (version, minor_of(version))


async def rendered(releases: Releases, knative: Knative) -> list[Object]:
    """The objects that a custom resource asks for."""
    bundle = await releases.load(knative)
    return render(bundle.objects(), knative, RenderFacts(version=bundle.version)).objects


async def resource_rights(releases: Releases, resources: Iterable[Knative]) -> SpokeRights:
    """The least rights for custom resources as they are written."""
    found = NONE
    for each in resources:
        objects, home = await rendered(releases, each), each.metadata.namespace
        found = found.joined(spoke_rights(objects, home))
        places = {str(made["metadata"].get("namespace", "")) for made in objects}
        parts = parts_within(each.component, places)
        found = found.joined(verification_rights(each.component, home, parts))
    return found


def resource(component: Component, version: str, parts: Collection[str], home: str) -> Knative:
    """A custom resource that asks for a release and some of its parts."""
    spec: dict[str, Any] = {"version": version}
    on = {"enabled": True}
    if component == "serving":
        spec["ingress"] = {part: on for part in parts if part in INGRESSES}
        if GUARD in parts:
            spec["security"] = {"securityGuard": on}
    else:
        spec["source"] = dict.fromkeys(parts, on)
        # With encryption there are more objects, and none is missing.
        spec["config"] = {"features": {"transport-encryption": "permissive"}}
    type_ = TYPES[component]
    manifest: Object = {
        "apiVersion": type_.resource.api_version,
        "kind": type_.resource.kind,
        "metadata": {"name": COMPONENTS[component], "namespace": home},
        "spec": spec,
    }
    return decode(manifest, type_)
