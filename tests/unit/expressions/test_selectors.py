"""Label selectors: what they select, and what is wrong with them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knfleet.api.cluster.clusterset import LabelRequirement, LabelSelector
from knfleet.expressions.selectors import (
    label_selector_problem,
    parse_selector,
    requirements_problem,
)


def selector(key: str, operator: str, *values: str) -> LabelSelector:
    return LabelSelector(
        match_expressions=[LabelRequirement(key=key, operator=operator, values=list(values))]
    )


@pytest.mark.parametrize(
    ("chosen", "labels", "matches"),
    [
        (LabelSelector(), {}, True),
        (LabelSelector(match_labels={"a": "1"}), {"a": "1", "b": "2"}, True),
        (LabelSelector(match_labels={"a": "1"}), {"a": "2"}, False),
        (selector("a", "In", "1", "2"), {"a": "2"}, True),
        (selector("a", "In", "1", "2"), {}, False),
        (selector("a", "NotIn", "1"), {"a": "2"}, True),
        (selector("a", "NotIn", "1"), {}, True),
        (selector("a", "NotIn", "1"), {"a": "1"}, False),
        (selector("a", "Exists"), {"a": ""}, True),
        (selector("a", "DoesNotExist"), {"a": ""}, False),
        (selector("a", "Like", "1"), {"a": "1"}, False),
    ],
)
def test_a_selector_selects_by_labels(chosen: LabelSelector, labels: dict[str, str], matches: bool):
    assert chosen.matches(labels) is matches


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        (selector("a", "In"), "operator In of a needs values"),
        (selector("a", "Exists", "1"), "operator Exists of a takes no values"),
        (selector("a", "in", "1"), "'in' of a is not an operator"),
        (selector("", "Exists"), "a requirement has no key"),
        (selector("a b", "Exists"), "'a b' is not the name of a label"),
        (selector("a", "In", "b c"), "'b c' is not the value of a label"),
        (LabelSelector(match_labels={"a": "x" * 64}), "is not the value of a label"),
        (LabelSelector(match_labels={"-/a": "x"}), "is not the name of a label"),
    ],
)
def test_a_wrong_selector_says_what_is_wrong(chosen: LabelSelector, problem: str):
    assert problem in label_selector_problem(chosen)


def test_claims_may_have_any_value():
    wanted = [LabelRequirement(key="id.k8s.io", operator="In", values=["some text, with commas"])]

    assert not requirements_problem(wanted)


NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)


@given(st.dictionaries(NAMES, NAMES), st.dictionaries(NAMES, NAMES))
def test_match_labels_are_the_same_as_expressions(wanted: dict[str, str], labels: dict[str, str]):
    by_labels = LabelSelector(match_labels=wanted)
    by_expressions = LabelSelector(
        match_expressions=[
            LabelRequirement(key=key, operator="In", values=[value])
            for key, value in wanted.items()
        ]
    )

    assert by_labels.matches(labels) == by_expressions.matches(labels)
    assert not label_selector_problem(by_labels)
    assert not label_selector_problem(by_expressions)


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("a=1", {"a": "1"}, True),
        ("a==1,b!=2", {"a": "1", "b": "3"}, True),
        ("a==1,b!=2", {"a": "1", "b": "2"}, False),
        ("a in (x, y),c", {"a": "y", "c": ""}, True),
        ("a notin (x,y)", {"a": "y"}, False),
        ("!a", {}, True),
        ("!a", {"a": ""}, False),
        ("example.com/a", {"example.com/a": "1"}, True),
        ("", {}, True),
    ],
)
def test_a_selector_is_written_as_kubectl_takes_it(
    text: str, labels: dict[str, str], matches: bool
):
    assert parse_selector(text).matches(labels) is matches


@pytest.mark.parametrize("text", ["a in ()", "a b", "a=b c", "=1", "a in x"])
def test_what_is_no_selector_is_refused(text: str):
    with pytest.raises(ValueError, match=r"label|values|key"):
        parse_selector(text)
