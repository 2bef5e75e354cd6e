"""The anchor on a spoke: the ConfigMap that stands there for a custom resource of the hub.

It owns what is installed in its namespace, and is the parent of the set. The Namespace owns the
same objects beside it, so that nothing is garbage collected when a client deletes the anchor: it is
made anew, and takes its objects back (docs/decisions/0007). The uid of the hub on it keeps a second
hub with a custom resource of the same name from taking or deleting what is not its own.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

from knfleet.api.core import CONFIG_MAPS, NAMESPACES
from knfleet.api.meta import Key, Object
from knfleet.apply.manifest_fields import items, part
from knfleet.apply.plan.field_sets import set_of, without
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, Conflict, NotFound

LONGEST_NAME = 253
LONGEST_LABEL = 63
ATTEMPTS = 5
GOING_SECONDS = 10.0
"""How long an anchor that is being deleted may take to be gone."""
LOOK_SECONDS = 0.2

MANAGED_BY = "app.kubernetes.io/managed-by"
CR_NAME = "operator.knative.dev/cr-name"
ANCHOR = "operator.knative.dev/anchor"
PROTECTED = "operator.knative.dev/protected"
DESCRIPTION = "operator.knative.dev/description"
HUB_UID = "knfleet.dev/hub-uid"
"""On an anchor: the uid of the hub's kube-system namespace."""


class AnchorError(Exception):
    """The anchor cannot be had; the message says why, and what to do."""


class OtherHub(AnchorError):
    """The anchor is another hub's."""


class AnchorSpec(Struct, frozen=True):
    """What must be there before anything is installed for a custom resource."""

    kind: str
    owner: Key
    """The custom resource on the hub."""
    hub_uid: str
    labels: Mapping[str, str] = {}
    """Labels of the Namespace, when we are the one to make it."""
    annotations: Mapping[str, str] = {}

    @property
    def key(self) -> Key:
        """Where the anchor is; raises `AnchorError` when no ConfigMap can have that name."""
        name = f"{self.kind.lower()}-{self.owner.name}-root-owner"
        if len(name) > LONGEST_NAME:
            raise AnchorError(
                f'anchor ConfigMap name "{name}" exceeds maximum length of {LONGEST_NAME}'
                " characters; shorten the CR name"
            )
        return Key(self.owner.namespace, name)


class AnchorState(Struct, frozen=True):
    """The anchor, and the Namespace that it is in, as they are on the spoke."""

    anchor: Object
    namespace: Object
    is_new: bool = False
    """Whether the Namespace was made just now, so that nothing can be in it."""


def anchor_of(root: AnchorSpec) -> Object:
    """The anchor as it must be."""
    key = root.key
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {MANAGED_BY: "knative-operator", CR_NAME: label_value(root.owner.name)},
            "annotations": {
                ANCHOR: "true",
                PROTECTED: "true",
                DESCRIPTION: (
                    f"Root owner of what the hub installs here for {root.kind} {root.owner}."
                    f" Do not delete it: delete the {root.kind} on the hub to uninstall."
                ),
                HUB_UID: root.hub_uid,
            },
        },
    }


def namespace_of(root: AnchorSpec) -> Object:
    """The Namespace as it is made when there is none."""
    return {
        "apiVersion": NAMESPACES.api_version,
        "kind": NAMESPACES.kind,
        "metadata": {
            "name": root.owner.namespace,
            "labels": {**root.labels, MANAGED_BY: "knative-operator"},
            "annotations": dict(root.annotations),
        },
    }


def disclaim_patch(root: AnchorSpec, namespace: Object, manager: str) -> list[Object]:
    """The JSON patch after which labels and annotations of users belong to who applies them.

    Who created them owns them, too, and so would keep them for ever; empty when we do not.
    """
    meta = namespace["metadata"]
    managed = items(meta, "managedFields")
    left = [disclaimed(root, entry) if is_creator(entry, manager) else entry for entry in managed]
    if left == managed:
        return []
    return [
        {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
        # The same version again: the server refuses with a conflict when it is not the latest.
        {"op": "replace", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
        {"op": "replace", "path": "/metadata/managedFields", "value": left},
    ]


def is_creator(entry: Object, manager: str) -> bool:
    """Whether an entry of managedFields says what a field manager wrote without applying it."""
    is_whole = not entry.get("subresource")
    return is_whole and (entry.get("manager"), entry.get("operation")) == (manager, "Update")


def disclaimed(root: AnchorSpec, entry: Object) -> Object:
    """An entry of managedFields without what the custom resource says of the Namespace."""
    fields = set_of(entry)
    for section, names in (("f:labels", root.labels), ("f:annotations", root.annotations)):
        for name in names:
            if name != MANAGED_BY:
                fields = without(fields, ("f:metadata", section, f"f:{name}"))
    return {**entry, "fieldsV1": fields}


def label_value(name: str) -> str:
    """A name as the value of a label, which must be shorter than names may be."""
    if len(name) <= LONGEST_LABEL:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: LONGEST_LABEL - 17]}-{digest}"


