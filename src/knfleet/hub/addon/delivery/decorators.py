"""What is added to the manifests of a template: access to the hub, nodes, images, proxy. Pure."""

from collections.abc import Mapping
from typing import Any, cast

from knfleet.api.addon.addondeploymentconfig import AddOnResources, ImageMirror
from knfleet.api.addon.addontemplate import AddOnTemplate, Registration
from knfleet.api.addon.names import certificate_secret, kubeconfig_secret
from knfleet.api.meta import Object, api_group
from knfleet.hub.addon.delivery.deployment_settings import DeploymentSettings
from knfleet.hub.context import plain

WORKLOADS = {"Deployment": "deployments", "DaemonSet": "daemonsets"}
PROXY_CA_FOLDER = "/managed/proxy-ca"
PROXY_CA_FILE = "ca-bundle.crt"


def part(manifest: Object, name: str) -> Object:
    """A part of a manifest if it is an object, else an empty one."""
    value = manifest.get(name)
    return cast("Object", value) if isinstance(value, dict) else {}


def objects(value: object) -> list[Object]:
    """The objects in a list."""
    if not isinstance(value, list):
        return []
    return [cast("Object", each) for each in cast("list[Any]", value) if isinstance(each, dict)]


def is_workload(manifest: Object) -> bool:
    """Whether a manifest is a Deployment or a DaemonSet."""
    group, _ = api_group(str(manifest.get("apiVersion", "")))
    return group == "apps" and manifest.get("kind") in WORKLOADS


def decorated(
    manifest: Object,
    template: AddOnTemplate,
    settings: DeploymentSettings,
    environment: Mapping[str, str],
) -> Object:
    """A workload with everything that its pods need; other manifests stay as they are."""
    if not is_workload(manifest):
        return manifest
    spec = part(manifest, "spec")
    pod_template = part(spec, "template")
    pod = dict(part(pod_template, "spec"))
    mounts = [
        mount
        for each in template.spec.registration
        for mount in registration_volumes(each, template.spec.addon_name)
    ]
    added = {**environment, **proxy_environment(settings)}
    if settings.proxy_ca:
        mounts.append(
            (
                {"name": "proxy-ca-bundle", "configMap": {"name": proxy_ca_name(template)}},
                PROXY_CA_FOLDER,
            )
        )
    add_volumes(pod, mounts)
    identity = f"{WORKLOADS[manifest['kind']]}:{part(manifest, 'metadata').get('name', '')}"
    pod["containers"] = [
        container_with(each, added, mounts, settings, identity)
        for each in objects(pod.get("containers"))
    ]
    if "initContainers" in pod:
        pod["initContainers"] = [
            with_image(each, settings.registries) for each in objects(pod["initContainers"])
        ]
    if settings.node_placement.node_selector:
        pod["nodeSelector"] = dict(settings.node_placement.node_selector)
    if settings.node_placement.tolerations:
        pod["tolerations"] = plain(settings.node_placement.tolerations)
    return {**manifest, "spec": {**spec, "template": {**pod_template, "spec": pod}}}


VolumeMount = tuple[Object, str]
"""A volume, and where it is mounted."""


def registration_volumes(registration: Registration, addon: str) -> list[VolumeMount]:
    """The Secret with which an agent authenticates."""
    if registration.type == "KubeClient":
        secret = {"secretName": kubeconfig_secret(addon)}
        return [({"name": "hub-kubeconfig", "secret": secret}, "/managed/hub-kubeconfig")]
    if registration.custom_signer is None:
        return []
    signer = registration.custom_signer.signer_name
    name = "cert-" + signer.replace("/", "-").replace(".", "-")
    secret = {"secretName": certificate_secret(addon, signer)}
    return [({"name": name, "secret": secret}, f"/managed/{signer.replace('/', '-')}")]


def add_volumes(pod: Object, mounts: list[VolumeMount]) -> None:
    """Give a pod volumes, in place of those of the same names."""
    if mounts:
        added = {volume["name"]: volume for volume, _ in mounts}
        kept = [each for each in objects(pod.get("volumes")) if each.get("name") not in added]
        pod["volumes"] = [*kept, *added.values()]


