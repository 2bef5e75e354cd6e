"""The template of a replica set, and the work that it makes for one cluster. Pure.

Objects whose progress is known get a rule by which agents report it, unless the template has such
rules itself: a rollout goes on by what agents report.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from knfleet.api.meta import Key, Object
from knfleet.api.work.manifestwork import COMPLETE, DEGRADED, PROGRESSING, WORKS
from knfleet.api.work.replicaset import (
    PLACEMENT_NAME_LABEL,
    REPLICA_SET,
    REPLICA_SET_LABEL,
    ROLLOUT_STARTED,
    TEMPLATE_HASH,
)
from knfleet.apply.manifest_fields import items, part

VARIABLE = re.compile(r"\{\{\s*(cluster\.(?:name|labels\.[^\s{}]+|claims\.[^\s{}]+))\s*\}\}")
LABEL_LENGTH = 63
NAME_LENGTH = 180
"""An agent puts a hash in front of the name, and the sum must be a name, too."""
HASH_LENGTH = 16

REPLICAS = "(has(object.spec.replicas) ? object.spec.replicas : 1)"
STALE = (
    "!has(object.status) || !has(object.status.observedGeneration)"
    " || object.status.observedGeneration < object.metadata.generation"
)


def count(field: str) -> str:
    """CEL for a number of the status; absent means zero."""
    return f"(has(object.status.{field}) ? object.status.{field} : 0)"


def condition_is(type_: str, status: str) -> str:
    """CEL for whether the status has a condition."""
    return (
        "hasConditions(object.status) && object.status.conditions.exists(c,"
        f" c.type == '{type_}' && c.status == '{status}')"
    )


DEPLOYMENT = (
    f"{STALE} || {count('updatedReplicas')} < {REPLICAS} || {count('replicas')} >"
    f" {count('updatedReplicas')} || {count('availableReplicas')} < {REPLICAS}"
)
STATEFUL_SET = (
    f"{STALE} || {count('updatedReplicas')} < {REPLICAS} || {count('readyReplicas')} < {REPLICAS}"
)
DAEMON_SET = (
    f"{STALE} || {count('updatedNumberScheduled')} < {count('desiredNumberScheduled')}"
    f" || {count('numberAvailable')} < {count('desiredNumberScheduled')}"
)
FAILING_DEPLOYMENT = (
    f"has(object.status) && ({condition_is('Progressing', 'False')}"
    f" || {condition_is('ReplicaFailure', 'True')})"
)


class ProgressRule(Struct, frozen=True):
    """How an agent finds out whether an object of a kind is done."""

    resource: str
    progressing: str
    degraded: str = ""


PROGRESS_RULES = {
    ("apps/v1", "Deployment"): ProgressRule("deployments", DEPLOYMENT, FAILING_DEPLOYMENT),
    ("apps/v1", "StatefulSet"): ProgressRule("statefulsets", STATEFUL_SET),
    ("apps/v1", "DaemonSet"): ProgressRule("daemonsets", DAEMON_SET),
    ("batch/v1", "Job"): ProgressRule(
        "jobs",
        f"!has(object.status) || !({condition_is('Complete', 'True')})",
        f"has(object.status) && {condition_is('Failed', 'True')}",
    ),
}
"""Rules for kinds whose progress is known."""


class MissingVariable(ValueError):
    """A cluster does not have what the template asks for."""


class ClusterVariables(Struct, frozen=True):
    """What a template can ask for."""

    name: str
    labels: Mapping[str, str]
    claims: Mapping[str, str]

    def value(self, variable: str) -> str:
        """The value of `cluster.name`, `cluster.labels.KEY` or `cluster.claims.KEY`."""
        if variable == "cluster.name":
            return self.name
        _, kind, key = variable.split(".", 2)
        found = (self.labels if kind == "labels" else self.claims).get(key)
        if found is None:
            raise MissingVariable(f"cluster {self.name} has no {kind[:-1]} {key}")
        return found


class Template:
    """A template that is ready to be used for any number of clusters."""

    def __init__(self, spec: Object, *, has_variables: bool) -> None:
        self.spec = with_progress_rules(spec)
        self.has_progress_rule = has_condition_rule(self.spec, PROGRESSING)
        """Whether agents report progress."""
        written = msgspec.json.encode(self.spec, order="deterministic")
        self.digest = hashlib.sha256(written).hexdigest()
        self.variables = sorted(set(variables_in(self.spec))) if has_variables else []

    def hash_for(self, cluster: ClusterVariables) -> str:
        """What tells apart works of different templates and values; raises MissingVariable."""
        values = [cluster.value(variable) for variable in self.variables]
        text = msgspec.json.encode([self.digest, values])
        return hashlib.sha256(text).hexdigest()[:HASH_LENGTH]

    def spec_for(self, cluster: ClusterVariables) -> Object:
        """The spec of a cluster's work; raises MissingVariable."""
        if not self.variables:
            return self.spec
        return replaced(self.spec, {each: cluster.value(each) for each in self.variables})


