"""What a server's words mean; the messages are those of a real API server."""

import pytest

from knfleet.apply.act.refusals import refusal
from knfleet.apply.change_set import FailureKind, MissingRight
from knfleet.apply.refs import Ref
from knfleet.kube.errors import KubeError, RequestTimeout, error_type

REF = Ref("", "ConfigMap", "home", "c")


def error(
    code: int, message: str, reason: str = "", causes: tuple[tuple[str, str], ...] = ()
) -> KubeError:
    """An error as the client raises it."""
    return error_type(code, reason)(message, code=code, reason=reason, causes=causes)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            error(403, 'configmaps "c" is forbidden: exceeded quota: q, requested: x'),
            FailureKind.QUOTA,
        ),
        (
            error(403, "x is forbidden: unable to create new content in namespace n because it is "
                       "being terminated"),
            FailureKind.TERMINATING,
        ),
        (error(404, 'namespaces "home" not found', "NotFound"), FailureKind.NO_NAMESPACE),
        (error(404, "the server could not find the requested resource"), FailureKind.UNKNOWN_KIND),
        (error(400, 'admission webhook "w" denied the request: no'), FailureKind.DENIED),
        (error(403, 'admission webhook "w" denied the request: no'), FailureKind.DENIED),
        (error(422, "ValidatingAdmissionPolicy 'p' denied request: x"), FailureKind.DENIED),
        (
            error(500, 'Internal error occurred: failed calling webhook "w": no endpoints'),
            FailureKind.WEBHOOK,
        ),
        (
            error(403, 'clusterroles "r" is forbidden: user "u" (groups=[]) is attempting to grant'
                       " RBAC permissions not currently held:\n{}"),
            FailureKind.ESCALATION,
        ),
        (error(500, "failed to create typed patch object: .x: field not declared in schema"),
         FailureKind.INVALID),
        (error(409, "the object has been modified"), FailureKind.CONFLICT),
        (error(429, "storage is (re)initializing"), FailureKind.NOT_ESTABLISHED),
        (error(500, "etcdserver: leader changed"), FailureKind.OTHER),
        (RequestTimeout("nobody"), FailureKind.UNANSWERED),
    ],
)  # fmt: skip
def test_refusals_are_told_apart(given: KubeError, why: FailureKind) -> None:
    """Only one of three kinds of 403 is about rights."""
    assert refusal(REF, given).why == why
    assert refusal(REF, given).denials == ()


def test_a_missing_right_is_named() -> None:
    """With verb, kind, group and namespace."""
    text = (
        'deployments.apps "d" is forbidden: User "system:serviceaccount:a:b" cannot patch resource'
        ' "deployments" in API group "apps" in the namespace "home"'
    )

    failure = refusal(REF, error(403, text, "Forbidden"))

    assert failure.why == FailureKind.FORBIDDEN
    assert failure.denials == (MissingRight("deployments", "apps", "patch", "home"),)
    assert str(failure.denials[0]) == "patch deployments.apps in home"


def test_a_field_that_cannot_be_changed_is_named_without_the_server_s_dump() -> None:
    """The message of a Job's template is thousands of characters long."""
    long = f"Invalid value: {'x' * 5000}: field is immutable"

    failure = refusal(REF, error(422, f"Job is invalid: {long}", causes=(("spec.template", long),)))

    assert failure.why == FailureKind.IMMUTABLE
    assert failure.message.startswith("spec.template cannot be changed")
    assert len(failure.message) < 200


def test_an_object_that_is_wrong_otherwise_is_not_called_immutable() -> None:
    """Making it anew would not help."""
    causes = (("spec.selector", "field is immutable"), ("spec.replicas", "must be >= 0"))

    assert refusal(REF, error(422, "invalid", causes=causes)).why == FailureKind.INVALID
