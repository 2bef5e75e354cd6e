"""The bundle of one custom resource: every manifest that it asks for, in order."""

import hashlib

from msgspec import Struct

from knfleet.api.knative.resources import Component
from knfleet.api.meta import Object, api_group
from knfleet.release.errors import BadManifest
from knfleet.release.layout import COMPONENTS
from knfleet.release.manifest import NAME_LABEL, Manifest
from knfleet.release.version import LATEST, minor_of, parse, prefixed

Manifests = tuple[Manifest, ...]

CORE: dict[Component, str] = {"serving": "webhook", "eventing": "eventing-webhook"}
"""The Deployment that every release of a component has."""


class Bundle(Struct, frozen=True):
    """The manifests of one release, with plugins and additions."""

    version: str
    """The release's full version."""
    main: Manifests
    plugins: Manifests = ()
    """Ingress, security guard or event sources."""
    additional: Manifests = ()
    paths: tuple[str, ...] = ()
    """Where the manifests were read from, as `status.manifests` records it."""

    @property
    def manifests(self) -> Manifests:
        """All manifests, in the order in which their objects are."""
        return (*self.main, *self.plugins, *self.additional)

    @property
    def digest(self) -> str:
        """Equal for bundles with the same objects in the same order."""
        digests = [
            *(manifest.digest for manifest in (*self.main, *self.plugins)),
            "+",
            *(manifest.digest for manifest in self.additional),
        ]
        return hashlib.sha256("\n".join(digests).encode()).hexdigest()

    def objects(self) -> list[Object]:
        """The objects, made anew for each caller; an additional one replaces its equal."""
        additional = [found for manifest in self.additional for found in manifest.objects()]
        replaced = {identity(manifest) for manifest in additional}
        release = [
            found
            for manifest in (*self.main, *self.plugins)
            for found in manifest.objects()
            if identity(found) not in replaced
        ]
        return release + additional


def identity(manifest: Object) -> tuple[str, str, str, str]:
    """Group, kind, namespace and name: two objects that share it are the same one."""
    meta = manifest["metadata"]
    group, _ = api_group(manifest["apiVersion"])
    name = meta.get("name") or meta.get("generateName", "")
    return group, manifest["kind"], meta.get("namespace", ""), name


def check_content(manifests: Manifests, version: str, path: str) -> None:
    """Raise unless there are objects, all of the target's minor version."""
    if not any(manifest.count for manifest in manifests):
        raise BadManifest(f"there is no resource available in the target manifests {path}")
    if version in ("", LATEST):
        return
    for manifest in manifests:
        for stamp in manifest.parsed.stamps:
            if stamp.version and not same_minor(stamp.version, version):
                raise BadManifest(
                    f"the version of the manifests {prefixed(stamp.version)} of the component "
                    f"{stamp.object} does not match the target version of the operator CR "
                    f"{prefixed(version)}"
                )


def same_minor(one: str, other: str) -> bool:
    """Whether two versions have the same major and minor numbers."""
    return parse(one) is not None and minor_of(one) == minor_of(other)


def check_component(manifests: Manifests, component: Component) -> None:
    """Raise when the manifests are those of the other component."""
    wanted = COMPONENTS[component]
    found = {stamp.component for manifest in manifests for stamp in manifest.parsed.stamps}
    others = found & set(COMPONENTS.values())
    if others and wanted not in others:
        origins = ", ".join(manifest.origin for manifest in manifests)
        raise BadManifest(
            f"{origins}: the objects belong to {others.pop()}, not to {wanted}; "
            f"give the manifests of {wanted}"
        )


def check_core(manifests: Manifests, component: Component) -> None:
    """Raise when manifests cannot be Serving; as upstream, Eventing may be anything."""
    if component == "serving" and not has_core(manifests, component):
        origins = ", ".join(manifest.origin for manifest in manifests)
        raise BadManifest(
            f"{no_core(component)}; searched in {origins}: "
            f"give the manifests of {COMPONENTS[component]}"
        )


def shortfall(manifests: Manifests, component: Component) -> str:
    """What every release of a component has, and manifests lack; empty when they are one."""
    if not has_core(manifests, component):
        return no_core(component)
    wanted = COMPONENTS[component]
    if not any(stamp.component == wanted for each in manifests for stamp in each.parsed.stamps):
        return f"no object in the manifest has the label {NAME_LABEL}: {wanted}"
    return ""


def has_core(manifests: Manifests, component: Component) -> bool:
    return any(CORE[component] in manifest.parsed.deployments for manifest in manifests)


def no_core(component: Component) -> str:
    """What upstream says of manifests that are not its component."""
    return f"{CORE[component]} deployment not found in manifest"
