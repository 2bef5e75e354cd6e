"""Which images a change of a fleet needs, which of them are new, and in which registries. Pure."""

from collections.abc import Iterable

from msgspec import Struct

from knfleet.oci.errors import BadReference
from knfleet.oci.image_reference import image_reference


class FleetImage(Struct, frozen=True, kw_only=True, rename="camel"):
    """An image of a release that is installed."""

    image: str
    registry: str
    is_new: bool
    """Whether a cluster that gets it has no object that names it."""
    needed_by: list[str]
    """As `serving 1.23.0`."""


class ImageNeed(Struct, frozen=True):
    """The images of a release for one cluster, and those that it has."""

    title: str
    images: frozenset[str]
    present: frozenset[str]


def fleet_images(needs: Iterable[ImageNeed]) -> list[FleetImage]:
    """All images that clusters need, each once."""
    titles: dict[str, set[str]] = {}
    new: set[str] = set()
    for each in needs:
        new |= each.images - each.present
        for image in each.images:
            titles.setdefault(image, set()).add(each.title)
    return [
        FleetImage(
            image=image,
            registry=registry_of(image),
            is_new=image in new,
            needed_by=sorted(titles[image]),
        )
        for image in sorted(titles)
    ]


def registry_of(image: str) -> str:
    """The host of an image's registry."""
    try:
        return image_reference(image).registry
    except BadReference:
        return "unknown"
