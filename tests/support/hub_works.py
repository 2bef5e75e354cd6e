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


MOMENT = "2026-11-16T03:00:00Z"


def said(type_: str, status: str, reason: str, message: str = "") -> Object:
    """A condition, as agents report it."""
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": MOMENT,
    }


def reported(work: Object, failing: dict[str, str] | None = None, **values: int) -> Object:
    """The status of a work: which of its objects failed and why, and values of all others."""
    problems = failing or {}
    manifests: list[Object] = []
    for ordinal, each in enumerate(work["spec"]["workload"]["manifests"]):
        meta: Object = {**each["metadata"], "ordinal": ordinal, "kind": each["kind"]}
        problem = problems.get(meta["name"])
        applied = (
            said("Applied", "False", "AppliedManifestFailed", problem)
            if problem
            else said("Applied", "True", "AppliedManifestComplete")
        )
        entry: Object = {"resourceMeta": meta, "conditions": [applied]}
        if not problem:
            entry["conditions"].append(said("Available", "True", "ResourceAvailable"))
            found = [
                {"name": name, "fieldValue": {"type": "Integer", "integer": value}}
                for name, value in values.items()
            ]
            entry["statusFeedback"] = {"values": found}
        manifests.append(entry)
    status = "False" if problems else "True"
    word = "Failed" if problems else "Complete"
    count = f"{len(problems)} of {len(manifests)} manifests failed" if problems else ""
    conditions = [said("Applied", status, f"AppliedManifestWork{word}", count)]
    if not problems:
        conditions.append(said("Available", "True", "ResourcesAvailable"))
    return {"conditions": conditions, "resourceStatus": {"manifests": manifests}}
