"""Runs one verification on a target, and removes what it made, whatever happens.

    rights → are pods real → leftovers → namespace → object → Ready → request → clean up

What fails is named by step and object, with the last message. Nothing is concluded from a target
that does not answer, or on which something may not be done: the answer is then Unknown.
"""

import asyncio
import secrets
from collections.abc import Iterable
from contextlib import suppress

import msgspec
from msgspec import Struct

from knfleet.api.core import NAMESPACES, PODS
from knfleet.api.knative.resources import Component
from knfleet.api.knative.verification import (
    KINGRESSES,
    VERIFY_LABEL,
    VerifyAnswer,
    VerifyRequest,
)
from knfleet.api.meta import Key, Object
from knfleet.api.texts import bounded
from knfleet.apply.act.missing_rights import ACCESS_REVIEWS
from knfleet.apply.rights import Right
from knfleet.kube.client.verbs import Client, ListSelection
from knfleet.kube.errors import (
    AlreadyExists,
    ApiError,
    BadResponse,
    CredentialError,
    Expired,
    KubeError,
    NetworkError,
    NotFound,
    Throttled,
    Unauthorized,
)
from knfleet.operator.verification.verify_answers import (
    FORBIDDEN,
    INTERRUPTED,
    MESSAGE_BYTES,
    SIMULATED,
    failure,
    success,
    unknown,
)
from knfleet.operator.verification.verify_objects import (
    ServiceRoute,
    UnusableAnswer,
    broker_manifest,
    broker_route,
    event_headers,
    expected_text,
    ingress_route,
    is_temporary,
    namespace_manifest,
    printable,
    readiness,
    service_manifest,
    simulated_pods,
    verify_namespace,
)
from knfleet.operator.verification.verify_rights import OBJECT, proxy_right, verify_rights

NO_ANSWER = (NetworkError, CredentialError, Unauthorized, Throttled)
"""Errors that say nothing about Knative."""
EVENT = {"knfleet": "verify"}


class VerifyTiming(Struct, frozen=True):
    """How long parts of a verification may take, beside those that the request limits."""

    retry_seconds: float = 1.0
    """Between two requests that are not answered as they should be."""
    answer_seconds: float = 10.0
    """For one request."""
    gone_seconds: float = 60.0
    """For a namespace of an earlier run to be gone."""
    clean_seconds: float = 8.0
    """For the removal; a process that ends has little time."""


class StepFailed(Exception):
    """A step of a verification did not succeed; names the step and the object."""


class MissingVerifyRights(Exception):
    """The account on the target may not do what a verification takes."""

    def __init__(self, rights: Iterable[Right]) -> None:
        self.rights = sorted(rights)
        super().__init__(", ".join(map(str, self.rights)))


