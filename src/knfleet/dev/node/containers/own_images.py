"""Which images are our own: their containers run as processes of this machine."""

from collections.abc import Collection

from knfleet.api.meta import Object
from knfleet.dev.node.pods.pod_manifests import containers_of, init_containers_of
from knfleet.release.errors import NotAvailable
from knfleet.release.source.sources import default_folder

PLUGIN_IMAGES = ("knfleet-plugins", "secretreader", "kubeconfig-secretreader")
"""Images that are mounted as volumes, for which our own plugins stand in."""


EVERY_IMAGE = "*"
"""As a name it means all images: such a node simulates nothing."""


def repository_name(image: str) -> str:
    """The last path component of an image's repository, without tag and digest."""
    repository = image.partition("@")[0].rpartition("/")[2]
    return repository.partition(":")[0]


def is_ours(image: str, names: Collection[str]) -> bool:
    """Whether the image, of any registry, tag or digest, is one of ours."""
    return EVERY_IMAGE in names or repository_name(image) in names


def image_environment() -> dict[str, str]:
    """The variables that our image sets: it has release files, and so has this machine, if any."""
    try:
        return {"KO_DATA_PATH": str(default_folder().absolute())}
    except NotAvailable:
        return {}


def is_real(pod: Object, names: Collection[str]) -> bool:
    """Whether every container of the pod has an image of ours."""
    containers = [*containers_of(pod), *init_containers_of(pod)]
    return all(is_ours(container.get("image", ""), names) for container in containers)
