"""Which images releases of Knative need, and which objects need them."""

from collections import defaultdict

from msgspec import Struct

from knfleet.api.meta import Key
from knfleet.operator.spoke_access.release_rights import (
    RightsChoice,
    chosen_versions,
    rendered,
    resource,
)
from knfleet.release.releases import Releases
from knfleet.view.images.image_list import images_of


class ReleaseImage(Struct, frozen=True, order=True):
    """An image, and the objects that name it."""

    image: str
    used_by: tuple[str, ...]
    """As `Deployment knative-serving/activator`."""


async def release_images(releases: Releases, choice: RightsChoice) -> list[ReleaseImage]:
    """All images that chosen releases and components need: also those that only a variable, a
    ConfigMap, an init container or a Job names."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for component, parts in choice.chosen.items():
        home = choice.namespaces[component]
        for version in chosen_versions(releases.versions(component), choice.releases, component):
            for manifest in await rendered(releases, resource(component, version, parts, home)):
                for image in filter(None, images_of(manifest)):
                    found[image].add(f"{manifest['kind']} {Key.of(manifest)}")
    return sorted(ReleaseImage(image, tuple(sorted(users))) for image, users in found.items())
