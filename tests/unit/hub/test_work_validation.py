"""What the webhook says about ManifestWorks."""

import msgspec
import pytest

from knfleet.api.meta import Object
from knfleet.hub.webhook.admission_review import ReviewError, admission
from knfleet.hub.work.work_validation import SIZE_LIMIT, encoded_size, manifest_size, validate
from tests.support.hub_works import config_map, large, work


def asked(manifest: Object) -> bytes:
    """The question of an API server."""
    request = {"uid": "u", "operation": "CREATE", "object": manifest, "userInfo": {}}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return msgspec.json.encode(review)


def answered(manifest: Object) -> Object:
    """The response to it."""
    answer: Object = msgspec.json.decode(admission(validate)(asked(manifest)))
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert answer["response"]["uid"] == "u"
    return answer["response"]


def test_a_work_of_the_largest_size_is_taken():
    manifest = config_map(a="")
    room = SIZE_LIMIT - manifest_size(manifest)
    fitting = config_map(a="x" * (room - 4))
    while manifest_size(fitting) < SIZE_LIMIT:
        fitting["data"]["a"] += "x"

    assert manifest_size(fitting) == SIZE_LIMIT
    assert answered(work("w", fitting))["allowed"] is True
    fitting["data"]["a"] += "x"
    assert answered(work("w", fitting)) == {
        "uid": "u",
        "allowed": False,
        "status": {
            "code": 400,
            "message": "the size of manifests is 512001 bytes which exceeds the 512000 limit",
            "reason": "BadRequest",
            "status": "Failure",
        },
    }


def test_sizes_of_all_manifests_are_added():
    manifests = large(10, 51_100)

    said = answered(work("w", *manifests))

    total = sum(map(manifest_size, manifests))
    assert f"{total} bytes which exceeds the 512000 limit" in said["status"]["message"]


@pytest.mark.parametrize(
    ("length", "size"), [(0, 4), (100, 104), (127, 132), (1000, 1006), (512_000, 512_008)]
)
def test_a_manifest_counts_what_protocol_buffers_take(length: int, size: int):
    assert encoded_size(length) == size


def test_characters_that_api_servers_escape_count_more():
    assert manifest_size(config_map(a="<&>")) == manifest_size(config_map(a="abc")) + 15


def test_a_manifest_given_twice_is_refused():
    twice = work("w", config_map("a"), config_map("b"), config_map("a", other="content"))

    assert answered(twice)["status"]["message"] == (
        "duplicate manifest for resource default/a with resource type v1.ConfigMap"
    )
    other = {**config_map("a"), "kind": "Secret"}
    assert answered(work("w", config_map("a"), config_map("a", "other"), other))["allowed"]


def test_odd_objects_are_refused_not_fatal():
    odd = work("w")
    odd["spec"]["workload"]["manifests"] = "text"
    assert "cannot be read" in answered(odd)["status"]["message"]
    odd["spec"]["workload"]["manifests"] = [{"metadata": 5}]
    assert "cannot be read" in answered(odd)["status"]["message"]


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"kind":"Pod","request":{"uid":"u"}}'])
def test_what_is_no_review_is_not_answered(body: bytes):
    with pytest.raises(ReviewError):
        admission(validate)(body)


def test_a_work_that_is_nested_too_deep_is_refused():
    """Without an answer the API server would take it."""
    text = asked(work("w", config_map(data="HERE")))
    deep = text.replace(b'"HERE"', b"[" * 3000 + b"]" * 3000)

    answer: Object = msgspec.json.decode(admission(validate)(deep))

    assert answer["response"]["uid"] == "u"
    assert answer["response"]["allowed"] is False
    assert "nested deeper than 200 levels" in answer["response"]["status"]["message"]
