"""What a spoke is asked before it is used: its version, who it is, and what we may do there.

The uid of the namespace kube-system is as good as a cluster's name: it never changes, and no two
clusters have the same.
"""

import asyncio
from typing import Any

import msgspec
from msgspec import Struct

from knfleet.api.core import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CRDS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    VALIDATING_WEBHOOKS,
)
from knfleet.api.meta import Object, Resource
from knfleet.clusters.access_errors import REMOTE_CLIENT_CREATION_FAILED, AccessError
from knfleet.kube import supported_versions
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import BadResponse, Forbidden, KubeError, NotFound

KUBE_SYSTEM = "kube-system"
KUBE_SYSTEM_PATH = NAMESPACES.path("", KUBE_SYSTEM)
REVIEW_GROUP = "authorization.k8s.io"
RULES_REVIEWS = Resource(
    REVIEW_GROUP, "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", namespaced=False
)
ACCESS_REVIEWS = Resource(
    REVIEW_GROUP, "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)

Right = tuple[Resource, str]
"""A kind, and a verb."""

NEEDED: tuple[Right, ...] = (
    (CLUSTER_ROLES, "list"),
    *(
        (resource, verb)
        for resource in (CRDS, CLUSTER_ROLE_BINDINGS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
        for verb in ("create", "list", "patch")
    ),
)
"""What no install can do without. Namespaces and what is in them are not among it: rights on them
may be given one by one, and which it will be is not known here. Nor are ClusterRoles to be written:
an administrator may have made them."""


class PolicyRule(Struct, rename="camel"):
    """One thing that we may do."""

    verbs: list[str] = []
    api_groups: list[str] = []
    resources: list[str] = []

    def allows(self, right: Right) -> bool:
        """Whether the rule gives a right on objects of a kind; some of them are enough."""
        resource, verb = right
        wanted = (
            (verb, self.verbs),
            (resource.group, self.api_groups),
            (resource.plural, self.resources),
        )
        return all(one in given or "*" in given for one, given in wanted)


class ObjectIdentity(Struct):
    """The metadata by which an object is known."""

    uid: str = ""


class IdentifiedObject(Struct):
    """An object of which only that is read."""

    metadata: ObjectIdentity


read_identity = msgspec.json.Decoder(IdentifiedObject).decode


class PreflightResult(Struct, frozen=True):
    """What a spoke reported about itself."""

    version: str
    uid: str
    """Of its kube-system; empty when we may not read it."""
    missing: tuple[Right, ...] = ()


async def run_preflight(client: Client, deadline: float) -> PreflightResult:
    """Ask a spoke all that must be known; raises `KubeError` when it does not answer as it should.

    A wrong credential is refused by each of these requests, so an answer proves that it is right.
    """
    version = await server_version(client, deadline)
    uid, missing = await asyncio.gather(
        kube_system_uid(client, deadline), missing_rights(client, deadline), return_exceptions=True
    )
    if isinstance(uid, BaseException):
        raise uid
    if isinstance(missing, BaseException):
        raise missing
    return PreflightResult(version, uid, missing)


async def server_version(client: Client, deadline: float) -> str:
    """The version of a server; empty when it keeps it to itself."""
    try:
        return await client.version(deadline=deadline)
    except Forbidden:
        return ""


async def kube_system_uid(client: Client, deadline: float) -> str:
    """The uid by which a cluster is known; empty when we may not read it."""
    try:
        found = await client.get(NAMESPACES, KUBE_SYSTEM, deadline=deadline)
    except (Forbidden, NotFound):
        return ""
    return str(found["metadata"].get("uid", ""))


def uid_in(namespace: bytes) -> str:
    try:
        return read_identity(namespace).metadata.uid
    except msgspec.DecodeError as error:
        raise BadResponse(f"namespace {KUBE_SYSTEM}: not a Kubernetes answer: {error}") from error


async def missing_rights(client: Client, deadline: float) -> tuple[Right, ...]:
    """What of all that is needed we may not do.

    One question is asked, and a second one about each right that was not in the answer, which may
    be incomplete. A question that is not answered counts as a yes.
    """
    review = asking(RULES_REVIEWS, {"namespace": "default"})
    try:
        answer = await client.create(RULES_REVIEWS, review, deadline=deadline)
        rules = msgspec.convert(answer["status"].get("resourceRules") or [], list[PolicyRule])
    except (KubeError, KeyError, msgspec.ValidationError):
        return ()
    doubtful = [right for right in NEEDED if not any(rule.allows(right) for rule in rules)]
    denials = await asyncio.gather(*(is_denied(client, right, deadline) for right in doubtful))
    return tuple(right for right, denied in zip(doubtful, denials, strict=True) if denied)


async def is_denied(client: Client, right: Right, deadline: float) -> bool:
    """Whether the server says that we may not do something."""
    resource, verb = right
    wanted = {"group": resource.group, "resource": resource.plural, "verb": verb}
    review = asking(ACCESS_REVIEWS, {"resourceAttributes": wanted})
    try:
        answer = await client.create(ACCESS_REVIEWS, review, deadline=deadline)
    except KubeError:
        return False
    return answer.get("status", {}).get("allowed") is False


def asking(resource: Resource, spec: dict[str, Any]) -> Object:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}


def objection(seen: PreflightResult, where: str, minimum: str) -> AccessError | None:
    """Why a spoke that answers must not be installed on; None when it may."""
    version, oldest = supported_versions.numbers(seen.version), supported_versions.numbers(minimum)
    if version is not None and oldest is not None and version < oldest:
        return AccessError(
            REMOTE_CLIENT_CREATION_FAILED,
            f"{where}: Kubernetes {seen.version} is older than {minimum}, the oldest that Knative"
            " supports; upgrade the cluster, or set KUBERNETES_MIN_VERSION to try it all the same",
        )
    if seen.missing:
        return AccessError(
            REMOTE_CLIENT_CREATION_FAILED,
            f"{where}: the credentials lack rights that an install needs: {in_words(seen.missing)};"
            " grant them to the user on the spoke; they are checked again within 10 s",
        )
    return None


def in_words(rights: tuple[Right, ...]) -> str:
    """Rights for a message: the verbs of each kind."""
    verbs: dict[str, list[str]] = {}
    for resource, verb in rights:
        verbs.setdefault(str(resource), []).append(verb)
    return "; ".join(f"{', '.join(found)} {kind}" for kind, found in verbs.items())
