"""What the hub's informer keeps of a ManifestWork: everything but the content of its manifests.

A work may have half a megabyte of manifests, and a hub many thousand works. Which objects they are
is kept; who needs more reads the work itself.
"""

from typing import Any, cast

from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items, part
from knfleet.kube.cache.informer import without_managed_fields


def without_content(work: Object) -> Object:
    """A work with its manifests reduced to which objects they are; changes the object itself."""
    without_managed_fields(work)
    work["metadata"].get("annotations", {}).pop(LAST_APPLIED, None)
    workload = part(work, "spec", "workload")
    if workload:
        workload["manifests"] = [identity(each) for each in items(workload, "manifests")]
    return work


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which `kubectl apply` repeats the whole object."""


def identity(manifest: Any) -> Object:
    """Kind, namespace and name of a manifest, which may be anything."""
    found = cast("dict[str, Any]", manifest) if isinstance(manifest, dict) else {}
    meta = part(found, "metadata")
    named = {name: meta[name] for name in ("name", "namespace") if meta.get(name)}
    return {
        "apiVersion": found.get("apiVersion", ""),
        "kind": found.get("kind", ""),
        "metadata": named,
    }
