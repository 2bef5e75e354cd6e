"""The cluster that a verification runs on, and the namespace that it has there.

Everything carries the label of its run, and whatever earlier runs have left is found by the label.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

from msgspec import Struct

from knfleet.api.core import NAMESPACES
from knfleet.api.knative.resources import Component
from knfleet.api.knative.verification import VERIFY_LABEL
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.act.missing_rights import ACCESS_REVIEWS
from knfleet.apply.rights import Right
from knfleet.kube.client.verbs import Client, ListSelection
from knfleet.kube.errors import (
    AlreadyExists,
    CredentialError,
    Expired,
    Forbidden,
    KubeError,
    NetworkError,
    NotFound,
    Throttled,
    Unauthorized,
)
from knfleet.operator.verification.verify_objects import (
    is_temporary,
    namespace_manifest,
    printable,
    readiness,
    verify_namespace,
)
from knfleet.operator.verification.verify_rights import OBJECTS

NO_ANSWER = (NetworkError, CredentialError, Unauthorized, Throttled)
"""Errors that say nothing about Knative."""
NO_ACCOUNT = "error looking up service account"
"""What the API server says of a Pod whose ServiceAccount is not there."""
Readiness = Callable[[Object], tuple[bool, str]]


class VerifyTiming(Struct, frozen=True):
    """How long parts of a verification may take, beside those that the request limits."""

    retry_seconds: float = 1.0
    """Between two requests that are not answered as they should be."""
    answer_seconds: float = 10.0
    """For one request."""
    gone_seconds: float = 60.0
    """For what an earlier run has left to be gone, and for the account of a new namespace."""
    clean_seconds: float = 8.0
    """For the removal; a process that ends has little time."""


class StepFailed(Exception):
    """A step of a verification did not succeed; names the step and the object."""


class MissingVerifyRights(Exception):
    """The account on the target may not do what a verification takes."""

    def __init__(self, rights: Iterable[Right]) -> None:
        self.rights = sorted(rights)
        super().__init__(", ".join(map(str, self.rights)))


class VerifyTarget:
    """A target, and what verifications of one component have there."""

    def __init__(self, client: Client, component: Component, timing: VerifyTiming) -> None:
        self.client = client
        self.component: Component = component
        self.timing = timing
        self.space = verify_namespace(component)

    async def require(self, rights: Iterable[Right]) -> None:
        """Raise `MissingVerifyRights` unless the account has all rights."""
        wanted = list(rights)
        answers = await asyncio.gather(*map(self.has, wanted))
        if missing := [right for right, held in zip(wanted, answers, strict=True) if not held]:
            raise MissingVerifyRights(missing)

    async def has(self, right: Right) -> bool:
        """Whether the server says that the account has a right; no answer counts as a yes."""
        resource, _, subresource = right.resource.partition("/")
        review: Object = {
            "apiVersion": ACCESS_REVIEWS.api_version,
            "kind": ACCESS_REVIEWS.kind,
            "spec": {
                "resourceAttributes": {
                    "group": right.group,
                    "resource": resource,
                    "subresource": subresource,
                    "verb": right.verb,
                    "namespace": right.namespace,
                    "name": right.name,
                }
            },
        }
        try:
            answer = await self.client.create(ACCESS_REVIEWS, review)
        except NO_ANSWER:
            raise
        except KubeError:
            return True
        return answer.get("status", {}).get("allowed") is not False

    async def make_namespace(self) -> None:
        """Have the namespace, after the end of one that is being removed."""
        try:
            async with asyncio.timeout(self.timing.gone_seconds):
                while (found := await self.namespace()) is not None:
                    if "deletionTimestamp" not in found["metadata"]:
                        return
                    await asyncio.sleep(self.timing.retry_seconds)
        except TimeoutError:
            raise StepFailed(
                f"it is being removed for more than {self.timing.gone_seconds:g} s; see its"
                " conditions"
            ) from None
        await self.require([Right(NAMESPACES.group, NAMESPACES.plural, "create")])
        with suppress(AlreadyExists):
            await self.client.create(NAMESPACES, namespace_manifest(self.component))

    async def namespace(self) -> Object | None:
        """The namespace, if it is there."""
        try:
            return await self.client.get(NAMESPACES, self.space)
        except NotFound:
            return None

    async def create(self, resource: Resource, manifest: Object) -> Object:
        """Make an object, after the end of one of the same name that is being removed.

        A Pod is refused until the namespace has its account, which follows a moment later.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + self.timing.gone_seconds
        while clock() < until:
            try:
                return await self.client.create(resource, manifest)
            except AlreadyExists:
                pass
            except Forbidden as error:
                if NO_ACCOUNT not in error.message:
                    raise
            await asyncio.sleep(self.timing.retry_seconds)
        return await self.client.create(resource, manifest)

    async def wait_ready(
        self, resource: Resource, name: str, seconds: float, judge: Readiness = readiness
    ) -> Object:
        """An object, once it is Ready; raises `StepFailed` with what it says instead."""
        selection = ListSelection(resource, self.space, fields=f"metadata.name={name}")
        said = "it was not read"
        try:
            async with asyncio.timeout(seconds):
                while True:
                    # A watch may end, or be cut off, at any time; the next one tells all again.
                    with suppress(Expired, NetworkError):
                        async with self.client.watching(selection) as events:
                            async for event in events:
                                if event.type not in ("ADDED", "MODIFIED"):
                                    continue
                                is_ready, said = judge(event.object)
                                if is_ready:
                                    return event.object
                    await asyncio.sleep(self.timing.retry_seconds)
        except TimeoutError:
            await self.probe()
            raise StepFailed(f"not Ready within {seconds:g} s: {printable(said)}") from None

    async def probe(self) -> None:
        """Raise an error when it is the API server that does not answer."""
        await self.client.version(deadline=self.timing.answer_seconds)

    async def remove_objects(self) -> None:
        """Delete all objects of verifications, of this run and of others that were cut off."""
        for resource in OBJECTS[self.component]:
            await self.remove(resource)

    async def remove(self, resource: Resource) -> None:
        """Delete all objects of one kind."""
        try:
            found = await self.client.list(
                resource, self.space, labels=VERIFY_LABEL, metadata_only=True
            )
        except NotFound:
            return  # Knative's CRDs are gone, and with them all objects.
        for each in found.items:
            with suppress(NotFound):
                await self.client.delete(
                    resource,
                    Key.of(each),
                    uid=each["metadata"]["uid"],
                    propagation="Background",
                )

    async def clean_up(self) -> str:
        """Remove everything, and say what could not be."""
        try:
            async with asyncio.timeout(self.timing.clean_seconds):
                await self.remove_objects()
                found = await self.namespace()
                if found is not None and is_temporary(found):
                    await self.require(
                        [Right(NAMESPACES.group, NAMESPACES.plural, "delete", "", self.space)]
                    )
                    with suppress(NotFound):
                        uid = found["metadata"]["uid"]
                        await self.client.delete(NAMESPACES, Key("", self.space), uid=uid)
        except (KubeError, MissingVerifyRights, TimeoutError) as error:
            return (
                f"namespace {self.space} could not be cleaned up ({str(error) or 'no answer'});"
                " the next verification does it"
            )
        return ""
