"""What an API server's answers mean: objects, lists, or errors of our own tree."""

import asyncio
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from knfleet.api.meta import Object, Resource
from knfleet.api.texts import bounded
from knfleet.kube.client.memory_budget import weight
from knfleet.kube.client.retry import retry_after
from knfleet.kube.errors import ApiError, BadResponse, KubeError, error_type
from knfleet.kube.nesting import bounded_depth

encode = msgspec.json.Encoder().encode

EXCERPT_CHARACTERS = 200
SLICE_BYTES = 256 * 1024
"""How much is decoded before others get their turn: about two milliseconds."""


class HttpResponse(Struct, frozen=True):
    """One HTTP answer, read to its end."""

    code: int
    body: bytes
    content_type: str = ""
    retry_after: str | None = None


class ObjectList(Struct, frozen=True):
    """Objects of one collection, as they were at one resource version."""

    items: list[Object]
    resource_version: str
    weights: list[int] = []
    """About how much memory each of them takes; of pages only."""


class ListPage(Struct, frozen=True):
    """A part of a collection, and how to go on."""

    items: list[Object]
    resource_version: str
    go_on: str
    weights: list[int]


class StatusCause(Struct):
    """One thing that the server found wrong."""

    field: str = ""
    message: str = ""


class StatusDetails(Struct, rename="camel"):
    """The details of a Status that we use."""

    causes: list[StatusCause] | None = None
    retry_after_seconds: float | None = None


class ApiStatus(Struct):
    """What the server says when it says no."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class ListMeta(Struct, rename="camel"):
    """The metadata of a list."""

    resource_version: str = ""
    go_on: str = field(default="", name="continue")


class RawList(Struct):
    """A list whose items are still text."""

    metadata: ListMeta = field(default_factory=ListMeta)
    items: list[Raw] | None = None


read_object = bounded_depth(msgspec.json.Decoder(dict[str, Any]).decode)
read_status = bounded_depth(msgspec.json.Decoder(ApiStatus).decode)
read_list = bounded_depth(msgspec.json.Decoder(RawList).decode)


def as_object(answer: HttpResponse, where: str) -> Object:
    try:
        return read_object(answer.body)
    except msgspec.DecodeError as error:
        raise bad_answer(answer, where) from error


async def as_page(answer: HttpResponse, where: str, resource: Resource) -> ListPage:
    """The page that was answered; a large one is decoded in slices, to not block the loop.

    A thread would not help: a call of the decoder holds the interpreter from start to end.
    """
    try:
        answered = read_list(answer.body)
        items: list[Object] = []
        weights: list[int] = []
        budget = SLICE_BYTES
        for raw in answered.items or ():
            item = read_object(raw)
            name_kind(item, resource)
            items.append(item)
            weights.append(weight(bytes(raw)))
            budget -= len(memoryview(raw))
            if budget < 0:
                budget = SLICE_BYTES
                await asyncio.sleep(0)
    except msgspec.DecodeError as error:
        raise bad_answer(answer, where) from error
    return ListPage(items, answered.metadata.resource_version, answered.metadata.go_on, weights)


def name_kind(item: Object, resource: Resource) -> None:
    """Give an object the kind that was asked for: lists of built-in kinds and metadata lack it."""
    item["apiVersion"] = resource.api_version
    item["kind"] = resource.kind


def as_error(answer: HttpResponse, where: str, doubt: str = "") -> KubeError:
    """The error that was answered: a Status, the plain text of an HTTP filter, or nonsense."""
    after = retry_after(answer.retry_after)
    try:
        status = read_status(answer.body)
    except msgspec.DecodeError:
        status = None
    if status is not None and status.kind == "Status":
        return status_error(status, where, code=answer.code, after=after, doubt=doubt)
    if answer.content_type.startswith("text/plain") and answer.code >= 400:
        status = ApiStatus(
            code=answer.code, message=excerpt(answer.body) or f"status {answer.code}"
        )
        return status_error(status, where, code=answer.code, after=after, doubt=doubt)
    return bad_answer(answer, where, doubt)


def status_error(
    status: ApiStatus, where: str, *, code: int = 0, after: float | None = None, doubt: str = ""
) -> ApiError:
    """The error that a Status stands for."""
    code = code if code >= 400 else status.code
    details = status.details or StatusDetails()
    message = bounded(status.message) or status.reason or f"status {code}"
    return error_type(code, status.reason)(
        f"{message} ({doubt})" if doubt and code >= 500 else message,
        code=code,
        reason=status.reason,
        where=where,
        retry_after_seconds=after if after is not None else details.retry_after_seconds,
        causes=tuple((cause.field, bounded(cause.message)) for cause in details.causes or ()),
    )


def bad_answer(answer: HttpResponse, where: str, doubt: str = "") -> BadResponse:
    """The error for an answer that no API server gives."""
    kind = answer.content_type.partition(";")[0] or "something without a content type"
    text = excerpt(answer.body)
    message = f"{where}: status {answer.code} with {kind} instead of a Kubernetes answer"
    if text:
        message += f": {text}"
    return BadResponse(f"{message} ({doubt})" if doubt else message)


def excerpt(body: bytes) -> str:
    """The beginning of a body, on one line."""
    text = " ".join(body[: EXCERPT_CHARACTERS * 4].decode(errors="replace").split())
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= EXCERPT_CHARACTERS else text[:EXCERPT_CHARACTERS] + "…"
