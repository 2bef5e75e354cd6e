"""What a server's refusal means, by who can fix it."""

import re

from knfleet.apply.change_set import FailureKind, MissingRight, ObjectFailure
from knfleet.apply.refs import Ref
from knfleet.kube.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NetworkError,
    NotFound,
)

CANNOT = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)
"""How an API server's authorizer says no."""
IMMUTABLE = re.compile(
    r"field is immutable|may not change once set|cannot change roleRef|updates to .* are forbidden"
    r"|is immutable"
)
BY_TEXT = (
    ("denied the request", FailureKind.DENIED),
    ("denied request", FailureKind.DENIED),
    ("failed calling webhook", FailureKind.WEBHOOK),
    ("conversion webhook for", FailureKind.WEBHOOK),
    ("because it is being terminated", FailureKind.TERMINATING),
    ("exceeded quota", FailureKind.QUOTA),
    ("attempting to grant RBAC permissions not currently held", FailureKind.ESCALATION),
    ("field not declared in schema", FailureKind.INVALID),
    ("failed to create typed patch object", FailureKind.INVALID),
    ("storage is (re)initializing", FailureKind.NOT_ESTABLISHED),
)
NOT_SERVED = ("the server could not find the requested resource", "404 page not found")
LONGEST_MESSAGE = 600


def refusal(ref: Ref, error: KubeError, verb: str = "apply") -> ObjectFailure:
    """The failure that an error of the client stands for."""
    why = reason_of(error)
    denials = denials_of(error) if why == FailureKind.FORBIDDEN else ()
    return ObjectFailure(ref, why, sentence(why, error), verb, denials)


def reason_of(error: KubeError) -> FailureKind:
    if isinstance(error, NetworkError):
        return FailureKind.UNANSWERED
    if not isinstance(error, ApiError):
        return FailureKind.OTHER
    kind = next((why for text, why in BY_TEXT if text in error.message), None)
    return kind or reason_by_code(error)


def reason_by_code(error: ApiError) -> FailureKind:
    """The same, when the server's words do not tell."""
    match error:
        case Forbidden():
            why = FailureKind.FORBIDDEN if CANNOT.search(error.message) else FailureKind.DENIED
        case Invalid():
            why = FailureKind.IMMUTABLE if immutable_fields(error) else FailureKind.INVALID
        case NotFound() if any(text in error.message for text in NOT_SERVED):
            why = FailureKind.UNKNOWN_KIND
        case NotFound() if error.message.startswith("namespaces "):
            why = FailureKind.NO_NAMESPACE
        case Conflict():
            why = FailureKind.CONFLICT
        case _:
            why = FailureKind.INVALID if error.code == 400 else FailureKind.OTHER
    return why


def denials_of(error: KubeError) -> tuple[MissingRight, ...]:
    """The right that was missing."""
    found = CANNOT.search(str(error))
    if found is None:
        return ()
    return (
        MissingRight(found["resource"], found["group"], found["verb"], found["namespace"] or ""),
    )


def immutable_fields(error: Invalid) -> list[str]:
    """The fields that cannot be changed, when nothing else is wrong."""
    causes = error.causes or (("", error.message),)
    if not all(IMMUTABLE.search(message) for _, message in causes):
        return []
    return [field or "a field" for field, _ in causes]


def sentence(why: FailureKind, error: KubeError) -> str:
    """What to tell people; values that the server repeats are left out where they are long."""
    message = error.message if isinstance(error, ApiError) else str(error)
    if why == FailureKind.IMMUTABLE and isinstance(error, Invalid):
        fields = ", ".join(immutable_fields(error))
        return (
            f"{fields} cannot be changed on an object that exists;"
            " delete the object, and it is made anew with the new value"
        )
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[: LONGEST_MESSAGE - 100]} … {message[-99:]}"
    return message
