"""ManifestWorks for tests."""

from typing import Any

from knfleet.api.meta import Object
from knfleet.api.work.manifestwork import WORK_FINALIZER, WORKS


def config_map(name: str = "cm", namespace: str = "default", **data: str) -> Object:
    """A ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def work(
    name: str, *manifests: Object, annotations: dict[str, str] | None = None, **spec: Any
) -> Object:
    """A work with manifests, or with a ConfigMap when none are given."""
    meta: Object = {"name": name, "annotations": annotations or {}}
    workload = {"manifests": list(manifests) or [config_map(name)]}
    return {
        "apiVersion": WORKS.api_version,
        "kind": WORKS.kind,
        "metadata": meta,
        "spec": {"workload": workload, **spec},
    }


def kept(work: Object) -> Object:
    """The same work, which an agent must clean up."""
    return {**work, "metadata": {**work["metadata"], "finalizers": [WORK_FINALIZER]}}


def large(count: int, size: int) -> list[Object]:
    """So many ConfigMaps, each with so many bytes of data."""
    return [config_map(f"cm-{number}", data="x" * size) for number in range(count)]


def executed_by(namespace: str, name: str) -> Object:
    """The executor of a work: a ServiceAccount."""
    account = {"namespace": namespace, "name": name}
    return {"subject": {"type": "ServiceAccount", "serviceAccount": account}}
