"""Which images objects have pulled: those of their pods, and those that Knative pulls later."""

import re
from collections.abc import Iterable, Iterator

from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items, part

CONTAINERS = ("initContainers", "containers")
POD_SPECS = (
    ("spec", "template", "spec"),
    ("spec", "jobTemplate", "spec", "template", "spec"),
    ("spec",),
)
"""Where the pods of an object are described: workloads, CronJobs, Pods."""
DIGEST = re.compile(r"^[^\s@]+/[^\s@]+@sha256:[0-9a-f]{64}$")


def images(objects: Iterable[Object]) -> frozenset[str]:
    return frozenset(image for manifest in objects for image in images_of(manifest) if image)


def images_of(manifest: Object) -> Iterator[str]:
    for path in POD_SPECS:
        spec = part(manifest, *path)
        for section in CONTAINERS:
            for container in items(spec, section):
                yield str(container.get("image") or "")
                yield from digests(str(each.get("value") or "") for each in items(container, "env"))
    if manifest.get("kind") == "Image":
        yield str(part(manifest, "spec").get("image") or "")
    if manifest.get("kind") == "ConfigMap":
        yield from digests(map(str, part(manifest, "data").values()))


def digests(values: Iterable[str]) -> Iterator[str]:
    """Of some values, those that can only be images."""
    return (value for value in values if DIGEST.match(value))
