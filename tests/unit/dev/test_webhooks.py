"""The answers of webhooks for simulated pods."""

import pytest

from knfleet.api.meta import Key, Object
from knfleet.dev.node.annotations import WebhookBehaviour
from knfleet.dev.webhook_answers import NotAReview, review_answer

ALLOW, DENY = WebhookBehaviour("allow"), WebhookBehaviour("deny")
SERVICE = Key("shop", "hook")


@pytest.mark.parametrize("version", ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"])
def test_admission_is_granted_under_the_same_uid_and_version(version: str) -> None:
    """API servers refuse an answer to another question."""
    review: Object = {"apiVersion": version, "kind": "AdmissionReview", "request": {"uid": "u1"}}

    assert review_answer(review, ALLOW, SERVICE) == {
        "apiVersion": version,
        "kind": "AdmissionReview",
        "response": {"uid": "u1", "allowed": True},
    }


def test_a_denial_says_where_it_comes_from() -> None:
    """The Service and its annotation."""
    review: Object = {"kind": "AdmissionReview", "request": {"uid": "u1"}}

    response = review_answer(review, DENY, SERVICE)["response"]

    assert not response["allowed"]
    assert "shop/hook" in response["status"]["message"]
    assert "dev.knfleet.dev/webhook: deny" in response["status"]["message"]


def test_conversion_changes_the_version_alone() -> None:
    """And keeps the order."""
    objects: list[Object] = [
        {"apiVersion": "x/v1alpha1", "kind": "T", "spec": {"a": 1}},
        {"apiVersion": "x/v1", "kind": "T"},
    ]
    request = {"uid": "u1", "desiredAPIVersion": "x/v1", "objects": objects}
    review: Object = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": request,
    }

    response = review_answer(review, ALLOW, SERVICE)["response"]

    assert response["result"] == {"status": "Success"}
    assert response["convertedObjects"] == [
        {"apiVersion": "x/v1", "kind": "T", "spec": {"a": 1}},
        {"apiVersion": "x/v1", "kind": "T"},
    ]
    failed = review_answer(review, DENY, SERVICE)["response"]
    assert failed["result"]["status"] == "Failure"


@pytest.mark.parametrize("review", [{}, {"kind": "Pod", "request": {}}, {"request": []}])
def test_anything_else_is_refused(review: Object) -> None:
    """With an error that says what was wrong."""
    with pytest.raises(NotAReview):
        review_answer(review, ALLOW, SERVICE)
