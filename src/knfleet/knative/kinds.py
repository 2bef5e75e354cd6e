"""What is the same for KnativeServing and KnativeEventing, and the little in which they differ."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from knfleet.api.knative import Knative, KnativeEventing, KnativeServing
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.changes import Failure
from knfleet.apply.parts import part

Advice = Callable[[Knative, Sequence[Failure]], str]
"""What people can do about failures, where the kind knows more than the server's words."""


def no_advice(_cr: Knative, _failures: Sequence[Failure]) -> str:
    """Nothing beyond the server's words."""
    return ""


class Kind(Struct, frozen=True):
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
    """The finalizers of an object."""
    return manifest["metadata"].get("finalizers") or []


def uid_of(manifest: Object) -> str:
    """The uid of an object."""
    return manifest["metadata"].get("uid", "")


def profile_of(manifest: Object) -> Key | None:
    """The ClusterProfile that a custom resource names, read also when the rest is unreadable."""
    reference = part(manifest, "spec", "clusterProfileRef")
    if not reference:
        return None
    return Key(str(reference.get("namespace", "")), str(reference.get("name", "")))
