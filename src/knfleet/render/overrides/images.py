"""Where images come from.

Images stand in containers, in init containers, in caching Images, in environment variables and in
entries of ConfigMaps; `registry.override` reaches all of them by name, `registry.default` those
that are pulled for the release's own pods.
"""

import re

from knfleet.api.knative.overrides import Registry
from knfleet.api.meta import Object
from knfleet.render.drafts import Draft, as_map
from knfleet.render.errors import BadField
from knfleet.render.overrides.pod_templates import all_containers, environment, has_pods, pod_spec

NAME = "${NAME}"
DIGEST = re.compile(r"^[^\s@]+/[^\s@]+@sha256:[0-9a-f]{64}$")


def check_registry(registry: Registry) -> None:
    """Refuse a template that would make all images the same."""
    if registry.default and NAME not in registry.default:
        raise BadField(
            "spec.registry.default",
            registry.default,
            f'"{registry.default}" has no {NAME} in it, so that all images would be the same one',
        )


def set_images(draft: Draft, registry: Registry) -> None:
    """Point every image of the object to the registry, and add the secrets to pull it with."""
    if has_pods(draft):
        for container in all_containers(draft):
            set_container(draft, container, registry)
        add_secrets(draft, pod_spec(draft), registry)
    elif draft.group == "caching.internal.knative.dev" and draft.kind == "Image":
        set_cached(draft, registry)
    elif draft.group == "" and draft.kind == "ConfigMap":
        set_entries(draft, registry.override)


def set_container(draft: Draft, container: Object, registry: Registry) -> None:
    """Change the image of a container, and images in its environment."""
    name = str(container.get("name", ""))
    owner = draft.meta.get("generateName") or draft.released
    image = registry.override.get(f"{owner}/{name}", registry.override.get(name))
    if image is None and registry.default:
        image = from_template(registry.default, str(container.get("image") or ""), name)
    if image is not None:
        container["image"] = image
    for variable in environment(draft, container):
        value = registry.override.get(str(variable.get("name", "")))
        if value is not None:
            variable["value"] = value
            variable.pop("valueFrom", None)


def set_cached(draft: Draft, registry: Registry) -> None:
    """Change a caching Image."""
    spec = draft.section("spec")
    image = registry.override.get(draft.released)
    if image is None and registry.default:
        image = from_template(registry.default, str(spec.get("image") or ""), draft.released)
    if image is not None:
        spec["image"] = image
    add_secrets(draft, spec, registry)
    draft.manifest.pop("status", None)


def set_entries(draft: Draft, override: dict[str, str]) -> None:
    """Change entries of a ConfigMap that hold an image, by `configmap/key` or by `key`."""
    entries = as_map(draft.manifest.get("data"))
    for key, value in entries.items():
        image = override.get(f"{draft.released}/{key}")
        if image is None and isinstance(value, str) and DIGEST.match(value):
            image = override.get(key)
        if image is not None:
            entries[key] = image


def from_template(template: str, image: str, otherwise: str) -> str:
    return template.replace(NAME, short_name(image) or otherwise)


def short_name(image: str) -> str:
    """The last part of an image's path, without tag and digest; empty when there is no path."""
    _, slash, last = image.rpartition("/")
    if not slash:
        return ""
    return last.partition(":")[0].partition("@")[0]


def add_secrets(draft: Draft, spec: Object, registry: Registry) -> None:
    """Append pull secrets that are not there yet; one without a name is none."""
    present = draft.maps(spec.get("imagePullSecrets"), ("imagePullSecrets",))
    known = {entry.get("name") for entry in present}
    added: list[Object] = []
    for secret in registry.image_pull_secrets:
        if secret.name and secret.name not in known:
            known.add(secret.name)
            added.append({"name": secret.name})
    if added:
        spec["imagePullSecrets"] = [*present, *added]
