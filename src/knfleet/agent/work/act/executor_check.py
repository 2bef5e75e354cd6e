"""Whether the executor of a work may write an object: the cluster itself is asked.

The agent writes with its own rights; a work with an executor goes no further than that account's.
"""

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Callable

from msgspec import Struct

from knfleet.api.meta import Key, Object, Resource
from knfleet.api.work.manifestwork import SubjectServiceAccount, WorkExecutor
from knfleet.apply.manifest_fields import part
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, ApiError, Forbidden

REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "SubjectAccessReview",
    "subjectaccessreviews",
    namespaced=False,
)
VERBS = ("create", "update", "patch", "get")
RBAC_GROUP = "rbac.authorization.k8s.io"
RBAC = frozenset({"roles", "rolebindings", "clusterroles", "clusterrolebindings"})
"""Kinds that could grant more than the executor has."""
FRESH_SECONDS = 60.0
"""How long an allowed review counts."""
CACHED_SECONDS = 600.0
"""How long it counts with the feature ExecutorValidatingCaches."""
RETRY_SECONDS = 60.0
MOST_CACHED = 20_000


class NotAllowed(Exception):
    """The executor may not write the object."""


class Review(Struct, frozen=True):
    """One question to the cluster."""

    account: SubjectServiceAccount
    resource: Resource
    key: Key
    verb: str


class ExecutorCheck:
    """Asks the cluster what executors may do, and remembers what they may."""

    def __init__(
        self, client: Client, *, caches: bool = False, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.client = client
        self.seconds = CACHED_SECONDS if caches else FRESH_SECONDS
        self.now = now
        self.allowed: OrderedDict[Review, float] = OrderedDict()

    async def check(
        self, executor: WorkExecutor | None, resource: Resource, manifest: Object, *, owned: bool
    ) -> None:
        """Raise NotAllowed, or KubeError, unless the executor may write an object."""
        if executor is None:
            return
        account = executor.subject.service_account
        if account is None:
            raise NotAllowed("the executor names no ServiceAccount")
        meta = part(manifest, "metadata")
        namespace = str(meta.get("namespace") or "") if resource.namespaced else ""
        key = Key(namespace, str(meta.get("name")))
        verbs = (*VERBS, "delete") if owned else VERBS
        reviews = [Review(account, resource, key, verb) for verb in verbs]
        missing = [each for each in reviews if not self.is_fresh(each)]
        answers = await asyncio.gather(*(self.review(each) for each in missing))
        denied = [
            each.verb for each, is_allowed in zip(missing, answers, strict=True) if not is_allowed
        ]
        if denied:
            raise NotAllowed(
                f"{user_name(account)} is not allowed to apply the resource {resource} {key}:"
                f" {', '.join(denied)} is not granted; retried in {RETRY_SECONDS:g} s"
            )
        if (resource.group == RBAC_GROUP) and resource.plural in RBAC:
            await self.check_escalation(account, resource, key, manifest)

    def is_fresh(self, review: Review) -> bool:
        """Whether the cluster allowed it a while ago."""
        return self.allowed.get(review, 0.0) > self.now()

    async def review(self, review: Review) -> bool:
        """Ask the cluster."""
        account = review.account
        attributes = {
            "group": review.resource.group,
            "version": review.resource.version,
            "resource": review.resource.plural,
            "namespace": review.key.namespace,
            "name": review.key.name,
            "verb": review.verb,
        }
        body: Object = {
            "apiVersion": REVIEWS.api_version,
            "kind": REVIEWS.kind,
            "spec": {
                "user": user_name(account),
                "groups": [
                    "system:serviceaccounts",
                    "system:authenticated",
                    f"system:serviceaccounts:{account.namespace}",
                ],
                "resourceAttributes": attributes,
            },
        }
        answer = await self.client.create(REVIEWS, body)
        if part(answer, "status").get("allowed") is not True:
            self.allowed.pop(review, None)
            return False
        self.allowed[review] = self.now() + self.seconds
        self.allowed.move_to_end(review)
        if len(self.allowed) > MOST_CACHED:
            self.allowed.popitem(last=False)
        return True

    async def check_escalation(
        self, account: SubjectServiceAccount, resource: Resource, key: Key, manifest: Object
    ) -> None:
        """Try to create the object in the executor's name; what exists is checked the same way."""
        path = f"{resource.path(key.namespace)}?dryRun=All"
        headers = {
            "Impersonate-User": user_name(account),
            "Content-Type": "application/json",
            "Accept": "application/json",
        }
        try:
            await self.client.raw("POST", path, body=json.dumps(manifest).encode(), headers=headers)
        except AlreadyExists:
            return
        except Forbidden as error:
            raise NotAllowed(
                f"{user_name(account)} is not allowed to apply the resource {resource} {key}:"
                f" permission escalation: {error.message}"
            ) from error
        except ApiError as error:
            raise NotAllowed(f"dry run as {user_name(account)}: {error.message}") from error


def user_name(account: SubjectServiceAccount) -> str:
    """The user that a ServiceAccount is."""
    return f"system:serviceaccount:{account.namespace}:{account.name}"
