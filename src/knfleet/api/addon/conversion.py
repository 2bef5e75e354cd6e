"""Conversion of add-on objects between v1alpha1 and v1beta1. Pure.

Each version has values that the other has no field for. Such a value is kept in an annotation and
comes back with the conversion to the version that has the field, as long as it agrees with the
rest of the object: restored, it must convert back to the very object that it is restored from. So
a later change wins over a kept value, and an annotation cannot say what the object does not.
"""

import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any, cast

import msgspec
from msgspec import Struct

from knfleet.api.addon.names import (
    BETA,
    CONVERSION,
    GROUP,
    INSTALL_NAMESPACE,
    KUBE_CLIENT_SIGNER,
    NO_DEFAULT,
    STORED,
)
from knfleet.api.meta import Object

CONVERSION_PATH = "/convert/addons"
KEPT_FIELD = re.compile(r"(spec|status)\.[A-Za-z]+")

Convert = Callable[[Object], Object]


class ConversionError(ValueError):
    """An object that cannot be converted; the message names it."""


class Converter(Struct, frozen=True):
    """How one kind is converted; both functions change and return their argument."""

    to_beta: Convert
    to_alpha: Convert


def convert(manifest: Object, api_version: str) -> Object:
    """The object in another version; raises `ConversionError` when there is no such version."""
    metadata = cast("Any", manifest.get("metadata"))
    name = as_object(metadata).get("name", "")
    group, _, version = str(manifest.get("apiVersion", "")).partition("/")
    wanted_group, _, wanted = api_version.partition("/")
    kind = str(manifest.get("kind", ""))
    converter = CONVERTERS.get(kind)
    if converter is None or {group, wanted_group} != {GROUP} or not isinstance(metadata, dict):
        raise ConversionError(f"{kind or 'object'} {name}: not an add-on object of {GROUP}")
    if not {version, wanted} <= {STORED, BETA}:
        raise ConversionError(f"{kind} {name}: no conversion from {version} to {wanted}")
    if version == wanted:
        return manifest
    there, back = converter.to_beta, converter.to_alpha
    if version == BETA:
        there, back = back, there
    return {**converted(manifest, there, back), "apiVersion": api_version}


def converted(manifest: Object, there: Convert, back: Convert) -> Object:
    """The object in the other version, with what that has no field for in an annotation."""
    source = deepcopy(manifest)
    kept = take_kept(source)
    result = there(deepcopy(source))
    expected = back(deepcopy(result))
    for path, value in kept.items():
        candidate = with_field(result, path, value)
        again = back(deepcopy(candidate))
        if not differences(source, again).keys() & differences(expected, again).keys():
            result = candidate
    lost = differences(source, back(deepcopy(result)))
    if lost:
        annotations = as_object(result["metadata"].get("annotations"))
        text = msgspec.json.encode(lost, order="sorted").decode()
        result["metadata"]["annotations"] = {**annotations, CONVERSION: text}
    return result


def take_kept(manifest: Object) -> dict[str, Any]:
    """Remove the annotation with kept values from an object; the values by field."""
    annotations = as_object(manifest["metadata"].get("annotations"))
    text = annotations.get(CONVERSION)
    if text is None:
        return {}
    without_annotation(manifest, CONVERSION)
    try:
        kept = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, TypeError, RecursionError):
        return {}
    return {path: value for path, value in kept.items() if KEPT_FIELD.fullmatch(path)}


def differences(source: Object, again: Object) -> dict[str, Any]:
    """Fields of spec and status that a conversion there and back changes; None means absent."""
    found: dict[str, Any] = {}
    for part in ("spec", "status"):
        before, after = as_object(source.get(part)), as_object(again.get(part))
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                found[f"{part}.{name}"] = before.get(name)
    return found


def with_field(manifest: Object, path: str, value: object) -> Object:
    """A copy with one field of spec or status replaced, or removed by None."""
    part, _, name = path.partition(".")
    fields = {**as_object(manifest.get(part)), name: value}
    if value is None:
        del fields[name]
    return {**manifest, part: fields}


def without_annotation(manifest: Object, name: str) -> None:
    """Remove an annotation, and the last one with the whole map."""
    metadata: Object = manifest["metadata"]
    annotations = {key: value for key, value in metadata["annotations"].items() if key != name}
    metadata["annotations"] = annotations
    if not annotations:
        del metadata["annotations"]


def as_object(value: object) -> Object:
    """A value if it is an object, else an empty one."""
    return cast("Object", value) if isinstance(value, dict) else {}


def each_object(value: Any, change: Callable[[Object], Object]) -> Any:
    """A list with its objects changed; anything else stays as it is."""
    if not isinstance(value, list):
        return value
    elements = cast("list[Any]", value)
    return [change(cast("Object", each)) if isinstance(each, dict) else each for each in elements]


def renamed(fields: Object, old: str, new: str) -> None:
    """Give a field another name, if it is there."""
    if old in fields:
        fields[new] = fields.pop(old)


def cluster_addon_to_beta(manifest: Object) -> Object:
    """A ClusterManagementAddOn in v1beta1."""
    spec, status = as_object(manifest.get("spec")), as_object(manifest.get("status"))
    spec.pop("addOnConfiguration", None)
    if "supportedConfigs" in spec:
        spec["defaultConfigs"] = each_object(spec.pop("supportedConfigs"), default_config)
    renamed(status, "defaultconfigReferences", "defaultConfigReferences")
    return manifest


