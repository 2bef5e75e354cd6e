"""ConversionReviews of add-on objects as API servers send them, and the answers to them."""

from typing import Any

import msgspec
from msgspec import Struct

from knfleet.api.addon.conversion import ConversionError, convert
from knfleet.api.meta import Object
from knfleet.hub.webhook.admission_review import ReviewError
from knfleet.kube.untrusted_json import decode_json

KIND = "ConversionReview"


class ConversionRequest(Struct, frozen=True):
    """What is to be converted."""

    uid: str
    desired_version: str = msgspec.field(name="desiredAPIVersion")
    objects: list[dict[str, Any]] = []


class ConversionReview(Struct, frozen=True, rename="camel"):
    """A question of an API server."""

    request: ConversionRequest
    api_version: str = ""
    kind: str = ""


def answer_conversion(body: bytes) -> bytes:
    """The response to a body; one object that cannot be converted fails them all, by name.

    Raises `ReviewError` for a body that no API server sends.
    """
    try:
        review = decode_json(body, ConversionReview)
    except msgspec.DecodeError as error:
        raise ReviewError(f"not a {KIND}: {error}") from error
    if review.kind != KIND:
        raise ReviewError(f"{review.kind!r} is not a {KIND}")
    response: Object = {"uid": review.request.uid}
    try:
        response["convertedObjects"] = [
            convert(each, review.request.desired_version) for each in review.request.objects
        ]
        response["result"] = {"status": "Success"}
    except ConversionError as error:
        response["result"] = {"status": "Failure", "message": str(error)}
        response["convertedObjects"] = []
    return msgspec.json.encode(
        {"apiVersion": review.api_version, "kind": review.kind, "response": response}
    )
