"""AdmissionReviews as API servers send them, and the answers to them.

Objects stay undecoded: a handler decodes what it needs, and sizes are those of the bytes sent.
"""

from collections.abc import Callable

import msgspec
from msgspec import Raw, Struct

from knfleet.kube.nesting import DEEPEST, shallow
from knfleet.kube.untrusted_json import TooDeep, decode_json

BAD_REQUEST = 400


class AdmissionRequest(Struct, frozen=True, rename="camel"):
    """What is asked."""

    uid: str
    operation: str = ""
    name: str = ""
    namespace: str = ""
    object: Raw = Raw(b"null")
    old_object: Raw = Raw(b"null")


class AdmissionReview(Struct, frozen=True, rename="camel"):
    """A question of an API server."""

    request: AdmissionRequest
    api_version: str = ""
    kind: str = ""


class ReviewError(Exception):
    """The body is none that an API server sends."""


Validate = Callable[[AdmissionRequest], str]
"""Returns what is wrong with a request; empty when nothing is."""
Answer = Callable[[bytes], bytes]
"""Returns the response to a body; runs in a thread, raises `ReviewError`."""


def admission(validate: Validate) -> Answer:
    """Answers AdmissionReviews by a function that decides."""

    def answer(body: bytes) -> bytes:
        try:
            review = decoded(body)
            problem = validate(review.request)
        except TooDeep:
            review = decoded(shallow(body))
            problem = f"the object is nested deeper than {DEEPEST} levels"
        response: dict[str, object] = {"uid": review.request.uid, "allowed": not problem}
        if problem:
            response["status"] = {
                "code": BAD_REQUEST,
                "message": problem,
                "reason": "BadRequest",
                "status": "Failure",
            }
        return msgspec.json.encode(
            {"apiVersion": review.api_version, "kind": review.kind, "response": response}
        )

    return answer


def decoded(body: bytes) -> AdmissionReview:
    """The review in a body; raises `TooDeep` when it may be one that is nested too deep."""
    try:
        review = decode_json(body, AdmissionReview)
    except TooDeep:
        raise
    except msgspec.DecodeError as error:
        raise ReviewError(f"not an AdmissionReview: {error}") from error
    if review.kind != "AdmissionReview":
        raise ReviewError(f"{review.kind!r} is not an AdmissionReview")
    return review
