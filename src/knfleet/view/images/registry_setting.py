"""How `spec.registry` of a custom resource must be, so that all its images come from a registry.

`default` alone is not enough: it knows an image by the last part of its name only, which several
images share, and reaches no image in variables and ConfigMaps. So every image is overridden.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from knfleet.api.knative.resources import Knative
from knfleet.api.meta import Object
from knfleet.api.schema import decode
from knfleet.apply.manifest_fields import items, part
from knfleet.operator.spoke_access.release_rights import (
    TYPES,
    RightsChoice,
    chosen_versions,
    rendered,
    resource,
)
from knfleet.release.errors import NotAvailable
from knfleet.release.layout import COMPONENTS
from knfleet.release.releases import Releases
from knfleet.view.images.image_list import CONTAINERS, POD_SPECS, digests, images, images_of


class RegistrySetting(Struct, frozen=True):
    """The setting for a release of a component."""

    kind: str
    name: str
    namespace: str
    version: str
    override: dict[str, str]
    images: tuple[str, ...]
    """All images of the release with this setting."""


def overrides(objects: Iterable[Object], addresses: Mapping[str, str]) -> dict[str, str]:
    """An override for each image that objects of a release name, by new address of each."""
    found: dict[str, str] = {}
    named = (each for manifest in objects for each in named_images(manifest))
    for key, image in named:
        if not image:
            continue
        address = addresses.get(image)
        if address is None:
            raise NotAvailable(
                f"{image}: is not among the saved images; save it with `knfleet airgap save`"
            )
        if found.setdefault(key, address) != address:
            raise NotAvailable(
                f"{key}: stands for {found[key]} and for {address}; no setting of spec.registry"
                " can tell them apart"
            )
    return found


def named_images(manifest: Object) -> Iterator[tuple[str, str]]:
    """The images of an object of a release, each with the key that overrides it."""
    meta = part(manifest, "metadata")
    owner = str(meta.get("generateName") or meta.get("name") or "")
    for path in POD_SPECS:
        spec = part(manifest, *path)
        for container in (each for section in CONTAINERS for each in items(spec, section)):
            yield f"{owner}/{container.get('name', '')}", str(container.get("image") or "")
            for variable in items(container, "env"):
                for image in digests([str(variable.get("value") or "")]):
                    yield str(variable.get("name", "")), image
    if manifest.get("kind") == "Image":
        yield owner, str(part(manifest, "spec").get("image") or "")
    if manifest.get("kind") == "ConfigMap":
        for key, value in part(manifest, "data").items():
            for image in digests([str(value)]):
                yield f"{owner}/{key}", image


async def registry_settings(
    releases: Releases, choice: RightsChoice, addresses: Mapping[str, str]
) -> list[RegistrySetting]:
    """The settings for releases and components, each checked by rendering with it."""
    found: list[RegistrySetting] = []
    for component, parts in choice.chosen.items():
        home = choice.namespaces[component]
        for version in chosen_versions(releases.versions(component), choice.releases, component):
            knative = resource(component, version, parts, home)
            bundle = await releases.load(knative)
            override = overrides(bundle.objects(), addresses)
            private = with_registry(knative, override)
            objects = await rendered(releases, private)
            check(objects, set(addresses.values()))
            found.append(
                RegistrySetting(
                    TYPES[component].resource.kind,
                    COMPONENTS[component],
                    home,
                    version,
                    dict(sorted(override.items())),
                    tuple(sorted(images(objects))),
                )
            )
    return found


def with_registry(knative: Knative, override: Mapping[str, str]) -> Knative:
    """The custom resource with a setting."""
    manifest: dict[str, Any] = msgspec.to_builtins(knative)
    manifest["apiVersion"] = knative.resource.api_version
    manifest["kind"] = knative.resource.kind
    manifest["spec"]["registry"] = {"override": dict(override)}
    return decode(manifest, type(knative))


def check(objects: Iterable[Object], allowed: Collection[str]) -> None:
    """Raise unless all images are those of the registry."""
    for manifest in objects:
        for image in images_of(manifest):
            if image and image not in allowed:
                name = part(manifest, "metadata").get("name")
                raise NotAvailable(
                    f"{manifest.get('kind')} {name}: no setting of spec.registry reaches its image"
                    f" {image}; report it with the version of the release"
                )


def setting_manifest(setting: RegistrySetting) -> Object:
    """What to write into a custom resource."""
    return {
        "apiVersion": "operator.knative.dev/v1beta1",
        "kind": setting.kind,
        "metadata": {"name": setting.name, "namespace": setting.namespace},
        "spec": {"version": setting.version, "registry": {"override": setting.override}},
    }