def cluster_addon_to_alpha(manifest: Object) -> Object:
    """A ClusterManagementAddOn in v1alpha1."""
    spec, status = as_object(manifest.get("spec")), as_object(manifest.get("status"))
    if "defaultConfigs" in spec:
        spec["supportedConfigs"] = each_object(spec.pop("defaultConfigs"), supported_config)
    renamed(status, "defaultConfigReferences", "defaultconfigReferences")
    return manifest


def default_config(supported: Object) -> Object:
    """A supported type with its default as v1beta1 has it: always with a name."""
    own = {name: value for name, value in supported.items() if name != "defaultConfig"}
    default = as_object(supported.get("defaultConfig"))
    return {**own, "name": NO_DEFAULT, **default}


def supported_config(default: Object) -> Object:
    """A default configuration as v1alpha1 has it: a type that may have a default."""
    own = {name: value for name, value in default.items() if name not in ("name", "namespace")}
    referent = {name: default[name] for name in ("name", "namespace") if name in default}
    if referent.get("name", "") in ("", NO_DEFAULT):
        return own
    return {**own, "defaultConfig": referent}


def addon_to_beta(manifest: Object) -> Object:
    """A ManagedClusterAddOn in v1beta1."""
    spec, status = as_object(manifest.get("spec")), as_object(manifest.get("status"))
    namespace = spec.pop("installNamespace", None)
    if isinstance(namespace, str) and namespace:
        annotations = as_object(manifest["metadata"].get("annotations"))
        manifest["metadata"]["annotations"] = {**annotations, INSTALL_NAMESPACE: namespace}
    status.pop("addOnConfiguration", None)
    driver = status.pop("kubeClientDriver", None)
    if "configReferences" in status:
        status["configReferences"] = each_object(status["configReferences"], reference_to_beta)
    if "registrations" in status:
        status["registrations"] = each_object(
            status["registrations"], lambda each: registration_to_beta(each, driver)
        )
    return manifest


def addon_to_alpha(manifest: Object) -> Object:
    """A ManagedClusterAddOn in v1alpha1."""
    annotations = as_object(manifest["metadata"].get("annotations"))
    namespace = annotations.get(INSTALL_NAMESPACE)
    if isinstance(namespace, str) and namespace:
        without_annotation(manifest, INSTALL_NAMESPACE)
        manifest["spec"] = {**as_object(manifest.get("spec")), "installNamespace": namespace}
    status = as_object(manifest.get("status"))
    if "configReferences" in status:
        status["configReferences"] = each_object(status["configReferences"], reference_to_alpha)
    registrations = status.get("registrations")
    if (driver := kube_client_driver(registrations)) is not None:
        status["kubeClientDriver"] = driver
    if registrations is not None:
        status["registrations"] = each_object(registrations, registration_to_alpha)
    return manifest


def reference_to_beta(reference: Object) -> Object:
    """A configuration in use as v1beta1 has it."""
    return {key: value for key, value in reference.items() if key not in ("name", "namespace")}


def reference_to_alpha(reference: Object) -> Object:
    """A configuration in use as v1alpha1 has it: named twice."""
    desired = as_object(reference.get("desiredConfig"))
    copied = {key: desired[key] for key in ("name", "namespace") if key in desired}
    return {**reference, **copied}


def registration_to_beta(registration: Object, driver: object) -> Object:
    """A registration as v1beta1 has it."""
    own = {
        key: value for key, value in registration.items() if key not in ("signerName", "subject")
    }
    subject = dict(as_object(registration.get("subject")))
    signer = registration.get("signerName", "")
    if signer == KUBE_CLIENT_SIGNER:
        subject.pop("organizationUnit", None)
        client: Object = {"subject": subject} if "subject" in registration else {}
        if driver is not None:
            client["driver"] = driver
        return {**own, "type": "kubeClient", "kubeClient": client}
    renamed(subject, "organizationUnit", "organizationUnits")
    custom: Object = {"signerName": signer}
    if "subject" in registration:
        custom["subject"] = subject
    return {**own, "type": "customSigner", "customSigner": custom}


def registration_to_alpha(registration: Object) -> Object:
    """A registration as v1alpha1 has it."""
    known = ("type", "kubeClient", "customSigner")
    own = {key: value for key, value in registration.items() if key not in known}
    if registration.get("type") == "kubeClient":
        chosen = as_object(registration.get("kubeClient"))
        made: Object = {**own, "signerName": KUBE_CLIENT_SIGNER}
    else:
        chosen = as_object(registration.get("customSigner"))
        made = {**own, "signerName": chosen.get("signerName", "")}
    if "subject" in chosen:
        subject = dict(as_object(chosen["subject"]))
        renamed(subject, "organizationUnits", "organizationUnit")
        made["subject"] = subject
    return made


def kube_client_driver(registrations: object) -> Any:
    """The driver of the first registration for the hub's API server, if it has one."""
    if not isinstance(registrations, list):
        return None
    clients = [
        as_object(as_object(each).get("kubeClient"))
        for each in cast("list[Any]", registrations)
        if as_object(each).get("type") == "kubeClient"
    ]
    return clients[0].get("driver") if clients else None


CONVERTERS = {
    "ClusterManagementAddOn": Converter(cluster_addon_to_beta, cluster_addon_to_alpha),
    "ManagedClusterAddOn": Converter(addon_to_beta, addon_to_alpha),
}
