"""Events as bytes: what others write is read, what is hostile is refused."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knfleet.cloudevents.cloud_event import (
    HEARTBEAT,
    MESSAGE_BYTES,
    MOST_EXTENSIONS,
    CloudEvent,
    EventError,
    Subscription,
    encoded,
    event_bytes,
    publish_bytes,
    read_event,
    read_publish,
    read_subscription,
    subscription_bytes,
)
from knfleet.cloudevents.protobuf_messages import CloudEventMessage, PublishRequest

NOW = datetime(2026, 11, 18, 12, 0, 0, tzinfo=UTC)
VALUES = st.one_of(
    st.booleans(), st.integers(-(2**31), 2**31 - 1), st.text(max_size=20), st.binary(max_size=20)
)
EVENTS = st.builds(
    CloudEvent,
    type=st.text(min_size=1, max_size=50),
    source=st.text(max_size=20),
    id=st.text(min_size=1, max_size=20),
    extensions=st.dictionaries(
        st.text("abcdefghij", min_size=1, max_size=10).filter(lambda name: name != "time"),
        VALUES,
        max_size=10,
    ),
    data=st.binary(max_size=100),
)


@given(EVENTS)
def test_an_event_survives_the_way_over_the_wire(event: CloudEvent):
    found = read_publish(publish_bytes(event))

    assert {**event.extensions, "time": found.extensions["time"]} == dict(found.extensions)
    assert (event.type, event.source, event.id) == (found.type, found.source, found.id)
    assert event.data == found.data


@given(st.binary(max_size=300))
def test_bytes_that_are_no_event_lead_to_no_other_error(body: bytes):
    for read in (read_publish, read_event, read_subscription):
        try:
            read(body)
        except EventError:
            continue


def test_field_numbers_are_those_of_the_cloudevents_format():
    """Field 1 is the id, 2 the source, 3 the version, 4 the type, 6 the data."""
    message = CloudEventMessage(id="i", source="s", spec_version="1.0", type="t", binary_data=b"d")

    wire = message.SerializeToString()

    assert wire == b'\n\x01i\x12\x01s\x1a\x031.0"\x01t2\x01d'
    attribute = CloudEventMessage()
    attribute.attributes["ce-x"].ce_integer = 7
    assert attribute.SerializeToString() == b"*\n\n\x04ce-x\x12\x02\x10\x07"


def test_extensions_have_the_prefix_and_data_names_its_content_type():
    message: Any = encoded(CloudEvent("t", "s", extensions={"clustername": "c1"}, data=b"{}"), NOW)

    assert message.attributes["ce-clustername"].ce_string == "c1"
    assert message.attributes["contenttype"].ce_string == "application/json"
    assert message.attributes["ce-time"].ce_timestamp.ToDatetime(UTC) == NOW
    assert message.spec_version == "1.0"


def test_a_heartbeat_has_neither_attributes_nor_data():
    message: Any = encoded(CloudEvent(HEARTBEAT))

    assert not message.attributes
    assert message.WhichOneof("data") is None
    assert message.id


def test_text_data_is_read_like_binary_data():
    message = CloudEventMessage(type="t", text_data="{}")

    assert read_event(message.SerializeToString()).data == b"{}"


def test_a_subscription_survives_the_way_over_the_wire():
    wanted = Subscription("kube", "c1", "coordination.k8s.io.v1.leases")

    assert read_subscription(subscription_bytes(wanted)) == wanted


@pytest.mark.parametrize(
    "wanted",
    [
        Subscription("s", "", "x.v1.y"),
        Subscription("s", "c" * 300, "x.v1.y"),
        Subscription("s", "c", ""),
    ],
)
def test_a_subscription_names_a_cluster_and_a_type(wanted: Subscription):
    with pytest.raises(EventError, match="is missing or longer"):
        read_subscription(subscription_bytes(wanted))


def test_a_request_without_an_event_is_refused():
    with pytest.raises(EventError, match="no event"):
        read_publish(PublishRequest().SerializeToString())


def test_a_giant_message_is_refused_before_it_is_parsed():
    with pytest.raises(EventError, match="larger than"):
        read_publish(b"\0" * (MESSAGE_BYTES + 1))


def test_an_event_with_too_many_attributes_is_refused():
    extensions = {f"n{number}": "x" for number in range(MOST_EXTENSIONS)}

    with pytest.raises(EventError, match="more than 32 attributes"):
        read_publish(publish_bytes(CloudEvent("t", extensions=extensions)))


def test_an_event_with_a_giant_attribute_is_refused():
    with pytest.raises(EventError, match="larger than"):
        read_publish(publish_bytes(CloudEvent("t", extensions={"metadata": "x" * 600_000})))


def test_data_of_protobuf_is_refused():
    message = CloudEventMessage(type="t")
    message.proto_data.type_url = "x"

    with pytest.raises(EventError, match="JSON is expected"):
        read_event(message.SerializeToString())


def test_an_impossible_time_is_refused():
    message = CloudEventMessage(type="t")
    message.attributes["ce-deletiontimestamp"].ce_timestamp.seconds = 2**62

    with pytest.raises(EventError, match="impossible time"):
        read_event(message.SerializeToString())


def test_an_extension_of_another_type_is_refused_when_it_is_read():
    event = read_event(event_bytes(CloudEvent("t", extensions={"a": b"x", "b": "seven", "c": "x"})))

    with pytest.raises(EventError, match="not text"):
        event.text("a")
    with pytest.raises(EventError, match="not a number"):
        event.number("b")
    with pytest.raises(EventError, match="not a time"):
        event.time("c")
