"""Which custom resource of a cluster is the child of a fleet, and how a child is written. Pure."""

import hashlib
from collections.abc import Iterable, Set
from datetime import datetime

from msgspec import Struct

from knfleet.api.fleet.fleet_names import (
    CLUSTER_LABEL,
    CONTENT_HASH,
    FLEET_LABEL,
    REVISION,
    STARTED,
    SUSPENDED,
)
from knfleet.api.fleet.knativefleet import KnativeFleet
from knfleet.api.knative.conditions import timestamp
from knfleet.api.knative.resources import Component
from knfleet.api.meta import Key, Object
from knfleet.apply.manifest_fields import items, part
from knfleet.hub.knativefleet.plan.fleet_rollout import ChildWrite
from knfleet.hub.knativefleet.template.fleet_template import KINDS
from knfleet.hub.knativefleet.template.revisions import owner_reference
from knfleet.operator.kinds import PAUSED, finalizers_of

LABEL_LENGTH = 63
NAME_LENGTH = 200
ANNOTATIONS = (REVISION, CONTENT_HASH, STARTED, SUSPENDED)


class ChosenChild(Struct, frozen=True):
    """The custom resource that is the child of a fleet for one cluster and component."""

    child: Object | None = None
    spare: tuple[Object, ...] = ()
    """Further ones that the fleet made; the operator refuses to install them."""
    conflict: str = ""


def chosen_child(
    found: Iterable[Object], fleet: KnativeFleet, fleets: Set[str], component: Component
) -> ChosenChild:
    """Of the custom resources for a cluster the one that installs; it becomes the child.

    One that belongs to another fleet, or to another controller, is left alone.
    """
    resource = KINDS[component].resource
    finalizer = f"{resource.plural}.{resource.group}"
    ranked = sorted(
        found,
        key=lambda each: (
            finalizer not in finalizers_of(each),
            each["metadata"].get("creationTimestamp", ""),
            Key.of(each),
        ),
    )
    if not ranked:
        return ChosenChild()
    first, others = ranked[0], ranked[1:]
    name = fleet.metadata.name
    owner = part(first, "metadata", "labels").get(FLEET_LABEL, "")
    title = f"{resource.kind} {Key.of(first)}"
    if owner != name and owner in fleets:
        return ChosenChild(conflict=f"{title} belongs to the fleet {owner}")
    for each in items(first, "metadata", "ownerReferences"):
        if each.get("controller") and each.get("uid") != fleet.metadata.uid and owner != name:
            return ChosenChild(conflict=f"{title} belongs to {each['kind']} {each['name']}")
    return ChosenChild(
        first,
        tuple(each for each in others if part(each, "metadata", "labels").get(FLEET_LABEL) == name),
    )


def child_name(fleet: str, cluster: str) -> str:
    """The name of a child that the fleet makes; long ones end in a hash."""
    name = f"{fleet}-{cluster}"
    if len(name) <= NAME_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    return f"{name[: NAME_LENGTH - 11].rstrip('.-')}-{digest}"


def child_manifest(fleet: KnativeFleet, write: ChildWrite, now: datetime) -> Object:
    """A child as it is applied."""
    resource = KINDS[write.component].resource
    template = fleet.spec.template(write.component)
    if write.child is not None:
        key = write.child.key
    else:
        namespace = "" if template is None else template.namespace
        key = Key(
            namespace or f"knative-{write.component}", child_name(fleet.key.name, write.cluster)
        )
    labels = {FLEET_LABEL: fleet.metadata.name}
    if len(write.cluster) <= LABEL_LENGTH:
        labels[CLUSTER_LABEL] = write.cluster
    annotations = {
        REVISION: write.revision,
        CONTENT_HASH: write.rendered.hash,
        STARTED: timestamp(now),
    }
    if write.suspended:
        annotations |= {SUSPENDED: write.suspended, PAUSED: "true"}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(fleet)],
        },
        "spec": write.rendered.spec,
    }


def orphan_patch(manifest: Object, fleet: KnativeFleet) -> Object:
    """What makes a child an ordinary custom resource again, in the state that is known."""
    meta = manifest["metadata"]
    annotations: Object = dict.fromkeys(ANNOTATIONS)
    if part(meta, "annotations").get(SUSPENDED):
        annotations[PAUSED] = None
    return {
        "metadata": {
            "resourceVersion": meta["resourceVersion"],
            "labels": {FLEET_LABEL: None, CLUSTER_LABEL: None},
            "annotations": annotations,
            "ownerReferences": [
                each
                for each in items(meta, "ownerReferences")
                if each.get("uid") != fleet.metadata.uid
            ],
        }
    }