def is_intact(root: AnchorSpec, manifest: Object) -> bool:
    """Whether an anchor says everything that it must, and is there to stay."""
    wanted, found = anchor_of(root)["metadata"], manifest["metadata"]
    return "deletionTimestamp" not in found and all(
        wanted[section].items() <= part(found, section).items()
        for section in ("labels", "annotations")
    )


def check_hub(root: AnchorSpec, manifest: Object) -> None:
    """Raise `OtherHub` when an anchor is another hub's."""
    found = part(manifest, "metadata", "annotations").get(HUB_UID, "")
    if found and found != root.hub_uid:
        raise OtherHub(
            f"ConfigMap {root.key} on this cluster belongs to another hub (kube-system uid {found};"
            f" ours is {root.hub_uid}), which installs {root.kind} {root.owner} here, too; delete"
            f" the {root.kind} on one of the hubs, or, if that hub is gone, remove the annotation"
            f" {HUB_UID} from the ConfigMap"
        )


class Anchors:
    """Finds, makes and removes anchors on one spoke."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def ensure(self, root: AnchorSpec) -> AnchorState:
        """Namespace and anchor as they must be; raises `AnchorError`."""
        key = root.key
        namespace, is_new = await self.namespace(root)
        for _ in range(ATTEMPTS):
            anchor = await self.present(root, is_new=is_new)
            if anchor is not None:
                return AnchorState(anchor, namespace, is_new)
            is_new = False
        raise AnchorError(f"ConfigMap {key} is changed by other clients all the time; retrying")

    async def namespace(self, root: AnchorSpec) -> tuple[Object, bool]:
        """The Namespace, and whether it is new; one that is there already is left as it is."""
        name = root.owner.namespace
        is_new = False
        try:
            found = await self.client.get(NAMESPACES, name)
        except NotFound:
            try:
                found = await self.client.create(NAMESPACES, namespace_of(root))
                is_new = True
            except AlreadyExists:
                found = await self.client.get(NAMESPACES, name)
        return await self.disclaim(root, found), is_new

    async def disclaim(self, root: AnchorSpec, namespace: Object) -> Object:
        """The Namespace, whose labels and annotations of users belong to who applies them."""
        name = root.owner.namespace
        for _ in range(ATTEMPTS):
            patch = disclaim_patch(root, namespace, self.client.options.manager)
            if not patch:
                return namespace
            with suppress(Conflict):
                return await self.client.patch(NAMESPACES, Key("", name), patch)
            namespace = await self.client.get(NAMESPACES, name)
        raise AnchorError(f"Namespace {name} is changed by other clients all the time; retrying")

    async def present(self, root: AnchorSpec, *, is_new: bool = False) -> Object | None:
        """The anchor as it must be; None when others wrote it just then."""
        found = None if is_new else await self.find(root)
        if found is None:
            try:
                return await self.client.create(CONFIG_MAPS, anchor_of(root))
            except AlreadyExists:
                return None
        if is_intact(root, found):
            return found
        if "deletionTimestamp" in found["metadata"]:
            await self.gone(root, found)
            return None
        wanted = anchor_of(root)
        # Only as it was seen: another hub may be about to make it its own.
        wanted["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        try:
            return await self.client.apply(CONFIG_MAPS, wanted)
        except (Conflict, NotFound):
            return None

    async def find(self, root: AnchorSpec) -> Object | None:
        """The anchor that is there; raises `OtherHub` when it is not for us to touch."""
        key = root.key
        try:
            found = await self.client.get(CONFIG_MAPS, key.name, key.namespace)
        except NotFound:
            return None
        check_hub(root, found)
        return found

    async def gone(self, root: AnchorSpec, anchor: Object) -> None:
        """Wait until an anchor that is being deleted is gone."""
        try:
            async with asyncio.timeout(GOING_SECONDS):
                while (found := await self.find(root)) is not None:
                    if found["metadata"]["uid"] != anchor["metadata"]["uid"]:
                        return
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            held = ", ".join(anchor["metadata"].get("finalizers") or ["nothing that is known"])
            raise AnchorError(
                f"ConfigMap {root.key} is being deleted, and held by the finalizers {held}"
            ) from None

    async def remove(self, key: Key, anchor: Object) -> None:
        """Delete an anchor, this very one, once nothing is left that it owns."""
        try:
            await self.client.delete(
                CONFIG_MAPS, key, uid=anchor["metadata"]["uid"], propagation="Background"
            )
        except (NotFound, Conflict):
            return
