"""What the hub's informer keeps of a ManifestWork: everything but the content of its manifests.

A work may have half a megabyte of manifests, and a hub many thousand works. Which objects they are
is kept; who needs more reads the work itself.
"""

from typing import Any, cast

from knfleet.api.meta import Object
from knfleet.api.work.manifestwork import WORKS
from knfleet.apply.manifest_fields import items, part
from knfleet.hub.work.replicasets.replica_template import owner_of
from knfleet.kube.cache.informer import Informer, without_managed_fields
from knfleet.kube.client.verbs import Client


def without_content(work: Object) -> Object:
    """A work with its manifests reduced to which objects they are; changes the object itself."""
    without_managed_fields(work)
    work["metadata"].get("annotations", {}).pop(LAST_APPLIED, None)
    workload = part(work, "spec", "workload")
    if workload:
        workload["manifests"] = [identity(each) for each in items(workload, "manifests")]
    return work


def own_namespace(manifest: Object) -> list[str]:
    """The namespace of a work, which is called like its cluster."""
    return [manifest["metadata"]["namespace"]]


INDEXES = {"cluster": own_namespace, "replicaset": owner_of}


def work_informer(client: Client, namespace: str = "") -> Informer:
    """An informer that keeps of works what the hub's own does."""
    return Informer(client, WORKS, namespace, trim=without_content, indexes=INDEXES)


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
