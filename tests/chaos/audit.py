"""Reads the audit logs of API servers: who wrote what, when, and who took the Lease."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from knfleet.api.core import LEASES
from knfleet.api.meta import Object
from knfleet.operator.settings import LEASE
from tests.chaos.evidence import Evidence, Taken, Write

WRITING = ["create", "update", "patch", "delete", "deletecollection"]
QUESTIONS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
"""Groups whose objects are created to ask something, and change nothing."""


def policy(group: str) -> Object:
    """What to log: the writes of one group of users, and what they write into Leases."""
    chosen: Object = {"userGroups": [group], "verbs": WRITING}
    leases = [{"group": LEASES.group, "resources": [LEASES.plural]}]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [
            {"level": "Request", "resources": leases, **chosen},
            {"level": "Metadata", **chosen},
            {"level": "None"},
        ],
    }


class User(Struct, frozen=True):
    """Who sent a request."""

    username: str


class Reference(Struct, frozen=True):
    """What a request is about."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    group: str = msgspec.field(name="apiGroup", default="")
    subresource: str = ""


class Answered(Struct, frozen=True):
    """What the server answered."""

    code: int = 0


class Event(Struct, frozen=True, rename="camel"):
    """One line of an audit log."""

    verb: str
    user: User
    request_received_timestamp: datetime
    request_uri: str = msgspec.field(name="requestURI", default="")
    user_agent: str = ""
    object_ref: Reference = Reference()
    response_status: Answered = Answered()
    request_object: dict[str, Any] = {}

    @property
    def at(self) -> float:
        """When the server received it."""
        return self.request_received_timestamp.timestamp()

    @property
    def process(self) -> str:
        """What the process that sent it calls itself, behind the name of the program."""
        return self.user_agent.partition(" ")[2]

    @property
    def is_write(self) -> bool:
        """Whether something was changed by it, as far as the server says."""
        return (
            self.response_status.code < 300
            and self.object_ref.group not in QUESTIONS
            and self.object_ref.subresource != "token"
            and "dryRun=All" not in self.request_uri
        )

    @property
    def is_campaign(self) -> bool:
        """Whether it is about the Lease of the operators."""
        return self.object_ref.resource == LEASES.plural and self.object_ref.name == LEASE

    @property
    def is_report(self) -> bool:
        """Whether it tells something that nobody acts upon."""
        return self.object_ref.resource == "events"

    @property
    def what(self) -> str:
        """The verb and the object."""
        ref = self.object_ref
        kind = "/".join(filter(None, (ref.resource, ref.subresource)))
        return f"{self.verb} {kind} {'/'.join(filter(None, (ref.namespace, ref.name)))}"


class Log:
    """The audit log of one cluster, read as it grows."""

    def __init__(self, cluster: str, path: Path) -> None:
        self.cluster = cluster
        self.path = path
        self.offset = 0

    def news(self) -> Iterator[Event]:
        """What was logged since the last look; a line that is not whole yet comes next time."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self.offset += len(line)
                yield msgspec.json.decode(line, type=Event)


def short(username: str) -> str:
    """The name of an operator from that of its account."""
    return username.rpartition(":")[2]


def take_in(evidence: Evidence, cluster: str, events: Iterable[Event]) -> list[Write]:
    """Sort events into writes and changes of the Lease's holder; the writes that are new."""
    found: list[Write] = []
    for event in events:
        if not event.is_write or event.is_report:
            continue
        if event.is_campaign:
            note_holder(evidence, event)
        else:
            user = short(event.user.username)
            found.append(Write(cluster, user, event.process, event.at, event.what))
    evidence.writes += found
    return found


def note_holder(evidence: Evidence, event: Event) -> None:
    """Keep a write of the Lease if it changes the holder."""
    holder = event.request_object.get("spec", {}).get("holderIdentity") or ""
    before = evidence.taken[-1].holder if evidence.taken else ""
    if holder != before:
        evidence.taken.append(Taken(event.at, short(event.user.username), holder))
