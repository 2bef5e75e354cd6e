"""Webhooks that answer for simulated pods: admission allows, conversion renames the version.

Knative's own webhook pods cannot run on the dev node, but its webhook configurations are installed
all the same, and API servers call them. What happens then can be changed by annotations on the
Service (see `dev.node.annotations`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp.web
import msgspec

from knfleet.api.meta import Key, Object
from knfleet.dev.node.annotations import WEBHOOK, WebhookBehaviour

HANG_SECONDS = 60.0
"""API servers wait 30 seconds at most."""


class NotAReview(Exception):
    """The request is none that an API server makes."""


def review_answer(review: Object, behaviour: WebhookBehaviour, service: Key) -> Object:
    """The answer to an AdmissionReview or ConversionReview."""
    request = review.get("request")
    if not isinstance(request, dict):
        raise NotAReview("there is no request in this review")
    match review.get("kind"):
        case "AdmissionReview":
            response = admission(review["request"], behaviour, service)
        case "ConversionReview":
            response = conversion(review["request"], behaviour, service)
        case kind:
            raise NotAReview(f"{kind!r} is neither an AdmissionReview nor a ConversionReview")
    return {
        "apiVersion": review.get("apiVersion"),
        "kind": review["kind"],
        "response": response,
    }


def admission(request: Object, behaviour: WebhookBehaviour, service: Key) -> Object:
    """Allow the request, unless the Service is annotated to deny."""
    if behaviour.answer != "deny":
        return {"uid": request.get("uid", ""), "allowed": True}
    status = {"code": 403, "reason": "Forbidden", "message": denial(service)}
    return {"uid": request.get("uid", ""), "allowed": False, "status": status}


def conversion(request: Object, behaviour: WebhookBehaviour, service: Key) -> Object:
    """Every object, with no change but that of its version."""
    uid = request.get("uid", "")
    if behaviour.answer == "deny":
        return {"uid": uid, "result": {"status": "Failure", "message": denial(service)}}
    desired = request.get("desiredAPIVersion", "")
    converted = [{**each, "apiVersion": desired} for each in request.get("objects") or ()]
    return {"uid": uid, "convertedObjects": converted, "result": {"status": "Success"}}


def denial(service: Key) -> str:
    return f"denied because the Service {service} has the annotation {WEBHOOK}: deny"


class WebhookResponder:
    """Answers for all Services with simulated pods."""

    def __init__(self, behaviour: Callable[[Key], WebhookBehaviour]) -> None:
        self.behaviour = behaviour

    def protocol(self, service: Key) -> asyncio.Protocol:
        """A protocol for one connection to the Service."""

        def handle(request: aiohttp.web.BaseRequest) -> Awaitable[aiohttp.web.StreamResponse]:
            return self.answer(request, service)

        return http_protocol(handle)

    async def answer(
        self, request: aiohttp.web.BaseRequest, service: Key
    ) -> aiohttp.web.StreamResponse:
        """Answer one request, in the way that the Service's annotations ask for."""
        body = await request.content.read()
        behaviour = self.behaviour(service)
        if behaviour.answer == "hang":
            await asyncio.sleep(HANG_SECONDS)
        await asyncio.sleep(behaviour.delay_seconds)
        try:
            review: Any = msgspec.json.decode(body)
            answered = review_answer(review, behaviour, service)
        except (msgspec.DecodeError, NotAReview, AttributeError) as error:
            return aiohttp.web.Response(status=400, text=f"{error}\n")
        response = aiohttp.web.Response(
            body=msgspec.json.encode(answered), content_type="application/json"
        )
        # The next call must find its way anew: the pods may not be ready any more by then.
        response.force_close()
        return response


def http_protocol(
    handle: Callable[[aiohttp.web.BaseRequest], Awaitable[aiohttp.web.StreamResponse]],
) -> asyncio.Protocol:
    """An HTTP protocol for one connection, whose handler ends when the other side goes away."""
    server = aiohttp.web.Server(handle, access_log=None, handler_cancellation=True)
    return server()
