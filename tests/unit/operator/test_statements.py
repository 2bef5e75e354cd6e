"""What statuses say, step by step."""

from datetime import UTC, datetime

import msgspec

from knfleet.api.knative import conditions
from knfleet.api.knative.resources import KnativeStatus
from knfleet.operator.status.status_builder import StatusBuilder, patch_of, same, status_of
from tests.unit.operator.samples import serving

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)


def begin(status: KnativeStatus | None = None, now: datetime = NOW) -> StatusBuilder:
    """A statement of a second generation."""
    return StatusBuilder(status or KnativeStatus(), 2, now)


def said(statement: StatusBuilder, type_: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition."""
    found = conditions.find(statement.status.conditions, type_)
    assert found is not None
    return found.status, found.reason, found.message


def installed() -> KnativeStatus:
    """The status of an installation that works."""
    statement = begin()
    statement.eligible()
    statement.resolved()
    statement.applied(("/releases/knative-serving/1.23.0",))
    statement.available()
    statement.succeeded("1.23.0")
    return statement.status


def test_a_whole_pass_ends_ready() -> None:
    """All six conditions are True, and the rest is recorded."""
    status = installed()

    assert {each.type: each.status for each in status.conditions} == dict.fromkeys(
        ("Ready", *conditions.DEPENDENTS), "True"
    )
    assert status.observed_generation == 2
    assert status.version == "1.23.0"
    assert status.manifests == ["/releases/knative-serving/1.23.0"]


def test_every_word_is_upstreams() -> None:
    """People and programs search for these."""
    statement = begin()

    statement.not_eligible("too far")
    assert said(statement, "VersionMigrationEligible") == (
        "False",
        "Error",
        "Version migration is not eligible with message: too far",
    )
    assert said(statement, "Ready")[2].endswith("too far")
    statement.eligible()
    statement.failed("no")
    assert said(statement, "InstallSucceeded") == (
        "False",
        "Error",
        "Install failed with message: no",
    )
    statement.waiting("Waiting on deployments: a")
    assert said(statement, "DeploymentsAvailable")[:2] == ("False", "NotReady")
    statement.not_resolved("ClusterProfileNotFound", "gone")
    assert said(statement, "TargetClusterResolved")[:2] == ("False", "ClusterProfileNotFound")


def test_a_failure_is_over_when_everything_is_applied() -> None:
    """It does not stick until everything works, as it does upstream."""
    statement = begin()
    statement.failed("a webhook denied it")

    statement.applied(())

    assert said(statement, "InstallSucceeded")[0] == "Unknown"


def test_an_installation_that_worked_says_so_while_pods_come_and_go() -> None:
    """Only the workloads' own condition changes."""
    statement = begin(installed(), LATER)

    statement.applied(())
    statement.waiting("Waiting on deployments: a")

    assert said(statement, "InstallSucceeded")[0] == "True"
    assert said(statement, "Ready") == ("False", "NotReady", "Waiting on deployments: a")
    assert statement.status.version == "1.23.0"


def test_the_same_said_later_is_the_same() -> None:
    """A pass over what is settled writes nothing."""
    statement = begin(installed(), LATER)
    statement.eligible()
    statement.resolved()
    statement.applied(("/releases/knative-serving/1.23.0",))
    statement.available()
    statement.succeeded("1.23.0")

    assert same(statement.status, installed())
    assert statement.status.conditions == installed().conditions


def test_what_others_annotate_is_neither_compared_nor_written() -> None:
    """`status.annotations` is free for others."""
    manifest = serving()
    manifest["status"] = {**msgspec.to_builtins(installed()), "annotations": {"a": "b"}}

    read = status_of(manifest)

    assert same(read, installed())
    assert "annotations" not in patch_of(manifest, read)["status"]
    assert patch_of(manifest, read)["metadata"]["uid"] == "uid-one"


def test_a_status_that_cannot_be_read_counts_as_none() -> None:
    """Somebody else may have written anything there."""
    manifest = serving()
    manifest["status"] = {"conditions": "yes"}

    assert status_of(manifest) == KnativeStatus()


def test_a_pause_is_said_beside_what_was_last_known() -> None:
    """Ready stays what it was, and nothing of the pause is left afterwards."""
    statement = begin(installed(), LATER)

    statement.paused("because")

    assert said(statement, "Paused") == ("True", "Paused", "because")
    assert said(statement, "Ready") == ("True", "", "")
    statement.not_paused()
    assert same(statement.status, installed())
