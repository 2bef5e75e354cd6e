"""The protobuf messages of the gRPC service, built from a table instead of generated code.

Package, names and field numbers are those of the CloudEvents format and of its gRPC service, so
that any client and server of it understand each other.
"""

from typing import Any

from google.protobuf import any_pb2 as any_pb2  # noqa: PLC0414 - registers a message that we import
from google.protobuf import descriptor_pb2, descriptor_pool, empty_pb2, message_factory
from google.protobuf import timestamp_pb2 as timestamp_pb2  # noqa: PLC0414 - the same

PACKAGE = "io.cloudevents.v1"
SERVICE = f"{PACKAGE}.CloudEventService"
PUBLISH, SUBSCRIBE = f"/{SERVICE}/Publish", f"/{SERVICE}/Subscribe"

Field = descriptor_pb2.FieldDescriptorProto
Fields = dict[str, tuple[int, "int | str"]]
"""Number, and type or name of a message, by name."""

VALUE: Fields = {
    "ce_boolean": (1, Field.TYPE_BOOL),
    "ce_integer": (2, Field.TYPE_INT32),
    "ce_string": (3, Field.TYPE_STRING),
    "ce_bytes": (4, Field.TYPE_BYTES),
    "ce_uri": (5, Field.TYPE_STRING),
    "ce_uri_ref": (6, Field.TYPE_STRING),
    "ce_timestamp": (7, ".google.protobuf.Timestamp"),
}
EVENT: Fields = {
    "id": (1, Field.TYPE_STRING),
    "source": (2, Field.TYPE_STRING),
    "spec_version": (3, Field.TYPE_STRING),
    "type": (4, Field.TYPE_STRING),
}
DATA: Fields = {
    "binary_data": (6, Field.TYPE_BYTES),
    "text_data": (7, Field.TYPE_STRING),
    "proto_data": (8, ".google.protobuf.Any"),
}
SUBSCRIPTION: Fields = {
    "source": (1, Field.TYPE_STRING),
    "cluster_name": (2, Field.TYPE_STRING),
    "data_type": (3, Field.TYPE_STRING),
}


def add_fields(message: Any, fields: Fields, *, oneof: str = "") -> None:
    """Declare the fields of a message, all of one group when a name is given for it."""
    if oneof:
        message.oneof_decl.add(name=oneof)
    for name, (number, kind) in fields.items():
        field = message.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL)
        if isinstance(kind, str):
            field.type, field.type_name = Field.TYPE_MESSAGE, kind
        else:
            field.type = kind
        if oneof:
            field.oneof_index = len(message.oneof_decl) - 1


def described() -> Any:
    """The file that declares all messages."""
    file: Any = descriptor_pb2.FileDescriptorProto(
        name="knfleet/cloudevent.proto",
        package=PACKAGE,
        syntax="proto3",
        dependency=["google/protobuf/any.proto", "google/protobuf/timestamp.proto"],
    )
    add_fields(file.message_type.add(name="CloudEventAttributeValue"), VALUE, oneof="attr")
    event = file.message_type.add(name="CloudEvent")
    add_fields(event, EVENT)
    entry = event.nested_type.add(name="AttributesEntry")
    entry.options.map_entry = True
    value = f".{PACKAGE}.CloudEventAttributeValue"
    add_fields(entry, {"key": (1, Field.TYPE_STRING), "value": (2, value)})
    event.field.add(
        name="attributes",
        number=5,
        label=Field.LABEL_REPEATED,
        type=Field.TYPE_MESSAGE,
        type_name=f".{PACKAGE}.CloudEvent.AttributesEntry",
    )
    add_fields(event, DATA, oneof="data")
    request = file.message_type.add(name="PublishRequest")
    add_fields(request, {"event": (1, f".{PACKAGE}.CloudEvent")})
    add_fields(file.message_type.add(name="SubscriptionRequest"), SUBSCRIPTION)
    return file


POOL: Any = descriptor_pool.Default()
POOL.AddSerializedFile(described().SerializeToString())


def message_class(name: str) -> Any:
    """The class of a message."""
    found: Any = POOL.FindMessageTypeByName(f"{PACKAGE}.{name}")
    return message_factory.GetMessageClass(found)


CloudEventMessage = message_class("CloudEvent")
PublishRequest = message_class("PublishRequest")
SubscriptionRequest = message_class("SubscriptionRequest")
Empty: Any = empty_pb2.Empty
