"""Compares what two programs have installed, field by field."""

from typing import Any, cast

import msgspec
from msgspec import Struct

from knfleet.api.meta import Object, api_group
from knfleet.kube.yaml import YamlError, load
from testbed.peers.operator import Outcome

ABSENT = "(absent)"
SERVERS_METADATA = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")
BOOKKEEPING = (
    "manifestival",
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
)
"""Annotations with which programs remember what they did."""
JOB_LABELS = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)


class Difference(Struct, frozen=True):
    """One field of one object that is not the same."""

    object: str
    """Kind and name, or `outcome`."""
    path: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"{self.object}: {self.path or 'object'}: {short(self.ours)} ≠ {short(self.theirs)}"


def as_text(value: Any) -> str:
    """A value as one text."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def short(value: Any) -> str:
    """A value for a message."""
    text = as_text(value)
    return text if len(text) < 300 else f"{text[:300]}…"


def compare(ours: Outcome, theirs: Outcome, given: str) -> list[Difference]:
    """All differences between two outcomes; `given` is the custom resource's text."""
    if ours.problem or theirs.problem:
        return compare_problems(ours, theirs)
    found = [
        Difference("outcome", name, mine, yours)
        for name, mine, yours in (
            ("version", ours.version, theirs.version),
            ("manifests", ours.manifests, theirs.manifests),
        )
        if mine != yours
    ]
    mine, yours = by_name(ours.objects, given), by_name(theirs.objects, given)
    for name in sorted(mine.keys() | yours.keys()):
        if name in mine and name in yours:
            found += compare_values(mine[name], yours[name], name, "")
        else:
            found.append(Difference(name, "", mine.get(name, ABSENT), yours.get(name, ABSENT)))
    return found


def compare_problems(ours: Outcome, theirs: Outcome) -> list[Difference]:
    """Nothing when both say the same; ours may say more."""
    if theirs.problem and not theirs.crashed and theirs.problem in ours.problem:
        return []
    return [Difference("outcome", "problem", ours.problem or ABSENT, theirs.problem or ABSENT)]


def by_name(objects: list[Object], given: str) -> dict[str, Object]:
    """Objects without what is not theirs, by kind, namespace and name."""
    found: dict[str, Object] = {}
    for manifest in objects:
        meta = manifest["metadata"]
        group, _ = api_group(manifest["apiVersion"])
        kind = f"{manifest['kind']}.{group}" if group else manifest["kind"]
        name = f"{kind} {meta.get('namespace', '')}/{meta['name']}"
        assert name not in found
        found[name] = normal(manifest, given)
    return found


def normal(manifest: Object, given: str) -> Object:
    """The object without what servers, controllers and book-keeping have put into it."""
    copy: Object = msgspec.json.decode(msgspec.json.encode(manifest))
    copy.pop("status", None)
    meta = copy["metadata"]
    for field in SERVERS_METADATA:
        meta.pop(field, None)
    annotations = meta.get("annotations", {})
    for name in BOOKKEEPING:
        annotations.pop(name, None)
    if not annotations:
        meta.pop("annotations", None)
    for owner in meta.get("ownerReferences", []):
        owner.pop("uid")
    change = FOREIGN_FIELDS.get(copy["kind"])
    if change is not None:
        change(copy, given)
    return copy


def normal_role(copy: Object, _: str) -> None:
    """The rules of an aggregated role are the aggregation controller's."""
    if copy.get("aggregationRule"):
        copy.pop("rules", None)


def normal_service(copy: Object, given: str) -> None:
    """Addresses and ports that the server chose."""
    spec = copy["spec"]
    for field in ("clusterIP", "clusterIPs", "healthCheckNodePort"):
        if spec.get(field) not in ("None", ["None"]):
            spec.pop(field, None)
    for port in spec.get("ports", []):
        if str(port.get("nodePort")) not in given:
            port.pop("nodePort", None)


def normal_job(copy: Object, _: str) -> None:
    """A selector that the server made of the Job's uid."""
    copy["spec"].pop("selector", None)
    places = (copy["metadata"], copy["spec"]["template"]["metadata"])
    for labels in (place.get("labels", {}) for place in places):
        for name in JOB_LABELS:
            labels.pop(name, None)


def normal_webhooks(copy: Object, _: str) -> None:
    """Certificates that the node, in place of Knative's own controllers, puts in."""
    for webhook in copy.get("webhooks", []):
        webhook["clientConfig"].pop("caBundle", None)


def normal_definition(copy: Object, _: str) -> None:
    """The same for conversion."""
    webhook = copy["spec"].get("conversion", {}).get("webhook", {})
    webhook.get("clientConfig", {}).pop("caBundle", None)


FOREIGN_FIELDS = {
    "ClusterRole": normal_role,
    "CustomResourceDefinition": normal_definition,
    "Job": normal_job,
    "MutatingWebhookConfiguration": normal_webhooks,
    "Service": normal_service,
    "ValidatingWebhookConfiguration": normal_webhooks,
}


def compare_values(ours: Any, theirs: Any, name: str, path: str) -> list[Difference]:
    """The places below a path where two values differ."""
    if ours == theirs:
        return []
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return compare_maps(cast("Object", ours), cast("Object", theirs), name, path)
    if isinstance(ours, list) and isinstance(theirs, list):
        return compare_lists(cast("list[Any]", ours), cast("list[Any]", theirs), name, path)
    if isinstance(ours, str) and isinstance(theirs, str):
        return compare_texts(ours, theirs, name, path)
    return [Difference(name, path, ours, theirs)]


def compare_lists(ours: list[Any], theirs: list[Any], name: str, path: str) -> list[Difference]:
    """The places where two lists differ: by names where all entries have one, else by place."""
    mine, yours = named(ours), named(theirs)
    if mine is not None and yours is not None:
        found = compare_maps(mine, yours, name, path)
        return found or [Difference(name, f"{path} (order)", [*mine], [*yours])]
    if len(ours) == len(theirs):
        return compare_maps(numbered(ours), numbered(theirs), name, path)
    return [Difference(name, path, ours, theirs)]


def compare_texts(ours: str, theirs: str, name: str, path: str) -> list[Difference]:
    """The places where two texts differ, which may be YAML with the same or another meaning."""
    try:
        mine, yours = load(ours), load(theirs)
    except YamlError:
        mine = yours = None
    if not (isinstance(mine, dict) and isinstance(yours, dict)):
        return [Difference(name, path, ours, theirs)]
    found = compare_maps(cast("Object", mine), cast("Object", yours), name, path)
    return found or [Difference(name, f"{path} (form)", ours, theirs)]


def compare_maps(ours: Object, theirs: Object, name: str, path: str) -> list[Difference]:
    """The places where two maps differ."""
    return [
        difference
        for key in sorted(ours.keys() | theirs.keys())
        for difference in compare_values(
            ours.get(key, ABSENT),
            theirs.get(key, ABSENT),
            name,
            f"{path}.{key}" if path else key,
        )
    ]


def numbered(values: list[Any]) -> dict[str, Any]:
    """A list as a map by place."""
    return {str(place): value for place, value in enumerate(values)}


def named(values: list[Any]) -> dict[str, Any] | None:
    """A list of maps with different names as a map; nothing for any other list."""
    names = [
        cast("Object", each).get("name") if isinstance(each, dict) else None for each in values
    ]
    if None in names or len(set(names)) < len(names):
        return None
    return dict(zip(cast("list[str]", names), values, strict=True))
