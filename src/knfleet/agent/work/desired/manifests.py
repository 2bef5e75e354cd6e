"""The manifests of a work: which object each is, whether it can be applied, and in which order."""

import base64
from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct

from knfleet.api.meta import Object, Resource, api_group
from knfleet.api.work.appliedmanifestwork import APPLIED_WORKS, AppliedResource
from knfleet.apply.manifest_fields import part

LAST = 7
"""Rank of kinds that are not listed: custom resources."""
RANKS: dict[str, int] = {
    kind: rank
    for rank, kinds in enumerate(
        (
            (
                "PriorityClass Namespace CustomResourceDefinition StorageClass PersistentVolume"
                " PodSecurityPolicy"
            ),
            "ClusterRole ClusterRoleBinding Role RoleBinding",
            "NetworkPolicy ResourceQuota LimitRange PodDisruptionBudget ServiceAccount",
            "Secret ConfigMap PersistentVolumeClaim",
            "Service",
            (
                "DaemonSet Pod ReplicationController ReplicaSet Deployment HorizontalPodAutoscaler"
                " StatefulSet Job CronJob"
            ),
            (
                "APIService MutatingWebhookConfiguration ValidatingWebhookConfiguration"
                " ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding"
            ),
        )
    )
    for kind in kinds.split()
}
SERVER_METADATA = (
    *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation"),
    *("managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid"),
)
"""Metadata that only the cluster itself can give an object."""


class ObjectRef(Struct, frozen=True, order=True):
    """One object of the cluster, whatever version it is read in."""

    group: str
    resource: str
    namespace: str
    name: str

    @classmethod
    def of(cls, applied: AppliedResource) -> "ObjectRef":
        """An object that an AppliedManifestWork lists."""
        return cls(applied.group, applied.resource, applied.namespace, applied.name)

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{kind} {self.namespace}/{self.name}" if self.namespace else f"{kind} {self.name}"


class WorkManifest(Struct, frozen=True):
    """One manifest of a work."""

    ordinal: int
    body: Object
    """Without what only the cluster can give it."""
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    problem: str = ""
    """Why it can never be applied."""

    @property
    def group(self) -> str:
        """API group."""
        return api_group(self.api_version)[0]

    @property
    def version(self) -> str:
        """API version."""
        return api_group(self.api_version)[1]

    @property
    def rank(self) -> int:
        """When it is applied: lower ranks first."""
        return RANKS.get(self.kind, LAST)

    def ref(self, resource: Resource) -> ObjectRef:
        """The object, when it is known how its kind is addressed."""
        namespace = self.namespace if resource.namespaced else ""
        return ObjectRef(resource.group, resource.plural, namespace, self.name)


def read_manifests(manifests: Sequence[Any]) -> list[WorkManifest]:
    """The manifests of a work in their order."""
    return [read_manifest(ordinal, each) for ordinal, each in enumerate(manifests)]


def read_manifest(ordinal: int, manifest: Any) -> WorkManifest:
    """One manifest; what is wrong with it is in its problem."""
    if not isinstance(manifest, dict):
        return WorkManifest(ordinal, {}, problem="the manifest is not an object")
    body = cleaned(cast("Object", manifest))
    meta = part(body, "metadata")
    fields = [body.get("apiVersion"), body.get("kind"), meta.get("namespace"), meta.get("name")]
    api_version, kind, namespace, name = (each if isinstance(each, str) else "" for each in fields)
    return WorkManifest(
        ordinal,
        body,
        api_version,
        kind,
        namespace,
        name,
        problem_of(api_version, kind, name, has_prefix="generateName" in meta),
    )


def problem_of(api_version: str, kind: str, name: str, *, has_prefix: bool) -> str:
    """Why a manifest cannot be applied."""
    if not api_version or not kind:
        missing = "apiVersion" if not api_version else "kind"
        return f"the manifest has no {missing}"
    if not name:
        hint = "; generateName cannot be used" if has_prefix else ""
        return f"the {kind} has no metadata.name{hint}"
    if (api_group(api_version)[0], kind) == (APPLIED_WORKS.group, APPLIED_WORKS.kind):
        return "a work cannot contain an AppliedManifestWork, which would own itself"
    return ""


def cleaned(manifest: Object) -> Object:
    """A manifest without what only the cluster can say, and a Secret as it is stored."""
    meta = {
        name: value
        for name, value in part(manifest, "metadata").items()
        if name not in SERVER_METADATA
    }
    body = {**manifest, "metadata": meta}
    if (body.get("apiVersion"), body.get("kind")) == ("v1", "Secret"):
        return stored_secret(body)
    return body


def stored_secret(secret: Object) -> Object:
    """A Secret with its plain texts encoded, and its type."""
    texts = part(secret, "stringData")
    body = {"type": "Opaque", **secret}
    body.pop("stringData", None)
    if texts:
        encoded = {
            name: base64.b64encode(str(text).encode()).decode() for name, text in texts.items()
        }
        body["data"] = {**part(secret, "data"), **encoded}
    return body


def duplicates(refs: Sequence[tuple[int, ObjectRef]]) -> dict[int, int]:
    """Ordinals of manifests whose object is that of an earlier one, and the earlier ordinal."""
    first: dict[ObjectRef, int] = {}
    found: dict[int, int] = {}
    for ordinal, ref in refs:
        if first.setdefault(ref, ordinal) != ordinal:
            found[ordinal] = first[ref]
    return found


def defined_kinds(manifests: Sequence[WorkManifest]) -> frozenset[tuple[str, str]]:
    """Group and kind of everything that CRDs among the manifests define."""
    found: set[tuple[str, str]] = set()
    for each in manifests:
        if each.kind == "CustomResourceDefinition":
            group = part(each.body, "spec").get("group")
            kind = part(each.body, "spec", "names").get("kind")
            if isinstance(group, str) and isinstance(kind, str):
                found.add((group, kind))
    return frozenset(found)
