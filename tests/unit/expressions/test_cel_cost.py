"""CEL: no expression takes much time or memory, however it is written."""

import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knfleet.expressions.cel import BudgetExceeded, CelError, Environment
from knfleet.expressions.cel_kubernetes import KUBERNETES

LIST: list[Any] = [{"name": f"n{index}", "value": "a,b"} for index in range(400)]
VALUES: dict[str, Any] = {"rows": LIST, "text": "ab," * 400}


def environment() -> Environment:
    return Environment({"rows": "list", "text": "string"}, KUBERNETES)


@pytest.mark.parametrize(
    "expression",
    [
        '["aaaaaaaa"]' + ".map(a, a + a)" * 26 + "[0].size() > 1",
        '["aaaaaaaaaaaa"]' + '.map(a, a.replace("", a))' * 4 + "[0].size() > 1",
        "[[1]]" + ".map(a, [a, a])" * 26 + " == [[1]]" + ".map(a, [a, a])" * 26,
        '["a"]' + ".map(a, '%s%s%s'.format([a, a, a]))" * 20 + "[0].size() > 1",
        '["a,a"]' + ".map(a, a.split('').join(a))" * 12 + "[0].size() > 1",
        '["a"].map(a, [a + a + a + a + a + a])' + ".map(a, a + a)" * 20 + "[0].size() > 1",
        "rows.map(a, rows.map(b, rows)) == rows.map(a, rows.map(b, rows))",
        "text.matches(text + text)",
    ],
)
def test_an_expression_that_could_explode_is_not_evaluated(expression: str):
    made = environment()

    with pytest.raises(BudgetExceeded):
        made.compile(expression).evaluate(made.values(VALUES))


@pytest.mark.parametrize(
    "expression",
    [
        "rows.exists(a, a.name == 'n399' && a.value.contains('b'))",
        "rows.filter(a, a.name.startsWith('n1')).map(a, a.value).all(v, v.split(',').size() == 2)",
        "rows.map(a, a.name).join(',').size() > 1000",
        "rows.all(a, has(a.name) && a.name.matches('^n[0-9]+$'))",
    ],
)
def test_ordinary_expressions_are_evaluated_on_large_values(expression: str):
    made = environment()

    assert made.compile(expression).evaluate(made.values(VALUES)) is True


def test_nested_macros_are_fine_on_values_of_ordinary_size():
    made = environment()
    program = made.compile("rows.exists(a, rows.exists(b, a.name == b.name && a.value != b.value))")

    assert program.evaluate(made.values({**VALUES, "rows": LIST[:60]})) is False


def texts(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Expressions that make larger values of smaller ones."""
    two = st.tuples(children, children)
    return st.one_of(
        two.map(lambda pair: f"({pair[0]} + {pair[1]})"),
        two.map(lambda pair: f"{pair[0]}.replace('', {pair[1]})"),
        two.map(lambda pair: f"{pair[0]}.split('').join({pair[1]})"),
        two.map(lambda pair: f"[{pair[0]}].map(x, x + x + {pair[1]})[0]"),
        two.map(lambda pair: f"rows.map(x, {pair[0]}).join({pair[1]})"),
        children.map(lambda text: f"[{text}].map(x, [x, x].map(y, y + x).join(x))[0]"),
    )


EXPRESSIONS = st.recursive(st.sampled_from(["text", "'a,b'", "rows[0].name"]), texts, max_leaves=12)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EXPRESSIONS)
def test_whatever_is_evaluated_is_cheap(expression: str):
    """Generous, since the machine may be busy: what the limit keeps out takes minutes."""
    made = environment()
    values = made.values(VALUES)
    begun = time.process_time()
    with suppress(CelError):
        made.compile(f"size({expression}) > 0").evaluate(values)

    assert time.process_time() - begun < 5