def container_with(
    container: Object,
    environment: Mapping[str, str],
    mounts: list[VolumeMount],
    settings: DeploymentSettings,
    workload: str,
) -> Object:
    """A container with variables, volumes, another image and resources."""
    made = with_image(container, settings.registries)
    kept = [each for each in objects(made.get("env")) if each.get("name") not in environment]
    added = [{"name": name, "value": value} for name, value in environment.items()]
    made["env"] = [*kept, *added]
    if mounts:
        new = {volume["name"]: {"name": volume["name"], "mountPath": p} for volume, p in mounts}
        old = [each for each in objects(made.get("volumeMounts")) if each.get("name") not in new]
        made["volumeMounts"] = [*old, *new.values()]
    found = resources_of(f"{workload}:{made.get('name', '')}", settings.resources)
    if found is not None:
        made["resources"] = plain(found.resources)
    return made


def resources_of(
    container_id: str, requirements: tuple[AddOnResources, ...]
) -> AddOnResources | None:
    """The last requirement that is about a container."""
    return next((each for each in reversed(requirements) if is_about(each, container_id)), None)


def is_about(requirement: AddOnResources, container_id: str) -> bool:
    """Whether a requirement is about a container; `*` stands for a whole part."""
    wanted, found = requirement.container_id.split(":"), container_id.split(":")
    return len(wanted) == len(found) and all(
        left in ("*", right) for left, right in zip(wanted, found, strict=True)
    )


def with_image(container: Object, mirrors: tuple[ImageMirror, ...]) -> Object:
    """A copy of a container with the image of a mirror."""
    image = container.get("image")
    if not isinstance(image, str):
        return dict(container)
    return {**container, "image": mirrored(image, mirrors)}


def mirrored(image: str, mirrors: tuple[ImageMirror, ...]) -> str:
    """The image at the last mirror whose source it comes from; itself when there is none."""
    found = image
    for each in mirrors:
        source, mirror = each.source.removesuffix("/"), each.mirror.removesuffix("/")
        if not source:
            name = image.rpartition("/")[2]
            found = f"{mirror}/{name}" if mirror else name
        elif image.startswith(source):
            found = mirror + image.removeprefix(source)
    return found


def proxy_environment(settings: DeploymentSettings) -> dict[str, str]:
    """Variables by which programs find a proxy."""
    proxy = settings.proxy
    pairs = (
        ("HTTP_PROXY", proxy.http_proxy),
        ("HTTPS_PROXY", proxy.https_proxy),
        ("NO_PROXY", proxy.no_proxy),
    )
    found = {spelled: value for name, value in pairs if value for spelled in (name, name.lower())}
    if settings.proxy_ca:
        found["CA_BUNDLE_FILE_PATH"] = f"{PROXY_CA_FOLDER}/{PROXY_CA_FILE}"
    return found


def proxy_ca_name(template: AddOnTemplate) -> str:
    """The ConfigMap with the CA of a proxy."""
    return f"{template.spec.addon_name}-proxy-ca"


def injected_objects(addon: str, settings: DeploymentSettings, namespace: str) -> list[Object]:
    """Objects that a template does not have, and its pods need."""
    if not settings.proxy_ca:
        return []
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{addon}-proxy-ca", "namespace": namespace},
            "data": {PROXY_CA_FILE: settings.proxy_ca},
        }
    ]


def moved(manifest: Object, namespace: str) -> Object:
    """A manifest in another namespace; one that has none is taken for cluster-scoped."""
    metadata = part(manifest, "metadata")
    made = dict(manifest)
    if metadata.get("namespace"):
        made["metadata"] = {**metadata, "namespace": namespace}
    if manifest.get("kind") == "Namespace":
        made["metadata"] = {**metadata, "name": namespace}
    if manifest.get("kind") in ("RoleBinding", "ClusterRoleBinding") and "subjects" in manifest:
        made["subjects"] = [
            {**each, "namespace": namespace} if each.get("kind") == "ServiceAccount" else each
            for each in objects(manifest["subjects"])
        ]
    return made
