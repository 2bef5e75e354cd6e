"""Answers to ConversionReviews."""

import msgspec
import pytest

from knfleet.api.addon.names import GROUP
from knfleet.api.meta import Object
from knfleet.hub.addon.conversion.conversion_review import answer_conversion
from knfleet.hub.webhook.admission_review import ReviewError


def review(*objects: Object, version: str = f"{GROUP}/v1beta1") -> bytes:
    """What an API server sends."""
    request = {"uid": "u1", "desiredAPIVersion": version, "objects": list(objects)}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    return msgspec.json.encode(body)


def addon(name: str, kind: str = "ManagedClusterAddOn") -> Object:
    """An add-on on a cluster in v1alpha1."""
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "c1", "uid": "kept"},
        "spec": {"installNamespace": "x"},
    }


def test_all_objects_are_converted_in_their_order():
    answer = msgspec.json.decode(answer_conversion(review(addon("a"), addon("b"))))

    assert (answer["apiVersion"], answer["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    response = answer["response"]
    assert (response["uid"], response["result"]) == ("u1", {"status": "Success"})
    assert [each["metadata"]["name"] for each in response["convertedObjects"]] == ["a", "b"]
    assert {each["apiVersion"] for each in response["convertedObjects"]} == {f"{GROUP}/v1beta1"}
    assert {each["metadata"]["uid"] for each in response["convertedObjects"]} == {"kept"}


def test_one_object_that_cannot_be_converted_is_named_and_nothing_is_converted():
    answer = msgspec.json.decode(answer_conversion(review(addon("a"), addon("odd", "Pod"))))

    assert answer["response"]["result"]["status"] == "Failure"
    assert "Pod odd" in answer["response"]["result"]["message"]
    assert answer["response"]["convertedObjects"] == []


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"kind":"Pod","request":{"uid":"u"}}'])
def test_what_is_no_review_is_refused(body: bytes):
    with pytest.raises(ReviewError, match="not a ConversionReview"):
        answer_conversion(body)
