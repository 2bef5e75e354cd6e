"""What is reported about works, as pure functions."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from knfleet.agent.work.eviction import NEVER, eviction
from knfleet.agent.work.observed.condition_rules import RuleResult, environment, evaluate_rule
from knfleet.agent.work.observed.feedback import Feedback, FeedbackOptions, read_feedback
from knfleet.agent.work.work_status import (
    STATUS_BYTES,
    Outcome,
    deleting_condition,
    is_complete,
    work_status,
)
from knfleet.api.conditions import find
from knfleet.api.meta import Object
from knfleet.api.work.manifestwork import (
    ConditionRule,
    FeedbackRule,
    JsonPath,
    ManifestResourceMeta,
    ManifestWorkStatus,
)

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
DEPLOYMENT: Object = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "status": {"replicas": 2, "readyReplicas": 1, "conditions": [{"type": "A", "status": "True"}]},
}


def feedback(rules: list[FeedbackRule], **options: Any) -> tuple[dict[str, Any], str]:
    """Values by name, and the problems."""
    found = read_feedback(DEPLOYMENT, rules, FeedbackOptions(**options))
    values = {each.name: msgspec.to_builtins(each.field_value) for each in found.values}
    return values, "; ".join(found.problems)


def at(path: str, version: str = "") -> list[FeedbackRule]:
    """A rule for one value."""
    return [
        FeedbackRule(type="JSONPaths", json_paths=[JsonPath(name="v", path=path, version=version)])
    ]


@pytest.mark.parametrize(
    ("rules", "options", "values", "problem"),
    [
        (
            [FeedbackRule(type="WellKnownStatus")],
            {},
            {
                "ReadyReplicas": {"type": "Integer", "integer": 1},
                "Replicas": {"type": "Integer", "integer": 2},
            },
            "",
        ),
        (at(".kind"), {}, {"v": {"type": "String", "string": "Deployment"}}, ""),
        (at(".status.absent"), {}, {}, ""),
        (at(".kind", "v1"), {}, {"v": {"type": "String", "string": "Deployment"}}, ""),
        (at(".kind", "v2"), {}, {}, "version v2"),
        (at(".status["), {}, {}, "is no JSONPath"),
        (at(".status.conditions"), {}, {}, "RawFeedbackJsonString"),
        (
            at(".status.conditions[*].type"),
            {"raw_json": True},
            {"v": {"type": "String", "string": "A"}},
            "",
        ),
        (
            at(".status.conditions[0]"),
            {"raw_json": True},
            {"v": {"type": "JsonRaw", "jsonRaw": '{"type":"A","status":"True"}'}},
            "",
        ),
        (at(".status"), {"raw_json": True, "raw_length": 10}, {}, "more than 10 characters"),
    ],
)
def test_rules_report_values_or_say_why_not(
    rules: list[FeedbackRule], options: Object, values: Object, problem: str
):
    found, problems = feedback(rules, **options)

    assert found == values
    assert problem in problems
    assert bool(problem) == bool(problems)


def test_the_first_of_two_values_of_a_name_counts():
    found, _ = feedback([*at(".kind"), *at(".apiVersion")])

    assert found == {"v": {"type": "String", "string": "Deployment"}}


JOB: Object = {"apiVersion": "batch/v1", "kind": "Job"}
FINISHED: Object = {**JOB, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}
POD: Object = {"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running"}}
KNOWN = ConditionRule(condition="Complete", type="WellKnownConditions")


def cel(*expressions: str, **more: str) -> ConditionRule:
    """A rule in CEL."""
    return ConditionRule(condition="C", type="CEL", cel_expressions=list(expressions), **more)


@pytest.mark.parametrize(
    ("manifest", "rule", "status", "reason", "message"),
    [
        (JOB, KNOWN, "False", "Evaluated", "Job is not finished"),
        (FINISHED, KNOWN, "True", "Evaluated", "Job is finished"),
        (POD, KNOWN, "False", "Evaluated", "Pod is in phase Running"),
        ({**POD, "status": {"phase": "Failed"}}, KNOWN, "True", "Evaluated", "phase Failed"),
        (DEPLOYMENT, KNOWN, "Unknown", "Invalid", "no well-known conditions"),
        (
            JOB,
            ConditionRule(condition="Done", type="WellKnownConditions", message="mine"),
            "False",
            "Evaluated",
            "mine",
        ),
        (POD, cel("true", "object.kind == 'Pod'"), "True", "Evaluated", "Manifest is C"),
        (POD, cel("true", "false"), "False", "Evaluated", "Manifest is not C"),
        (POD, cel("true", message="m"), "True", "Evaluated", "m"),
        (POD, cel("true", message_expression="result ? 'y' : 'n'"), "True", "Evaluated", "y"),
        (POD, cel("true", message_expression="1"), "True", "Evaluated", "not a text"),
        (POD, cel("true", message_expression="1 +"), "True", "Evaluated", "messageExpression"),
        (POD, cel("object."), "False", "ExpressionError", "does not compile"),
        (POD, cel("1 + 1"), "False", "ExpressionError", ""),
        (POD, cel("object.absent.deeper"), "False", "ExpressionError", ""),
        (POD, cel("hasConditions(object.status)"), "False", "Evaluated", "Manifest is not C"),
    ],
)
def test_a_rule_makes_a_condition(
    manifest: Object, rule: ConditionRule, status: str, reason: str, message: str
):
    found = evaluate_rule(manifest, rule, environment())

    assert (found.status, found.reason) == (status, f"ConditionRule{reason}")
    assert message in found.message


META = ManifestResourceMeta(version="v1", kind="ConfigMap", resource="configmaps", name="a")


def rule(type_: str, status: Any) -> RuleResult:
    """What a rule says."""
    return RuleResult(type_, status, "ConditionRuleEvaluated", "m")


def conditions(status: ManifestWorkStatus) -> dict[str, str]:
    """The conditions of a work, by type."""
    return {each.type: each.status for each in status.conditions}


@pytest.mark.parametrize(
    ("outcomes", "wanted"),
    [
        ([Outcome(META, exists=True)], {"Applied": "True", "Available": "True"}),
        ([Outcome(META, "no", exists=True)], {"Applied": "False", "Available": "True"}),
        ([Outcome(META, exists=False)], {"Applied": "True", "Available": "False"}),
        ([Outcome(META, unknown="down")], {"Applied": "True", "Available": "Unknown"}),
        (
            [Outcome(META, exists=True), Outcome(META, unknown="down")],
            {"Applied": "True", "Available": "Unknown"},
        ),
        (
            [
                Outcome(META, exists=True, rules=(rule("Progressing", "True"),)),
                Outcome(META, exists=True, rules=(rule("Progressing", "False"),)),
            ],
            {"Applied": "True", "Available": "True", "Progressing": "True"},
        ),
        (
            [
                Outcome(META, exists=True, rules=(rule("Complete", "True"),)),
                Outcome(META, exists=True, rules=(rule("Complete", "False"),)),
                Outcome(META, exists=True),
            ],
            {"Applied": "True", "Available": "True", "Complete": "False"},
        ),
        (
            [
                Outcome(META, exists=True, rules=(rule("Complete", "True"),)),
                Outcome(META, exists=True),
            ],
            {"Applied": "True", "Available": "True", "Complete": "True"},
        ),
    ],
)
def test_manifests_are_summed_up(outcomes: list[Outcome], wanted: dict[str, str]):
    status = work_status(outcomes, ManifestWorkStatus(), 3, NOW)

    assert conditions(status) == wanted
    assert {each.observed_generation for each in status.conditions} == {3}


def test_a_status_that_says_the_same_is_the_same():
    outcomes = [Outcome(META, exists=True, feedback=Feedback(), rules=(rule("C", "True"),))]
    first = work_status(outcomes, ManifestWorkStatus(), 1, NOW)

    assert work_status(outcomes, first, 1, LATER) == first


def test_a_transition_has_its_own_time_and_a_generation_has_not():
    first = work_status([Outcome(META, exists=True)], ManifestWorkStatus(), 1, NOW)
    second = work_status([Outcome(META, "no", exists=True)], first, 2, LATER)

    applied, available = (find(second.conditions, type_) for type_ in ("Applied", "Available"))
    assert applied is not None
    assert available is not None
    assert applied.last_transition_time == "2026-11-18T12:01:00Z"
    assert available.last_transition_time == "2026-11-18T12:00:00Z"
    assert available.observed_generation == 2


def test_conditions_of_rules_go_with_the_rules():
    first = work_status(
        [Outcome(META, exists=True, rules=(rule("Mine", "True"),))], ManifestWorkStatus(), 1, NOW
    )
    second = work_status([Outcome(META, exists=True)], first, 2, LATER)

    assert conditions(second) == {"Applied": "True", "Available": "True"}
    assert find(second.resource_status.manifests[0].conditions, "Mine") is None


def test_a_complete_manifest_stays_complete_when_its_object_is_gone():
    first = work_status(
        [Outcome(META, exists=True, rules=(rule("Complete", "True"),))],
        ManifestWorkStatus(),
        1,
        NOW,
    )
    second = work_status([Outcome(META, exists=False, completed=True)], first, 2, LATER)

    assert is_complete(second.resource_status.manifests[0])
    assert conditions(second)["Complete"] == "True"


def test_a_manifest_that_moved_keeps_its_conditions():
    first = work_status([Outcome(META, exists=True)], ManifestWorkStatus(), 1, NOW)
    moved = msgspec.structs.replace(META, ordinal=1)
    other = msgspec.structs.replace(META, name="b")

    second = work_status(
        [Outcome(other, exists=True), Outcome(moved, exists=True)], first, 2, LATER
    )

    times = [each.conditions[0].last_transition_time for each in second.resource_status.manifests]
    assert times == ["2026-11-18T12:01:00Z", "2026-11-18T12:00:00Z"]


@pytest.mark.parametrize("problem", ["", "x" * 5000])
def test_a_status_of_thousands_fits_into_the_store(problem: str):
    outcomes = [
        Outcome(
            msgspec.structs.replace(META, ordinal=number, name=f"{'n' * 60}-{number}"),
            problem,
            exists=not problem,
        )
        for number in range(3000)
    ]

    status = work_status(outcomes, ManifestWorkStatus(), 1, NOW)

    assert len(msgspec.json.encode(status)) <= STATUS_BYTES
    assert conditions(status)["Applied"] == ("False" if problem else "True")


def test_each_of_two_thousand_manifests_has_a_status():
    """As many small objects fit into one work; what is True and goes without saying is left out."""
    outcomes = [
        Outcome(msgspec.structs.replace(META, ordinal=number, name=f"many-{number}"), exists=True)
        for number in range(2000)
    ]

    found = work_status(outcomes, ManifestWorkStatus(), 1, NOW).resource_status.manifests

    assert len(found) == 2000
    assert {each.status for one in found for each in one.conditions} == {"True"}
    assert all(any(each.type == "Applied" for each in one.conditions) for one in found)


def test_a_deletion_that_is_held_up_names_some_of_the_objects():
    condition = deleting_condition([f"configmaps a/{number}" for number in range(9)], 4)

    assert condition.reason == "WorkDeleting"
    assert "9 objects" in condition.message
    assert condition.message.endswith("; and 4 more")


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("wanted", "started", "grace", "action"),
    [
        (True, "", HOUR, "keep"),
        (True, "2026-11-18T11:00:00Z", HOUR, "unmark"),
        (False, "", HOUR, "mark"),
        (False, "2026-11-18T11:30:00Z", HOUR, "wait"),
        (False, "2026-11-18T11:00:00Z", HOUR, "evict"),
        (False, "no time", HOUR, "mark"),
        (False, "", NEVER, "keep"),
        (False, "2026-11-18T11:00:00Z", NEVER, "unmark"),
    ],
)
def test_what_no_work_wants_goes_after_the_grace_period(
    wanted: bool, started: str, grace: timedelta, action: str
):
    decision = eviction(wanted=wanted, started=started, grace=grace, now=NOW)

    assert decision.action == action
    if action == "wait":
        assert decision.after_seconds == 1800
