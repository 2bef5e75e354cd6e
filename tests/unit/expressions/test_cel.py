"""CEL: what expressions can say, and what their authors are told when they are wrong."""

import re
import subprocess
import sys
from typing import Any

import pytest

from knfleet.expressions.cel import (
    BudgetExceeded,
    CompileError,
    Environment,
    EvaluationError,
    Function,
)
from knfleet.expressions.cel_kubernetes import KUBERNETES

CLUSTER: dict[str, Any] = {
    "metadata": {"name": "one", "labels": {"env": "prod", "version": "1.31.2", "empty": ""}},
    "status": {
        "version": {"kubernetes": "v1.31.4"},
        "allocatable": {"cpu": "8", "memory": "32Gi"},
        "clusterClaims": [
            {"name": "platform", "value": "aws"},
            {"name": "limits", "value": '{"gpu": [2, 4]}'},
        ],
        "conditions": [{"type": "Joined", "status": "True"}],
    },
}


def environment() -> Environment:
    return Environment({"cluster": "map"}, KUBERNETES)


def value(expression: str) -> Any:
    made = environment()
    return made.compile(expression).evaluate(made.values({"cluster": CLUSTER}))


@pytest.mark.parametrize(
    "expression",
    [
        'cluster.metadata.labels["env"] == "prod"',
        'cluster.metadata.labels.version.matches("^1\\\\.(30|31)\\\\.\\\\d+$")',
        'cluster.status.clusterClaims.exists(c, c.name == "platform" && c.value == "aws")',
        'cluster.status.clusterClaims.filter(c, c.value.startsWith("a")).size() == 1',
        'cluster.status.clusterClaims.map(c, c.name).join("+") == "platform+limits"',
        "!has(cluster.metadata.annotations) && cluster.?metadata.?annotations.orValue({}) == {}",
        '"prod" in [cluster.metadata.labels.env]',
        '"a,b".split(",")[1].upperAscii() == "B"',
        'semver(cluster.status.version.kubernetes, true).isGreaterThan(semver("1.30.9"))',
        'semver("1.2.3").compareTo(semver("1.2.3+build")) == 0',
        'semver("1.0.0-rc.2").isLessThan(semver("1.0.0-rc.10"))',
        'semver("1.0.0-alpha").isLessThan(semver("1.0.0"))',
        'semver("1.0.0-1").isLessThan(semver("1.0.0-a"))',
        'semver("1.2.3") == semver("v01.2.3", true) && semver("v1", true).minor() == 0',
        'isSemver("1.2.3") && !isSemver("v1.2.3") && isSemver("v1.2.3", true)',
        'semver("4.5.6").major() + semver("4.5.6").minor() + semver("4.5.6").patch() == 15',
        'quantity(cluster.status.allocatable.memory).isGreaterThan(quantity("30G"))',
        'quantity("1Gi") == quantity("1024Mi") && quantity("1Gi").compareTo(quantity("1G")) == 1',
        'quantity("1500m").add(quantity("500m")) == quantity("2")',
        'quantity("3").sub(1).asInteger() == 2 && quantity("3").sign() == 1',
        '!quantity("1500m").isInteger() && quantity("1500m").asApproximateFloat() == 1.5',
        'isQuantity("5Gi") && !isQuantity("five")',
        "[1, 2, 3].sum() == 6 && [2, 1].min() == 1 && [2, 1].max() == 2 && [1, 2].isSorted()",
        "cluster.status.clusterClaims[1].value.parseJSON().gpu[1] == 4",
        "hasConditions(cluster.status) && !hasConditions({}) && !hasConditions('status')",
        "!hasConditions({'conditions': []}) && !hasConditions({'conditions': null})",
        'timestamp("2026-01-01T00:00:00Z") < timestamp("2026-01-02T00:00:00Z")',
    ],
)
def test_what_expressions_can_say(expression: str):
    assert value(expression) is True


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("cluster.", "1:9: Syntax error"),
        ("claster.metadata == 1", "1:8: undeclared reference to 'claster.metadata'"),
        ("unknown(cluster)", "undeclared reference to 'unknown'"),
        ("'a' + 1 == 'a1'", "found no matching overload for '_+_'"),
        ("(" * 200 + "1" + ")" * 200, "recursion limit"),
        ("true || " * 5000 + "true", "more than 16384 characters"),
        ("", "Syntax error"),
    ],
)
def test_an_expression_that_does_not_compile_says_why(expression: str, message: str):
    with pytest.raises(CompileError, match=re.escape(message)):
        environment().compile(expression)


def test_a_condition_must_be_true_or_false():
    with pytest.raises(CompileError, match="string, not true or false"):
        environment().condition("'yes'")

    made = environment()
    program = made.condition("cluster.metadata.name")
    with pytest.raises(EvaluationError, match="not true or false"):
        program.is_true(made.values({"cluster": CLUSTER}))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("cluster.spec.taints == []", 'Key not found in map : "spec"'),
        ("1 / 0 == 1", "divide by zero"),
        ("semver('one') == semver('1.0.0')", "'one' is not a semantic version"),
        ("quantity('one').sign() == 1", "'one' is not a quantity"),
        ("quantity('1').isGreaterThan(semver('1.0.0'))", "not a quantity"),
        ("semver('1.0.0').asInteger() == 1", "not a quantity"),
        ("quantity('1').major() == 1", "not a semantic version"),
        ("'{'.parseJSON().a == 1", "Expecting property name"),
        ("cluster.metadata.name.matches('(')", "invalid regular expression"),
        ("optional.of(1)", "no ordinary type"),
    ],
)
def test_an_expression_without_a_value_says_why(expression: str, message: str):
    with pytest.raises(EvaluationError, match=re.escape(message)):
        value(expression)


def test_functions_can_be_added():
    def twice(number: int) -> int:
        return 2 * number

    double = Function("twice", ("int",), "int", twice, member=True)
    made = Environment({"number": "int"}, [double])

    assert made.compile("number.twice()").evaluate(made.values({"number": 21})) == 42


def test_a_function_takes_any_kind_of_value():
    def kind(value: object) -> str:
        return type(value).__name__

    made = Environment({"given": "any"}, [Function("kind", ("any",), "string", kind)])
    program = made.compile("kind(given)")

    kinds = [
        program.evaluate(made.values({"given": given}))
        for given in (None, True, 1, 1.5, "text", [1], {"a": 1})
    ]

    assert kinds == ["NoneType", "bool", "int", "float", "str", "list", "dict"]


def test_an_expression_is_compiled_once_and_few_are_kept():
    made = Environment({"number": "int"}, cached=2)
    first = made.compile("number == 1")

    assert made.compile("number == 1") is first
    for number in range(5):
        made.compile(f"number == {number}")
    assert len(made.programs) == 2
    assert made.compile("number == 1") is not first


def test_too_many_iterations_are_an_error():
    made = Environment({"numbers": "list"})
    program = made.compile("numbers.all(a, numbers.all(b, a + b >= 0))")

    assert program.evaluate(made.values({"numbers": list(range(50))})) is True
    with pytest.raises(BudgetExceeded):
        program.evaluate(made.values({"numbers": list(range(200))}))


def test_the_library_is_imported_with_the_first_expression():
    """An agent without CEL rules, and most commands, never load it."""
    code = (
        "import sys\n"
        "from knfleet.expressions.cel import Environment\n"
        "made = Environment({'a': 'int'})\n"
        "assert not any(name.startswith('cel_expr') for name in sys.modules)\n"
        "made.compile('a == 1')\n"
        "assert any(name.startswith('cel_expr') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