def variables_in(value: Any) -> Iterator[str]:
    """The variables that texts within a value ask for."""
    if isinstance(value, str):
        yield from VARIABLE.findall(value)
    elif isinstance(value, dict):
        for each in cast("dict[str, Any]", value).values():
            yield from variables_in(each)
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from variables_in(each)


def replaced(value: Any, values: Mapping[str, str]) -> Any:
    """A value with its variables replaced; what a value contains is not looked at again."""
    if isinstance(value, str):
        return VARIABLE.sub(lambda match: values[match[1]], value)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: replaced(each, values) for name, each in fields.items()}
    if isinstance(value, list):
        return [replaced(each, values) for each in cast("list[Any]", value)]
    return value


def has_condition_rule(spec: Object, *types: str) -> bool:
    """Whether agents compute a condition for some manifest."""
    return any(
        rule.get("condition") in types
        for config in items(spec, "manifestConfigs")
        for rule in items(config, "conditionRules")
    )


def with_progress_rules(spec: Object) -> Object:
    """A template whose progress agents report; one that has such rules is left as it is."""
    if has_condition_rule(spec, PROGRESSING, DEGRADED, COMPLETE):
        return spec
    added = [
        config
        for manifest in items(spec, "workload", "manifests")
        if (config := progress_config(manifest)) is not None
    ]
    # In front, so that what the template says of the same object counts.
    return {**spec, "manifestConfigs": [*added, *items(spec, "manifestConfigs")]} if added else spec


def progress_config(manifest: Object) -> Object | None:
    """How an agent finds out whether an object is done; None when that is not known."""
    kind = (manifest.get("apiVersion", ""), manifest.get("kind", ""))
    rule = PROGRESS_RULES.get(kind)
    meta = part(manifest, "metadata")
    if rule is None or not meta.get("name"):
        return None
    rules = [{"condition": PROGRESSING, "type": "CEL", "celExpressions": [rule.progressing]}]
    if rule.degraded:
        rules.append({"condition": DEGRADED, "type": "CEL", "celExpressions": [rule.degraded]})
    identifier = {
        "group": kind[0].rpartition("/")[0],
        "resource": rule.resource,
        "name": meta["name"],
        "namespace": meta.get("namespace") or "default",
    }
    return {"resourceIdentifier": identifier, "conditionRules": rules}


def label_value(owner: Key) -> str:
    """The label that the works of a replica set share; long names end in a hash."""
    text = f"{owner.namespace}.{owner.name}"
    if len(text) <= LABEL_LENGTH:
        return text
    return f"{text[: LABEL_LENGTH - 11].rstrip('.-_')}-{short_hash(text)}"


def work_name(owner: Key) -> str:
    """The name of the works of a replica set; it differs from that of others of the same name."""
    return f"{owner.name[:NAME_LENGTH].rstrip('.-')}-{short_hash(str(owner))[:5]}"


def short_hash(text: str) -> str:
    """A few characters that depend on a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def owner_of(work: Object) -> list[str]:
    """`NAMESPACE/NAME` of the replica set that made a work; none when none did."""
    meta = work["metadata"]
    named = part(meta, "annotations").get(REPLICA_SET)
    if named:
        return [named]
    namespace, dot, name = part(meta, "labels").get(REPLICA_SET_LABEL, "").partition(".")
    return [f"{namespace}/{name}"] if dot else []


class WorkOrder(Struct, frozen=True):
    """A work that is to be written."""

    owner: Key
    labels: Mapping[str, str]
    """Of the replica set itself."""
    placement: str
    cluster: str
    name: str
    hash: str
    started: str
    spec: Object

    def manifest(self) -> Object:
        """The work."""
        return {
            "apiVersion": WORKS.api_version,
            "kind": WORKS.kind,
            "metadata": {
                "name": self.name,
                "namespace": self.cluster,
                "labels": {
                    **self.labels,
                    REPLICA_SET_LABEL: label_value(self.owner),
                    PLACEMENT_NAME_LABEL: self.placement[:LABEL_LENGTH].rstrip(".-_"),
                },
                "annotations": {
                    REPLICA_SET: str(self.owner),
                    TEMPLATE_HASH: self.hash,
                    ROLLOUT_STARTED: self.started,
                },
            },
            "spec": self.spec,
        }
