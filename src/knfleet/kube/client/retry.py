"""Which requests may be sent again, and when.

| Verb                       | 429 or unsent | 5xx or answer lost | because                       |
|----------------------------|---------------|--------------------|-------------------------------|
| get, list, any dry run     | again         | again              | changes nothing               |
| apply                      | again         | again              | says what should be           |
| replace                    | again         | again              | the same, or a Conflict       |
| merge and strategic patch  | again         | again              | sets the same values          |
| JSON patch with a test     | again         | again              | the test fails next time      |
| JSON patch without         | again         | no                 | may append twice              |
| delete by uid or version   | again         | again              | hits no later object; the     |
|                            |               |                    | second may say NotFound       |
| delete by name alone       | again         | no                 | may hit a later object        |
| delete a collection        | again         | no                 | may hit later objects         |
| create                     | again         | no                 | may make two, or meet itself  |
| watch                      | no            | no                 | the informer resumes it       |

A 429 says that the server did not look at the request, and so does a 503 of a server that shuts
down, or that takes up a changed CRD just then. A 401 is answered by one new login and one
more attempt, whatever the verb: the server refused to look, too.
"""

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.kube.errors import NetworkError, TlsFailed

FINAL = ("field not declared in schema", "failed to create typed patch object")
"""What a server says with a 500 of objects that are wrong in themselves: always the same."""


UNTOUCHED = "apiserver is shutting down"
"""A server's words with a 503 when it passed a request to no handler."""


class RequestVerb(Struct, frozen=True):
    """What a request does, and whether it may be done twice."""

    name: str
    method: str
    repeatable: bool
    doubt: str = ""
    """What to tell about a request that may or may not have been done."""

    def dry(self) -> "RequestVerb":
        """The same, when it is only tried."""
        return RequestVerb(self.name, self.method, repeatable=True)


GET = RequestVerb("get", "GET", repeatable=True)
LIST = RequestVerb("list", "GET", repeatable=True)
WATCH = RequestVerb("watch", "GET", repeatable=True)
APPLY = RequestVerb("apply", "PATCH", repeatable=True)
REPLACE = RequestVerb("replace", "PUT", repeatable=True)
CREATE = RequestVerb("create", "POST", repeatable=False, doubt="the object may have been created")
PATCH = RequestVerb("patch", "PATCH", repeatable=True)
PATCH_ONCE = RequestVerb(
    "patch", "PATCH", repeatable=False, doubt="the object may have been changed"
)
DELETE = RequestVerb("delete", "DELETE", repeatable=True)
DELETE_ONCE = RequestVerb(
    "delete", "DELETE", repeatable=False, doubt="the object may have been deleted"
)
DELETE_COLLECTION = RequestVerb(
    "deletecollection", "DELETE", repeatable=False, doubt="objects may have been deleted"
)

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def raw_verb(method: str) -> RequestVerb:
    """The verb of a request about which nothing but the method is known."""
    if method in SAFE_METHODS:
        return RequestVerb("raw", method, repeatable=True)
    return RequestVerb("raw", method, repeatable=False, doubt="it may have been done")


def patch_verb(patch: Object | Sequence[Object]) -> RequestVerb:
    """The verb for a merge patch (a dict) or a JSON patch (a list)."""
    if isinstance(patch, dict) or any(step.get("op") == "test" for step in patch):
        return PATCH
    return PATCH_ONCE


class AttemptFailure(Struct, frozen=True):
    """One attempt that did not work."""

    error: Exception
    code: int = 0
    """The status of the answer; 0 when there was none."""
    sent: bool = True
    """Whether any of the request may have reached the server."""
    retry_after_seconds: float | None = None


def may_repeat(verb: RequestVerb, failure: AttemptFailure) -> bool:
    """Whether the request may be sent once more."""
    if failure.code == 429 or (failure.code == 503 and UNTOUCHED in str(failure.error)):
        return True
    if failure.code == 0:
        lost = isinstance(failure.error, NetworkError) and not isinstance(failure.error, TlsFailed)
        return lost and (verb.repeatable or not failure.sent)
    if failure.code == 500 and any(text in str(failure.error) for text in FINAL):
        return False
    return verb.repeatable and failure.code in {500, 502, 503, 504}


def backoff(failures: int, *, base: float, limit: float) -> float:
    """How long to wait after so many failures in a row: at random, up to a doubling limit."""
    return random.uniform(0.1, 1) * min(limit, base * 2.0 ** min(failures - 1, 32))  # noqa: S311 - not a secret


def retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """The seconds that a Retry-After header asks for; None when it does not say."""
    if not value:
        return None
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())
