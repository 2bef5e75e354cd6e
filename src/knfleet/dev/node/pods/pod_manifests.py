"""Small questions that the node asks of manifests all the time."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from knfleet.api.meta import Object

TERMINAL = frozenset({"Succeeded", "Failed"})


def uid_of(manifest: Object) -> str:
    """The identity that a deleted and re-created object does not share."""
    return manifest["metadata"].get("uid", "")


def annotations_of(manifest: Object | None) -> Mapping[str, str]:
    """The annotations, none for no object."""
    return (manifest or {}).get("metadata", {}).get("annotations") or {}


def labels_of(manifest: Object) -> Mapping[str, str]:
    return manifest["metadata"].get("labels") or {}


def status_of(pod: Object) -> Object:
    """The status, empty when there is none."""
    return pod.get("status") or {}


def phase_of(pod: Object) -> str:
    return status_of(pod).get("phase", "Pending")


def is_terminating(manifest: Object) -> bool:
    """Whether the object is being deleted."""
    return "deletionTimestamp" in manifest["metadata"]


def is_ready(pod: Object) -> bool:
    return condition_is_true(status_of(pod), "Ready")


def condition_is_true(status: Object, kind: str) -> bool:
    """Whether the status has this condition, and it is True."""
    found: Iterable[Object] = status.get("conditions") or ()
    return any(each["type"] == kind and each["status"] == "True" for each in found)


def controller_of(manifest: Object) -> Object | None:
    """The owner reference of the controller, if the object has one."""
    owners: Iterable[Object] = manifest["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def belongs_to_job(pod: Object) -> bool:
    """Whether the pod is there to end."""
    owner = controller_of(pod)
    return owner is not None and owner["kind"] == "Job" and restart_policy(pod) != "Always"


def restart_policy(pod: Object) -> str:
    """Always, OnFailure or Never."""
    return pod["spec"].get("restartPolicy", "Always")


def containers_of(pod: Object) -> list[Object]:
    return pod["spec"].get("containers") or []


def init_containers_of(pod: Object) -> list[Object]:
    """The containers that run before the main ones, sidecars among them."""
    return pod["spec"].get("initContainers") or []


def is_sidecar(init_container: Object) -> bool:
    """Whether an init container keeps running beside the main ones."""
    return init_container.get("restartPolicy") == "Always"


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a Service's selector means an object with these labels; an empty one means none."""
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def timestamp(moment: datetime) -> str:
    """A time as Kubernetes writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> datetime:
    """A time as Kubernetes writes it, read."""
    return datetime.fromisoformat(text)


def table(value: Any) -> Object:
    """A dict that may be missing."""
    return value or {}


def rows(value: Any) -> Iterator[Object]:
    """The dicts of a list that may be missing."""
    return iter(value or ())