class VerifyRun:
    """One verification of one component on one target."""

    def __init__(
        self,
        client: Client,
        component: Component,
        home: str,
        *,
        timing: VerifyTiming | None = None,
    ) -> None:
        self.client = client
        self.component: Component = component
        self.home = home
        self.timing = timing or VerifyTiming()
        self.space = verify_namespace(component)
        self.resource = OBJECT[component]
        self.name = f"verify-{secrets.token_hex(4)}"
        self.step = "preparation"
        self.has_written = False

    async def run(self, request: VerifyRequest) -> VerifyAnswer:
        """What the verification found out; the target is as before."""
        problem = ""
        try:
            answer = await self.judged(request)
        finally:
            if self.has_written:
                problem = await self.clean_up()
        if not problem:
            return answer
        text = bounded(f"{answer.message}; {problem}", MESSAGE_BYTES)
        return VerifyAnswer(answer.status, answer.reason, text)

    async def judged(self, request: VerifyRequest) -> VerifyAnswer:
        """The steps, and what their failures mean."""
        try:
            return await self.verify(request)
        except MissingVerifyRights as error:
            text = (
                f"{self.step}: the account of the hub on this cluster may not: {error}; apply what"
                " `knfleet rights` prints for this release, and verify again"
            )
            return unknown(FORBIDDEN, text)
        except NO_ANSWER as error:
            return unknown(INTERRUPTED, f"{self.step}: {error}; nothing is known, verify again")
        except (StepFailed, UnusableAnswer, KubeError) as error:
            return failure(f"{self.step}: {error}")

    async def verify(self, request: VerifyRequest) -> VerifyAnswer:
        """Go through all steps; raises what the first one fails with."""
        await self.require(verify_rights(self.component, self.home))
        if simulated := simulated_pods((await self.client.list(PODS, self.home)).items):
            text = (
                f"pods of this cluster are simulated by a dev node, such as {self.home}/"
                f"{simulated[0]}: no container runs, so that nothing can answer; verify on a"
                " cluster whose nodes run containers"
            )
            return unknown(SIMULATED, text)
        self.has_written = True
        self.step = "leftovers of earlier runs"
        await self.remove_objects()
        self.step = f"Namespace {self.space}"
        await self.make_namespace()
        made = "Knative Service" if self.component == "serving" else "Broker"
        self.step = f"{made} {self.space}/{self.name}"
        await self.client.create(self.resource, self.manifest(request))
        ready = await self.wait_ready(request.seconds)
        self.step = "request"
        route = await self.route(ready)
        await self.require([proxy_right(self.component, route)])
        return success(await self.ask(route, request))

    def manifest(self, request: VerifyRequest) -> Object:
        """The object that must become ready."""
        if self.component == "serving":
            return service_manifest(self.name, request)
        return broker_manifest(self.name)

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

    async def wait_ready(self, seconds: float) -> Object:
        """The object, once it is Ready; raises `StepFailed` with what it says instead."""
        selection = ListSelection(self.resource, self.space, fields=f"metadata.name={self.name}")
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
                                is_ready, said = readiness(event.object)
                                if is_ready:
                                    return event.object
                    await asyncio.sleep(self.timing.retry_seconds)
        except TimeoutError:
            await self.probe()
            raise StepFailed(f"not Ready within {seconds:g} s: {printable(said)}") from None

    async def probe(self) -> None:
        """Raise an error when it is the API server that does not answer."""
        await self.client.version(deadline=self.timing.answer_seconds)

    async def route(self, ready: Object) -> ServiceRoute:
        """How a request reaches the object."""
        if self.component == "eventing":
            return broker_route(ready)
        return ingress_route(ready, await self.client.get(KINGRESSES, self.name, self.space))

    async def ask(self, route: ServiceRoute, request: VerifyRequest) -> str:
        """Send requests until one is answered as it should be; what was found, in words.

        The last one is not cut off: what it says is the reason.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + request.seconds
        while True:
            try:
                said = await self.ask_once(route, request)
                if not said:
                    return self.found(route)
            except (ApiError, BadResponse, NetworkError) as error:
                said = answer_text(error)
            if clock() >= until:
                break
            await asyncio.sleep(self.timing.retry_seconds)
        await self.probe()
        raise StepFailed(f"{route}: after {request.seconds:g} s: {said}")

    async def ask_once(self, route: ServiceRoute, request: VerifyRequest) -> str:
        """Send one request; what is wrong with its answer, if anything."""
        deadline = self.timing.answer_seconds
        if self.component == "eventing":
            await self.client.raw(
                "POST",
                route.proxy_path,
                body=msgspec.json.encode(EVENT),
                headers=event_headers(self.name, route.host),
                deadline=deadline,
            )
            return ""
        body = await self.client.raw(
            "GET", route.proxy_path, headers={"Host": route.host}, deadline=deadline
        )
        wanted = expected_text(self.name, request)
        if wanted.encode() in body:
            return ""
        got = printable(body[:400].decode(errors="replace"), 80)
        return f"status 200, but the answer does not contain {wanted!r}: {got!r}"

    def found(self, route: ServiceRoute) -> str:
        """What was verified."""
        if self.component == "eventing":
            return f"a Broker became Ready, and accepted an event at {route}"
        return f"a Knative Service became Ready, and answered a request at {route}"

    async def remove_objects(self) -> None:
        """Delete all objects of verifications, of this run and of others that were cut off."""
        try:
            found = await self.client.list(
                self.resource, self.space, labels=VERIFY_LABEL, metadata_only=True
            )
        except NotFound:
            return  # Knative's CRDs are gone, and with them all objects.
        for each in found.items:
            with suppress(NotFound):
                await self.client.delete(
                    self.resource,
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


def answer_text(error: KubeError) -> str:
    """What a proxy or a server behind it said."""
    if isinstance(error, ApiError):
        return f"status {error.code}: {printable(error.message)}"
    return printable(str(error))
