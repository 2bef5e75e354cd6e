"""Conditions that rules of a work compute from an object: by CEL, or as known for its kind."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from knfleet.api.knative.conditions import Status
from knfleet.api.meta import Object
from knfleet.api.texts import bounded
from knfleet.api.work.manifestwork import COMPLETE, ConditionRule
from knfleet.expressions.cel import CelError, CompileError, Environment, Function

EVALUATED = "ConditionRuleEvaluated"
INVALID = "ConditionRuleInvalid"
EXPRESSION_ERROR = "ConditionRuleExpressionError"
MESSAGE_BYTES = 1024

WELL_KNOWN: dict[tuple[str, str], ConditionRule] = {
    ("batch/v1", "Job"): ConditionRule(
        condition=COMPLETE,
        type="CEL",
        cel_expressions=[
            (
                "has(object.status) && hasConditions(object.status)"
                " && object.status.conditions.exists("
                "c, c.type in ['Complete', 'Failed'] && c.status == 'True')"
            )
        ],
        message_expression="result ? 'Job is finished' : 'Job is not finished'",
    ),
    ("v1", "Pod"): ConditionRule(
        condition=COMPLETE,
        type="CEL",
        cel_expressions=[
            (
                "has(object.status) && has(object.status.phase)"
                " && object.status.phase in ['Succeeded', 'Failed']"
            )
        ],
        message_expression=(
            "has(object.status) && has(object.status.phase)"
            " ? 'Pod is in phase ' + object.status.phase : 'Pod has no phase yet'"
        ),
    ),
}
"""What completes kinds of Kubernetes."""


class RuleResult(Struct, frozen=True):
    """A condition that a rule computed."""

    type: str
    status: Status
    reason: str
    message: str


def has_conditions(status: Any) -> bool:
    """Whether a status has conditions."""
    if not isinstance(status, Mapping):
        return False
    found = cast("Mapping[str, Any]", status).get("conditions")
    return isinstance(found, list) and found != []


def environment() -> Environment:
    """Where rules are compiled."""
    helper = Function("hasConditions", ("any",), "bool", has_conditions)
    return Environment({"object": "any", "result": "bool"}, [helper])


def evaluate_rules(
    manifest: Object, rules: Sequence[ConditionRule], cel: Environment
) -> tuple[RuleResult, ...]:
    """The conditions of an object by some rules."""
    return tuple(evaluate_rule(manifest, rule, cel) for rule in rules)


def evaluate_rule(manifest: Object, rule: ConditionRule, cel: Environment) -> RuleResult:
    """The condition of an object by one rule."""
    if rule.type == "WellKnownConditions":
        known = well_known(manifest, rule)
        if known is None:
            kind = f"{manifest.get('kind')} in {manifest.get('apiVersion')}"
            message = f"no well-known conditions for {kind}"
            return RuleResult(rule.condition or COMPLETE, "Unknown", INVALID, message)
        rule = known
    try:
        result = all(
            is_true(each, {"object": manifest, "result": False}, cel)
            for each in rule.cel_expressions
        )
    except CompileError as error:
        return failed(rule, EXPRESSION_ERROR, f"the expression does not compile: {error}")
    except CelError as error:
        return failed(rule, EXPRESSION_ERROR, str(error))
    status: Status = "True" if result else "False"
    return RuleResult(rule.condition, status, EVALUATED, message_of(manifest, rule, result, cel))


def well_known(manifest: Object, rule: ConditionRule) -> ConditionRule | None:
    """The built-in rule for an object's kind, with the condition and messages of a rule."""
    kind = (str(manifest.get("apiVersion")), str(manifest.get("kind")))
    known = WELL_KNOWN.get(kind)
    if known is None:
        return None
    own_message = bool(rule.message or rule.message_expression)
    return replace(
        known,
        condition=rule.condition or known.condition,
        message=rule.message,
        message_expression=rule.message_expression if own_message else known.message_expression,
    )


def is_true(expression: str, values: Object, cel: Environment) -> bool:
    """The value of one expression."""
    return cel.condition(expression).is_true(cel.values(values))


def message_of(manifest: Object, rule: ConditionRule, result: bool, cel: Environment) -> str:
    """What the condition says: by expression, as the rule has it, or in general."""
    if rule.message_expression:
        try:
            values = cel.values({"object": manifest, "result": result})
            message = cel.compile(rule.message_expression).evaluate(values)
        except CelError as error:
            return bounded(f"messageExpression: {error}", MESSAGE_BYTES)
        if isinstance(message, str) and message:
            return bounded(message, MESSAGE_BYTES)
        if not isinstance(message, str):
            return "messageExpression: the value of the expression is not a text"
    if rule.message:
        return bounded(rule.message, MESSAGE_BYTES)
    return f"WorkManifest is {'' if result else 'not '}{rule.condition}"


def failed(rule: ConditionRule, reason: str, problem: str) -> RuleResult:
    """The condition of a rule whose expressions have no value."""
    return RuleResult(rule.condition, "False", reason, bounded(problem, MESSAGE_BYTES))
