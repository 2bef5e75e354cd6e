"""Runs one verification on a target, and removes what it made, whatever happens.

    rights → are pods real → leftovers → namespace → objects → Ready → request → clean up

What fails is named by step and object, with the last message. Nothing is concluded from a target
that does not answer, or on which something may not be done: the answer is then Unknown.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable

import msgspec

from knfleet.api.core import PODS, SERVICES
from knfleet.api.knative.resources import Component
from knfleet.api.knative.verification import (
    BROKERS,
    DEFAULT_IMAGE,
    KINGRESSES,
    KSERVICES,
    TRIGGERS,
    VerifyAnswer,
    VerifyRequest,
)
from knfleet.api.texts import bounded
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import ApiError, BadResponse, KubeError, NetworkError
from knfleet.operator.verification.verify_answers import (
    FORBIDDEN,
    INTERRUPTED,
    MESSAGE_BYTES,
    SIMULATED,
    failure,
    success,
    unknown,
)
from knfleet.operator.verification.verify_images import expected_text
from knfleet.operator.verification.verify_objects import (
    LOG_PATH,
    SUBSCRIBER,
    ServiceRoute,
    UnusableAnswer,
    broker_manifest,
    broker_route,
    event_headers,
    ingress_route,
    pod_readiness,
    printable,
    service_manifest,
    simulated_pods,
    subscriber_manifests,
    trigger_manifest,
)
from knfleet.operator.verification.verify_rights import proxy_right, verify_rights
from knfleet.operator.verification.verify_target import (
    NO_ANSWER,
    MissingVerifyRights,
    StepFailed,
    VerifyTarget,
    VerifyTiming,
)

EVENT = {"knfleet": "verify"}


class SimulatedPods(Exception):
    """Pods of the target never run."""


class VerifyRun:
    """One verification of one component on one target."""

    def __init__(
        self,
        client: Client,
        component: Component,
        home: str,
        *,
        default_image: str = DEFAULT_IMAGE,
        timing: VerifyTiming | None = None,
    ) -> None:
        self.client = client
        self.component: Component = component
        self.home = home
        self.default_image = default_image
        self.timing = timing or VerifyTiming()
        self.target = VerifyTarget(client, component, self.timing)
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
                problem = await self.target.clean_up()
        if not problem:
            return answer
        text = bounded(f"{answer.message}; {problem}", MESSAGE_BYTES)
        return VerifyAnswer(answer.status, answer.reason, text)

    async def judged(self, request: VerifyRequest) -> VerifyAnswer:
        """The steps, and what their failures mean."""
        try:
            return success(await self.verify(request))
        except MissingVerifyRights as error:
            text = (
                f"{self.step}: the account of the hub on this cluster may not: {error}; apply what"
                " `knfleet rights` prints for this release, and verify again"
            )
            return unknown(FORBIDDEN, text)
        except SimulatedPods as error:
            text = (
                f"pods of this cluster are simulated by a dev node, such as {error}: no container"
                " runs, so that nothing can answer; verify on a cluster whose nodes run containers"
            )
            return unknown(SIMULATED, text)
        except NO_ANSWER as error:
            return unknown(INTERRUPTED, f"{self.step}: {error}; nothing is known, verify again")
        except (StepFailed, UnusableAnswer, KubeError) as error:
            return failure(f"{self.step}: {error}")

    async def verify(self, request: VerifyRequest) -> str:
        """Go through all steps; raises what the first one fails with."""
        await self.target.require(verify_rights(self.component, self.home))
        if simulated := simulated_pods((await self.client.list(PODS, self.home)).items):
            raise SimulatedPods(f"{self.home}/{simulated[0]}")
        self.has_written = True
        self.step = "leftovers of earlier runs"
        await self.target.remove_objects()
        self.step = f"Namespace {self.target.space}"
        await self.target.make_namespace()
        image = request.image or self.default_image
        if self.component == "serving":
            return await self.verify_serving(image, request)
        return await self.verify_eventing(image, request)

    async def verify_serving(self, image: str, request: VerifyRequest) -> str:
        """A Knative Service answers through the ingress."""
        self.step = f"Knative Service {self.target.space}/{self.name}"
        await self.target.create(KSERVICES, service_manifest(self.name, image, request))
        ready = await self.target.wait_ready(KSERVICES, self.name, request.seconds)
        self.step = "request"
        ingress = await self.client.get(KINGRESSES, self.name, self.target.space)
        route = ingress_route(ready, ingress)
        await self.target.require([proxy_right("serving", route)])
        wanted = expected_text(self.name, image, request)
        await self.insist(route, request.seconds, lambda: self.ask(route, wanted))
        return f"a Knative Service became Ready, and answered a request at {route}"

    async def verify_eventing(self, image: str, request: VerifyRequest) -> str:
        """An event that is sent to a Broker reaches the subscriber of a Trigger."""
        space, seconds = self.target.space, request.seconds
        self.step = f"Pod {space}/{SUBSCRIBER}"
        pod, service = subscriber_manifests(self.name, image, request)
        await self.target.create(PODS, pod)
        await self.target.create(SERVICES, service)
        self.step = f"Broker {space}/{self.name}"
        await self.target.create(BROKERS, broker_manifest(self.name))
        broker = await self.target.wait_ready(BROKERS, self.name, seconds)
        self.step = f"Trigger {space}/{self.name}"
        await self.target.create(TRIGGERS, trigger_manifest(self.name))
        await self.target.wait_ready(TRIGGERS, self.name, seconds)
        self.step = f"Pod {space}/{SUBSCRIBER}"
        running = await self.target.wait_ready(PODS, SUBSCRIBER, seconds, pod_readiness)
        if simulated_pods([running]):
            raise SimulatedPods(f"{space}/{SUBSCRIBER}")
        self.step = "event"
        route = broker_route(broker)
        await self.target.require([proxy_right("eventing", route)])
        await self.insist(route, seconds, lambda: self.deliver(route))
        return (
            f"an event that was sent to a Broker at {route} reached a subscriber through a Trigger"
        )

    async def insist(
        self, route: ServiceRoute, seconds: float, attempt: Callable[[], Awaitable[str]]
    ) -> None:
        """Try until nothing is wrong; raises `StepFailed` with what was wrong the last time.

        The last attempt is not cut off: what it says is the reason.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while True:
            try:
                problem = await attempt()
                if not problem:
                    return
            except (ApiError, BadResponse, NetworkError) as error:
                problem = answer_text(error)
            if clock() >= until:
                break
            await asyncio.sleep(self.timing.retry_seconds)
        await self.target.probe()
        raise StepFailed(f"{route}: after {seconds:g} s: {problem}")

    async def ask(self, route: ServiceRoute, wanted: str) -> str:
        """Send one request; what is wrong with its answer, if anything."""
        body = await self.client.raw(
            "GET",
            route.proxy_path,
            headers={"Host": route.host},
            deadline=self.timing.answer_seconds,
        )
        if wanted.encode() in body:
            return ""
        got = printable(body[:400].decode(errors="replace"), 80)
        return f"status 200, but the answer does not contain {wanted!r}: {got!r}"

    async def deliver(self, route: ServiceRoute) -> str:
        """Send one event; why it is not known that it arrived, if so."""
        deadline = self.timing.answer_seconds
        await self.client.raw(
            "POST",
            route.proxy_path,
            body=msgspec.json.encode(EVENT),
            headers=event_headers(self.name, route.host),
            deadline=deadline,
        )
        clock = asyncio.get_running_loop().time
        until = clock() + deadline
        while problem := await self.arrival():
            if clock() >= until:
                break
            await asyncio.sleep(self.timing.retry_seconds)
        return problem

    async def arrival(self) -> str:
        """Why it is not known that an event arrived; empty when it did."""
        pod = f"{self.target.space}/{SUBSCRIBER}"
        try:
            log = await self.client.raw(
                "GET",
                LOG_PATH.format(self.target.space),
                deadline=self.timing.answer_seconds,
            )
        except (ApiError, BadResponse) as error:
            return f"the log of Pod {pod} cannot be read: {answer_text(error)}"
        if self.name.encode() in log:
            return ""
        return (
            "the Broker accepts events, but none arrives at the subscriber of Trigger"
            f" {self.target.space}/{self.name}: the log of Pod {pod} does not show it"
        )


def answer_text(error: KubeError) -> str:
    """What a proxy or a server behind it said."""
    if isinstance(error, ApiError):
        return f"status {error.code}: {printable(error.message)}"
    return printable(str(error))
