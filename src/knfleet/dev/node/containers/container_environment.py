"""The environment of a real pod's container, as the kubelet would make it."""

import math
import os
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Protocol

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.dev.node.containers.container_command import expand
from knfleet.dev.node.pods.pod_manifests import annotations_of, labels_of, rows, table, uid_of

FIELD_KEY = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
SUFFIXES = {
    "m": Decimal("0.001"),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
}


class ReferenceMissing(Exception):
    """Something that the pod refers to is missing; it may come."""


class ReferenceReader(Protocol):
    """Where ConfigMaps and Secrets of the pod's namespace are read, as text and bytes."""

    def config_map(self, name: str) -> Mapping[str, bytes] | None:
        """All keys of a ConfigMap, or nothing."""
        ...

    def secret(self, name: str) -> Mapping[str, bytes] | None:
        """All keys of a Secret, or nothing."""
        ...


class RuntimeFields(Struct, frozen=True):
    """What fields of a pod are known only where it runs."""

    pod_ip: str
    host_ip: str


def environment(
    container: Object, pod: Object, facts: RuntimeFields, store: ReferenceReader
) -> dict[str, str]:
    """The variables that a container's `envFrom` and `env` name, in order.

    Raises `ReferenceMissing` when something that is not optional is missing.
    """
    variables: dict[str, str] = {}
    for source in rows(container.get("envFrom")):
        variables.update(from_source(source, store))
    for entry in rows(container.get("env")):
        if "valueFrom" in entry:
            value = referenced(entry["valueFrom"], container, pod, facts=facts, store=store)
            if value is not None:
                variables[entry["name"]] = value
        else:
            variables[entry["name"]] = expand(entry.get("value") or "", variables)
    return variables


def from_source(source: Object, store: ReferenceReader) -> dict[str, str]:
    """All variables of one `envFrom` entry; keys that cannot be names are left out."""
    prefix: str = source.get("prefix") or ""
    if reference := source.get("configMapRef"):
        found, what = store.config_map(reference["name"]), "configmap"
    else:
        reference = source["secretRef"]
        found, what = store.secret(reference["name"]), "secret"
    if found is None:
        if reference.get("optional"):
            return {}
        raise ReferenceMissing(f'{what} "{reference["name"]}" not found')
    return {
        prefix + key: value.decode(errors="replace")
        for key, value in found.items()
        if ENV_NAME.fullmatch(prefix + key)
    }


def referenced(
    source: Object, container: Object, pod: Object, *, facts: RuntimeFields, store: ReferenceReader
) -> str | None:
    """The value that a `valueFrom` means; nothing for an optional one that is missing."""
    if field := source.get("fieldRef"):
        return field_value(field["fieldPath"], pod, facts)
    if resource := source.get("resourceFieldRef"):
        return resource_value(resource, container, pod)
    if reference := source.get("configMapKeyRef"):
        return key_value(reference, store.config_map(reference["name"]), "configmap")
    if reference := source.get("secretKeyRef"):
        return key_value(reference, store.secret(reference["name"]), "secret")
    raise ReferenceMissing(f"the dev node has no environment from {', '.join(source)}")


def key_value(reference: Object, found: Mapping[str, bytes] | None, what: str) -> str | None:
    """One key of a ConfigMap or Secret."""
    name, key = reference["name"], reference["key"]
    if found is not None and key in found:
        return found[key].decode(errors="replace")
    if reference.get("optional"):
        return None
    if found is None:
        raise ReferenceMissing(f'{what} "{name}" not found')
    raise ReferenceMissing(f'couldn\'t find key {key} in {what} "{name}"')


def field_value(path: str, pod: Object, facts: RuntimeFields) -> str:
    """The text of a downward API field."""
    meta, spec = pod["metadata"], pod["spec"]
    if match := FIELD_KEY.fullmatch(path):
        table = labels_of(pod) if match[1] == "labels" else annotations_of(pod)
        return table.get(match[2], "")
    simple = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta.get("namespace", ""),
        "metadata.uid": uid_of(pod),
        "metadata.labels": key_lines(labels_of(pod)),
        "metadata.annotations": key_lines(annotations_of(pod)),
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": facts.pod_ip,
        "status.podIPs": facts.pod_ip,
        "status.hostIP": facts.host_ip,
        "status.hostIPs": facts.host_ip,
    }
    if path not in simple:
        raise ReferenceMissing(f"unsupported fieldPath {path}")
    return simple[path]


def key_lines(table: Mapping[str, str]) -> str:
    """Labels or annotations in the downward API's notation."""
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
    return "\n".join(f'{key}="{table[key].translate(escapes)}"' for key in sorted(table))


def resource_value(reference: Object, container: Object, pod: Object) -> str:
    """A container's request or limit in units of the divisor, rounded up; or what there is."""
    name = reference.get("containerName")
    for each in rows(pod["spec"].get("containers")):
        if each["name"] == name:
            container = each
    side, _, resource = reference["resource"].partition(".")
    resources = table(container.get("resources"))
    amounts = table(resources.get(side) or resources.get("limits"))
    amount = quantity(str(amounts[resource])) if resource in amounts else machine_has(resource)
    divisor = quantity(str(reference.get("divisor") or "0"))
    return str(math.ceil(amount / (divisor or Decimal(1))))


def quantity(text: str) -> Decimal:
    """The number that a resource quantity means."""
    for length in (2, 1):
        if (suffix := text[-length:]) in SUFFIXES:
            return Decimal(text[:-length]) * SUFFIXES[suffix]
    return Decimal(text)


def machine_has(resource: str) -> Decimal:
    """How much of a resource a container without a limit may use."""
    if resource == "cpu":
        return Decimal(os.cpu_count() or 1)
    if resource == "memory":
        return Decimal(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return Decimal(0)
