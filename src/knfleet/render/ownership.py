"""To whom the objects belong."""

from msgspec import Struct

from knfleet.api.knative.resources import Component
from knfleet.api.meta import Object
from knfleet.render.drafts import Draft

LABEL = "app.kubernetes.io/name"
COMPONENT_LABELS: dict[Component, str] = {
    "serving": "knative-serving",
    "eventing": "knative-eventing",
}


class Owner(Struct, frozen=True):
    """The object with which everything in the namespace goes: the custom resource or the anchor."""

    api_version: str
    kind: str
    name: str
    uid: str

    def reference(self) -> Object:
        """The owner reference that objects carry."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def own(draft: Draft, owner: Owner) -> None:
    """Make the owner the only one of an object in a namespace."""
    if draft.namespace:
        draft.meta["ownerReferences"] = [owner.reference()]


def label(draft: Draft, component: Component) -> None:
    draft.section("metadata", "labels")[LABEL] = COMPONENT_LABELS[component]
