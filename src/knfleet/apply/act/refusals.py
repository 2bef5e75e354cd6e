"""What a server's refusal means, in words that say who can mend it."""

import re

from knfleet.apply.change_set import Denial, Failure, Why
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
    ("denied the request", Why.DENIED),
    ("denied request", Why.DENIED),
    ("failed calling webhook", Why.WEBHOOK),
    ("conversion webhook for", Why.WEBHOOK),
    ("because it is being terminated", Why.TERMINATING),
    ("exceeded quota", Why.QUOTA),
    ("attempting to grant RBAC permissions not currently held", Why.ESCALATION),
    ("field not declared in schema", Why.INVALID),
    ("failed to create typed patch object", Why.INVALID),
    ("storage is (re)initializing", Why.NOT_ESTABLISHED),
)
NOT_SERVED = ("the server could not find the requested resource", "404 page not found")
LONGEST_MESSAGE = 600


def refusal(ref: Ref, error: KubeError, verb: str = "apply") -> Failure:
    """The failure that an error of the client stands for."""
    why = reason_of(error)
    denials = denials_of(error) if why == Why.FORBIDDEN else ()
    return Failure(ref, why, sentence(why, error), verb, denials)


def reason_of(error: KubeError) -> Why:
    """Which kind of failure an error is."""
    if isinstance(error, NetworkError):
        return Why.UNANSWERED
    if not isinstance(error, ApiError):
        return Why.OTHER
    said = next((why for text, why in BY_TEXT if text in error.message), None)
    return said or reason_by_code(error)


def reason_by_code(error: ApiError) -> Why:
    """The same, when the server's words do not tell."""
    match error:
        case Forbidden():
            why = Why.FORBIDDEN if CANNOT.search(error.message) else Why.DENIED
        case Invalid():
            why = Why.IMMUTABLE if immutable_fields(error) else Why.INVALID
        case NotFound() if any(text in error.message for text in NOT_SERVED):
            why = Why.UNKNOWN_KIND
        case NotFound() if error.message.startswith("namespaces "):
            why = Why.NO_NAMESPACE
        case Conflict():
            why = Why.CONFLICT
        case _:
            why = Why.INVALID if error.code == 400 else Why.OTHER
    return why


def denials_of(error: KubeError) -> tuple[Denial, ...]:
    """The right that was missing."""
    found = CANNOT.search(str(error))
    if found is None:
        return ()
    return (Denial(found["resource"], found["group"], found["verb"], found["namespace"] or ""),)


def immutable_fields(error: Invalid) -> list[str]:
    """The fields that cannot be changed, when nothing else is wrong."""
    causes = error.causes or (("", error.message),)
    if not all(IMMUTABLE.search(message) for _, message in causes):
        return []
    return [field or "a field" for field, _ in causes]


def sentence(why: Why, error: KubeError) -> str:
    """What to tell people; values that the server repeats are left out where they are long."""
    message = error.message if isinstance(error, ApiError) else str(error)
    if why == Why.IMMUTABLE and isinstance(error, Invalid):
        fields = ", ".join(immutable_fields(error))
        return (
            f"{fields} cannot be changed on an object that exists;"
            " delete the object, and it is made anew with the new value"
        )
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[: LONGEST_MESSAGE - 100]} … {message[-99:]}"
    return message
