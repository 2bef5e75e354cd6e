"""Audit logs become writes and terms; what changes nothing is left out."""

from pathlib import Path
from typing import Any

import msgspec

from knfleet.operator.settings import LEASE
from tests.chaos.audit import Log, take_in
from tests.chaos.evidence import Evidence, Taken, Write

MOMENT = "2026-11-16T08:00:00.500000Z"
SECONDS = 1794816000.5


def event(verb: str = "patch", code: int = 200, **fields: Any) -> dict[str, Any]:
    """An event as API servers log it."""
    return {
        "kind": "Event",
        "level": "Metadata",
        "stage": "ResponseComplete",
        "verb": verb,
        "requestURI": "/api/v1/namespaces/x/configmaps/y?fieldManager=knfleet",
        "userAgent": "knfleet/1.0 process-1",
        "user": {"username": "system:serviceaccount:chaos:operator-a", "groups": ["any"]},
        "objectRef": {"resource": "configmaps", "namespace": "x", "name": "y", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": code},
        "requestReceivedTimestamp": MOMENT,
        **fields,
    }


def lease(holder: str) -> dict[str, Any]:
    """A write of the operators' Lease."""
    reference = {"resource": "leases", "apiGroup": "coordination.k8s.io", "name": LEASE}
    return event("update", objectRef=reference, requestObject={"spec": {"holderIdentity": holder}})


def taken_in(path: Path, *events: dict[str, Any]) -> Evidence:
    """What follows from a log with some events."""
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in events))
    evidence = Evidence()
    take_in(evidence, "spoke1", Log("spoke1", path).news())
    return evidence


def test_an_accepted_write_is_one_with_its_writer_and_time(tmp_path: Path) -> None:
    found = taken_in(tmp_path / "audit", event())

    (written,) = found.writes
    assert written == Write("spoke1", "operator-a", "process-1", SECONDS, "patch configmaps x/y")


def test_what_was_refused_tried_or_asked_is_no_write(tmp_path: Path) -> None:
    """Nor is an Event, upon which nobody acts."""
    review = {"resource": "selfsubjectaccessreviews", "apiGroup": "authorization.k8s.io"}
    found = taken_in(
        tmp_path / "audit",
        event(code=409),
        event(requestURI="/api/v1/namespaces/x/configmaps/y?dryRun=All"),
        event("create", objectRef=review),
        event("create", objectRef={"resource": "events", "namespace": "x"}),
    )

    assert found.writes == []


def test_a_term_begins_with_another_holder_and_not_with_a_renewal(tmp_path: Path) -> None:
    found = taken_in(tmp_path / "audit", *map(lease, ("one", "one", "", "two")))

    assert found.writes == []
    assert found.taken == [Taken(SECONDS, "operator-a", each) for each in ("one", "", "two")]


def test_a_log_is_read_as_it_grows_and_only_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    log = Log("spoke1", path)
    assert list(log.news()) == []

    line = msgspec.json.encode(event()) + b"\n"
    path.write_bytes(line + line[:20])
    assert len(list(log.news())) == 1

    path.write_bytes(line + line)
    assert len(list(log.news())) == 1
    assert list(log.news()) == []
