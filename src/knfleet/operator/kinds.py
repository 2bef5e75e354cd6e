"""What is the same for KnativeServing and KnativeEventing, and the little in which they differ."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from knfleet.api.knative.resources import Knative, KnativeEventing, KnativeServing
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.change_set import ObjectFailure
from knfleet.apply.manifest_fields import part

TARGET_UID = "knfleet.dev/target-uid"
"""On a custom resource: the uid of the kube-system namespace where it is installed."""
TRIGGER = "reconcile.knative.dev/trigger"
"""On a custom resource: any new value has everything compared with the target itself."""
PAUSED = "knfleet.dev/paused"
"""On a custom resource: `"true"` has the operator leave its target alone."""

BY_PLACE = "place"
"""The index of custom resources by where they install."""

Advice = Callable[[Knative, Sequence[ObjectFailure]], str]
"""What people can do about failures, where the kind knows more than the server's words."""


def no_advice(_cr: Knative, _failures: Sequence[ObjectFailure]) -> str:
    """Nothing beyond the server's words."""
    return ""


class KnativeKind(Struct, frozen=True):
    """One of the two kinds of custom resource."""

    type: type[KnativeServing] | type[KnativeEventing]
    title: str
    """The component in words."""
    advice: Advice = no_advice

    @property
    def resource(self) -> Resource:
        """How its objects are addressed."""
        return self.type.resource

    @property
    def finalizer(self) -> str:
        """The finalizer that the Knative Operator uses too."""
        return f"{self.resource.plural}.{self.resource.group}"

    @property
    def component(self) -> str:
        """Who Events say that they come from."""
        return f"{self.resource.kind.lower()}-controller"


def is_deleting(manifest: Object) -> bool:
    """Whether an object waits only for its finalizers."""
    return bool(manifest["metadata"].get("deletionTimestamp"))


def finalizers_of(manifest: Object) -> list[str]:
    return manifest["metadata"].get("finalizers") or []


def uid_of(manifest: Object) -> str:
    return manifest["metadata"].get("uid", "")


def annotations_of(manifest: Object) -> dict[str, str]:
    return part(manifest, "metadata", "annotations")


def is_paused(manifest: Object) -> bool:
    """Whether a custom resource is paused."""
    return annotations_of(manifest).get(PAUSED) == "true"


def was_installed(manifest: Object) -> bool:
    """Whether something may be on the target because of a custom resource."""
    status = part(manifest, "status")
    noted = TARGET_UID in annotations_of(manifest)
    return noted or bool(status.get("manifests") or status.get("version"))


def profile_of(manifest: Object) -> Key | None:
    """The ClusterProfile that a custom resource names, read also when the rest is unreadable."""
    reference = part(manifest, "spec", "clusterProfileRef")
    if not reference:
        return None
    return Key(str(reference.get("namespace", "")), str(reference.get("name", "")))


def place_of(manifest: Object) -> str:
    """Where a custom resource installs, in words that tell two places apart; empty on the hub."""
    return str(profile_of(manifest) or "")


def place_index(manifest: Object) -> list[str]:
    """The place of a custom resource, for finding all that are installed there."""
    return [place_of(manifest)]
