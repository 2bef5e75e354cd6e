"""How a verification of an installation is asked for, and how its result is found.

A client writes the annotation `VERIFY` on a KnativeServing or KnativeEventing. The operator runs
the verification on the target, sets the condition `VERIFIED_CONDITION`, and then writes the request
that the condition is about into the annotation `VERIFIED`.
"""

import re
from typing import Literal

import msgspec
from msgspec import Struct

from knfleet.api import durations
from knfleet.api.knative.conditions import Condition, find
from knfleet.api.meta import Object, Resource

VERIFY = "knfleet.dev/verify"
"""On a custom resource: a request, as JSON or as a bare identifier; any new one is a new run."""
VERIFIED = "knfleet.dev/verified"
"""On a custom resource: the identifier of the request that the condition answers."""
VERIFY_LABEL = "knfleet.dev/verify"
"""On everything that a verification makes on the target."""
VERIFIED_CONDITION = "Verified"

KSERVICES = Resource("serving.knative.dev", "v1", "Service", "services")
KINGRESSES = Resource("networking.internal.knative.dev", "v1alpha1", "Ingress", "ingresses")
BROKERS = Resource("eventing.knative.dev", "v1", "Broker", "brokers")
TRIGGERS = Resource("eventing.knative.dev", "v1", "Trigger", "triggers")

DEFAULT_IMAGE = "hashicorp/http-echo:1.0"
"""It answers every request with the text that it is started with, and logs the path."""
DEFAULT_SECONDS, LONGEST_SECONDS = 180.0, 1800.0
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}")
IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
TEXT_BYTES = 256
REQUEST_BYTES = 2048


class BadVerifyRequest(ValueError):
    """A request that cannot be used; the message says why."""


class VerifyRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client asks for."""

    request: str
    """Identifies the request."""
    image: str = ""
    """An image that answers GET / with status 200 on $PORT; the operator's when empty."""
    text: str = ""
    """What the answer must contain; with the default image, it always contains the request."""
    timeout: str = ""

    @property
    def seconds(self) -> float:
        """How long each step may take."""
        return durations.seconds(self.timeout) or DEFAULT_SECONDS

    def encoded(self) -> str:
        """The value of the annotation."""
        return msgspec.json.encode(self).decode()


class VerifyAnswer(Struct, frozen=True):
    """What the operator says of a request."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


def is_image(text: str) -> bool:
    """Whether a text may be the name of an image."""
    return IMAGE.fullmatch(text) is not None


def checked(request: VerifyRequest) -> VerifyRequest:
    """The request itself; raises `BadVerifyRequest` when a value makes no sense."""
    if not IDENTIFIER.fullmatch(request.request):
        raise BadVerifyRequest(
            "the identifier must be at most 63 letters, digits, dots, dashes and underscores"
        )
    if request.image and not is_image(request.image):
        raise BadVerifyRequest("image is not the name of an image")
    if len(request.text.encode(errors="replace")) > TEXT_BYTES:
        raise BadVerifyRequest(f"text has more than {TEXT_BYTES} bytes")
    seconds = durations.seconds(request.timeout) if request.timeout else DEFAULT_SECONDS
    if seconds is None or not 1 <= seconds <= LONGEST_SECONDS:
        raise BadVerifyRequest(
            f"timeout must be a duration from 1s to {LONGEST_SECONDS / 60:g}m, such as 3m"
        )
    return request


def parse_request(text: str) -> VerifyRequest:
    """The request in an annotation; raises `BadVerifyRequest`."""
    if len(text.encode(errors="replace")) > REQUEST_BYTES:
        raise BadVerifyRequest(f"it has more than {REQUEST_BYTES} bytes")
    if not text.lstrip().startswith("{"):
        return checked(VerifyRequest(request=text.strip()))
    try:
        return checked(msgspec.json.decode(text, type=VerifyRequest))
    except msgspec.DecodeError as error:
        raise BadVerifyRequest(f"it is not a request in JSON: {error}") from error


def request_name(text: str) -> str:
    """What identifies the value of an annotation, also one that cannot be used."""
    try:
        return parse_request(text).request
    except BadVerifyRequest:
        return "invalid"


def answer_of(
    annotations: dict[str, str], conditions: list[Condition], request: str
) -> VerifyAnswer | None:
    """What a custom resource says of a request; None while it says nothing."""
    condition = find(conditions, VERIFIED_CONDITION)
    if annotations.get(VERIFIED) != request or condition is None:
        return None
    return VerifyAnswer(condition.status, condition.reason, condition.message)


def request_patch(uid: str, request: VerifyRequest) -> Object:
    """The merge patch that asks for a verification of this very custom resource."""
    return {"metadata": {"uid": uid, "annotations": {VERIFY: request.encoded()}}}
