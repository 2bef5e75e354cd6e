"""A CloudEvent as a value, and as the bytes that gRPC carries.

What is decoded comes from another process: sizes and numbers are limited before anything is kept.
"""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from google.protobuf.message import DecodeError
from msgspec import Struct

from knfleet.cloudevents.protobuf_messages import (
    CloudEventMessage,
    PublishRequest,
    SubscriptionRequest,
)

MESSAGE_BYTES = 4 * 1024 * 1024
"""What clients and servers accept by default, ours and others'."""
MOST_EXTENSIONS = 32
NAME_CHARACTERS = 253
"""Of a name in an extension or of an extension."""
TEXT_BYTES = 512 * 1024
"""Of the longest extension, which has the metadata of an object."""
PREFIX, CONTENT_TYPE, JSON = "ce-", "contenttype", "application/json"
SPEC_VERSION = "1.0"
HEARTBEAT = "io.open-cluster-management.cloudevents.heartbeat"
SUBSCRIPTION_ID = "subscription-id"
"""The response header by which a server confirms a subscription."""

ExtensionValue = str | int | bool | bytes | datetime


class EventError(ValueError):
    """An event, or a request with one, that cannot be used."""


class CloudEvent(Struct, frozen=True):
    """An event."""

    type: str
    source: str = ""
    id: str = ""
    extensions: Mapping[str, ExtensionValue] = {}
    data: bytes = b""

    def text(self, name: str) -> str:
        """The text of an extension; empty when there is none. Raises `EventError`."""
        value = self.extensions.get(name, "")
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise EventError(f"extension {name} is not text")
        return str(value)

    def number(self, name: str) -> int:
        """The number in an extension, also when it is written as text. Raises `EventError`."""
        try:
            return int(self.text(name) or "0")
        except ValueError as error:
            raise EventError(f"extension {name} is not a number") from error

    def time(self, name: str) -> datetime | None:
        """The time in an extension; None when there is none. Raises `EventError`."""
        value = self.extensions.get(name)
        if value is None or isinstance(value, datetime):
            return value
        raise EventError(f"extension {name} is not a time")


class Subscription(Struct, frozen=True):
    """What a client subscribes to."""

    source: str
    cluster: str
    data_type: str


def encoded(event: CloudEvent, now: datetime | None = None) -> Any:
    """An event as a protobuf message."""
    message = CloudEventMessage(
        id=event.id or str(uuid.uuid4()),
        source=event.source,
        spec_version=SPEC_VERSION,
        type=event.type,
    )
    for name, value in event.extensions.items():
        set_value(message.attributes[f"{PREFIX}{name}"], value)
    if event.type != HEARTBEAT:
        set_value(message.attributes[f"{PREFIX}time"], now or datetime.now(UTC))
    if event.data:
        message.attributes[CONTENT_TYPE].ce_string = JSON
        message.binary_data = event.data
    return message


def set_value(attribute: Any, value: ExtensionValue) -> None:
    """Write the value of an extension."""
    if isinstance(value, bool):
        attribute.ce_boolean = value
    elif isinstance(value, int):
        attribute.ce_integer = value
    elif isinstance(value, bytes):
        attribute.ce_bytes = value
    elif isinstance(value, datetime):
        attribute.ce_timestamp.FromDatetime(value.astimezone(UTC))
    else:
        attribute.ce_string = value


def event_bytes(event: CloudEvent) -> bytes:
    """An event as a server sends it."""
    return encoded(event).SerializeToString()


def publish_bytes(event: CloudEvent) -> bytes:
    """A request to publish an event."""
    return PublishRequest(event=encoded(event)).SerializeToString()


def subscription_bytes(wanted: Subscription) -> bytes:
    """A request to subscribe."""
    return SubscriptionRequest(
        source=wanted.source, cluster_name=wanted.cluster, data_type=wanted.data_type
    ).SerializeToString()


def read_subscription(body: bytes) -> Subscription:
    """What a client subscribes to; raises `EventError`."""
    message = parsed(SubscriptionRequest, body)
    wanted = Subscription(message.source, message.cluster_name, message.data_type)
    for name, value in (("cluster_name", wanted.cluster), ("data_type", wanted.data_type)):
        if not value or len(value) > NAME_CHARACTERS:
            raise EventError(f"{name} is missing or longer than {NAME_CHARACTERS} characters")
    return wanted


def read_publish(body: bytes) -> CloudEvent:
    """The event that a client publishes; raises `EventError`."""
    message = parsed(PublishRequest, body)
    if not message.HasField("event"):
        raise EventError("the request has no event")
    return decoded(message.event)


def read_event(body: bytes) -> CloudEvent:
    """An event that a server sent; raises `EventError`."""
    return decoded(parsed(CloudEventMessage, body))


def parsed(kind: Any, body: bytes) -> Any:
    """A message; raises `EventError`."""
    if len(body) > MESSAGE_BYTES:
        raise EventError(f"the message is larger than {MESSAGE_BYTES} bytes")
    try:
        return kind.FromString(body)
    except (DecodeError, RecursionError) as error:
        raise EventError("the message is not a CloudEvent of protobuf") from error


def decoded(message: Any) -> CloudEvent:
    """An event as a value; attributes that are neither extensions nor text are passed over."""
    if len(message.attributes) > MOST_EXTENSIONS:
        raise EventError(f"the event has more than {MOST_EXTENSIONS} attributes")
    extensions: dict[str, ExtensionValue] = {}
    for name, attribute in message.attributes.items():
        if not name.startswith(PREFIX):
            continue
        if len(name) > NAME_CHARACTERS:
            raise EventError("an attribute of the event has too long a name")
        value = value_of(attribute)
        if isinstance(value, str | bytes) and len(value) > TEXT_BYTES:
            raise EventError(f"attribute {name} is larger than {TEXT_BYTES} bytes")
        if value is not None:
            extensions[name.removeprefix(PREFIX)] = value
    kind = message.WhichOneof("data")
    if kind == "proto_data":
        raise EventError("the event has data of protobuf; JSON is expected")
    data = message.text_data.encode() if kind == "text_data" else message.binary_data
    if len(message.type) > 2 * NAME_CHARACTERS:
        raise EventError("the type of the event is too long")
    return CloudEvent(message.type, message.source, message.id, extensions, data)


def value_of(attribute: Any) -> ExtensionValue | None:
    """The value of an attribute."""
    kind = attribute.WhichOneof("attr")
    if kind is None:
        return None
    if kind != "ce_timestamp":
        return getattr(attribute, kind)
    try:
        return attribute.ce_timestamp.ToDatetime(UTC)
    except (ValueError, OverflowError) as error:
        raise EventError("an attribute of the event has an impossible time") from error
