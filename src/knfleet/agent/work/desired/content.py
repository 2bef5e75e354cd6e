"""What an object must look like after an update, and digests that tell states apart.

An update merges labels, annotations and owner references into those of the cluster, keeps
finalizers and status, and overwrites everything else; so what left the manifest leaves the object.
What the cluster itself fills in is kept where a write without it would be refused or do harm.
"""

import hashlib
from typing import Any, cast

import msgspec

from knfleet.agent.work.desired.manifests import SERVER_METADATA
from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items, part

WORK_LABEL = "knfleet.dev/applied-by"
WORK_LABEL_VALUE = "work-agent"
"""Label of all objects that works apply: by it they are watched."""
SELECTOR = f"{WORK_LABEL}={WORK_LABEL_VALUE}"
REMOVED = "-"
"""The key of a label or annotation that ends so removes it."""

OVERLAID = frozenset({"Pod", "Job", "PersistentVolumeClaim", "PersistentVolume"})
"""Kinds that the cluster completes after they were made, and that hardly can be changed."""
FILLED: dict[str, tuple[tuple[str, ...], ...]] = {
    "Deployment": (("spec", "replicas"),),
    "StatefulSet": (("spec", "replicas"),),
    "ReplicaSet": (("spec", "replicas"),),
    "Namespace": (("spec", "finalizers"),),
    "ServiceAccount": (("secrets",), ("imagePullSecrets",)),
    "Service": (("spec", "clusterIP"), ("spec", "clusterIPs"), ("spec", "healthCheckNodePort")),
    "APIService": (("spec", "caBundle"),),
    "CustomResourceDefinition": (("spec", "conversion", "webhook", "clientConfig", "caBundle"),),
}
"""Fields that keep the cluster's value when a manifest does not mention them."""
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def digest(value: Any) -> str:
    """A short text that differs for different values."""
    written = msgspec.json.encode(value, order="sorted")
    return hashlib.blake2b(written, digest_size=16).hexdigest()


def content(manifest: Object) -> Object:
    """Everything of an object but its name, metadata and status."""
    left_out = ("apiVersion", "kind", "metadata", "status")
    return {name: value for name, value in manifest.items() if name not in left_out}


def created(manifest: Object, owners: list[Object]) -> Object:
    """The object to create for a manifest."""
    meta = part(manifest, "metadata")
    return {
        **manifest,
        "metadata": {
            **meta,
            "labels": labelled(part(meta, "labels"), {}),
            **annotated(merged_map(part(meta, "annotations"), {})),
            "ownerReferences": owners,
        },
    }


def updated(manifest: Object, live: Object, owners: list[Object]) -> Object:
    """The object to write over one of the cluster; equal to that one when nothing differs."""
    old, meta = part(live, "metadata"), part(manifest, "metadata")
    new_meta: Object = {
        **old,
        "labels": labelled(part(meta, "labels"), part(old, "labels")),
        **annotated(merged_map(part(meta, "annotations"), part(old, "annotations"))),
    }
    new_meta.pop("ownerReferences", None)
    if owners:
        new_meta["ownerReferences"] = owners
    if "annotations" in new_meta and not new_meta["annotations"]:
        del new_meta["annotations"]
    result: Object = {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "metadata": new_meta,
        **new_content(manifest, live),
    }
    if "status" in live:
        result["status"] = live["status"]
    return result


def new_content(manifest: Object, live: Object) -> Object:
    """The content of an object after an update."""
    kind = str(manifest.get("kind"))
    wanted, there = content(manifest), content(live)
    if kind in OVERLAID:
        return overlaid(there, wanted)
    for path in FILLED.get(kind, ()):
        wanted = filled(wanted, there, path)
    if kind in WEBHOOKS and "webhooks" in wanted:
        wanted = {**wanted, "webhooks": with_bundles(items(wanted, "webhooks"), there)}
    return wanted


def labelled(wanted: Object, there: Object) -> Object:
    """Labels of the cluster with those of the manifest, and ours."""
    return {**merged_map(wanted, there), WORK_LABEL: WORK_LABEL_VALUE}


def annotated(annotations: Object) -> Object:
    """The field of annotations, unless there are none."""
    return {"annotations": annotations} if annotations else {}


def merged_map(wanted: Object, there: Object) -> Object:
    """Labels or annotations of the cluster with those of a manifest over them."""
    gone = {name[:-1] for name in wanted if name.endswith(REMOVED)}
    kept = {name: value for name, value in there.items() if name not in gone}
    return kept | {name: value for name, value in wanted.items() if not name.endswith(REMOVED)}


def covers(wanted: Object, there: Object) -> bool:
    """Whether labels or annotations of the cluster are as a manifest wants them."""
    return merged_map(wanted, there) == there


def filled(wanted: Object, there: Object, path: tuple[str, ...]) -> Object:
    """A manifest with one field from the cluster, unless it has one of its own."""
    name, *rest = path
    if name not in there:
        return wanted
    if not rest:
        return wanted if name in wanted else {**wanted, name: there[name]}
    inner, live = wanted.get(name), there[name]
    if not isinstance(live, dict) or (inner is not None and not isinstance(inner, dict)):
        return wanted
    below = filled(cast("Object", inner or {}), cast("Object", live), tuple(rest))
    return wanted if not below and name not in wanted else {**wanted, name: below}


def with_bundles(webhooks: list[Object], there: Object) -> list[Object]:
    """Webhooks with the certificate authorities that something on the cluster put there."""
    live = {each.get("name"): part(each, "clientConfig") for each in items(there, "webhooks")}
    return [
        filled(each, {"clientConfig": live.get(each.get("name"), {})}, ("clientConfig", "caBundle"))
        for each in webhooks
    ]


def overlaid(there: Any, wanted: Any) -> Any:
    """The cluster's value with everything that the manifest says laid over it."""
    if isinstance(there, dict) and isinstance(wanted, dict):
        below, above = cast("Object", there), cast("Object", wanted)
        return below | {
            name: overlaid(below[name], value) if name in below else value
            for name, value in above.items()
        }
    if isinstance(there, list) and isinstance(wanted, list):
        return overlaid_list(cast("list[Any]", there), cast("list[Any]", wanted))
    return wanted


def overlaid_list(there: list[Any], wanted: list[Any]) -> list[Any]:
    """The cluster's list with a manifest's over it: by name, or kept when it contains that."""
    new = by_name(wanted)
    if wanted and len(new) == len(wanted):
        old = by_name(there)
        kept = [
            overlaid(each, new[name]) if (name := name_of(each)) in new else each for each in there
        ]
        return kept + [each for name, each in new.items() if name not in old]
    if all(any(overlaid(old, new) == old for old in there) for new in wanted):
        return there
    return wanted


def by_name(elements: list[Any]) -> dict[str, Any]:
    """The elements of a list that have a name."""
    return {name: each for each in elements if (name := name_of(each))}


def name_of(element: Any) -> str:
    """The name of an element; empty when it has none."""
    return str(cast("Object", element).get("name", "")) if isinstance(element, dict) else ""


def writable(manifest: Object) -> Object:
    """An object without metadata that a write must not carry, but with its version."""
    meta = part(manifest, "metadata")
    kept = ("ownerReferences", "resourceVersion", "uid")
    without = {
        name: value for name, value in meta.items() if name in kept or name not in SERVER_METADATA
    }
    return {**manifest, "metadata": without}
