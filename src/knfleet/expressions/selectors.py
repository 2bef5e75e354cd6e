"""Checks of label and claim selectors, which an API server stores whatever they say.

What a selector selects is a method of its type; what is wrong with one, its author learns here.
"""

import re
from collections.abc import Iterable, Sequence

from knfleet.api.cluster.clusterset import LabelRequirement, LabelSelector

LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
LABEL_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LONGEST_VALUE = 63
LONGEST_PREFIX = 253
WITH_VALUES = ("In", "NotIn")
WITHOUT_VALUES = ("Exists", "DoesNotExist")


def label_selector_problem(selector: LabelSelector) -> str:
    """What is wrong with a selector of labels; empty when nothing is."""
    values = [
        *selector.match_labels.values(),
        *(value for each in selector.match_expressions for value in each.values),
    ]
    keys = [*selector.match_labels, *(each.key for each in selector.match_expressions)]
    return first(
        requirements_problem(selector.match_expressions),
        first(*(f"{key!r} is not the name of a label" for key in keys if not is_label_name(key))),
        first(*(f"{each!r} is not the value of a label" for each in values if not is_value(each))),
    )


def requirements_problem(requirements: Sequence[LabelRequirement]) -> str:
    """What is wrong with requirements, of labels or of claims; empty when nothing is."""
    return first(*(requirement_problem(each) for each in requirements))


def requirement_problem(requirement: LabelRequirement) -> str:
    """What is wrong with one requirement; empty when nothing is."""
    key, operator = requirement.key, requirement.operator
    if not key:
        return "a requirement has no key"
    if operator not in (*WITH_VALUES, *WITHOUT_VALUES):
        return f"{operator!r} of {key} is not an operator: In, NotIn, Exists or DoesNotExist"
    if operator in WITH_VALUES and not requirement.values:
        return f"operator {operator} of {key} needs values"
    if operator in WITHOUT_VALUES and requirement.values:
        return f"operator {operator} of {key} takes no values"
    return ""


def is_label_name(text: str) -> bool:
    """Whether a text is the name of a label: at most 63 characters, maybe behind a domain."""
    prefix, slash, name = text.rpartition("/")
    if slash and (len(prefix) > LONGEST_PREFIX or PREFIX.fullmatch(prefix) is None):
        return False
    return len(name) <= LONGEST_VALUE and LABEL_NAME.fullmatch(name) is not None


def is_value(text: str) -> bool:
    """Whether a text is the value of a label."""
    return len(text) <= LONGEST_VALUE and LABEL_VALUE.fullmatch(text) is not None


def first(*problems: str) -> str:
    """The first text that is not empty."""
    found: Iterable[str] = (problem for problem in problems if problem)
    return next(iter(found), "")


SET_BASED = re.compile(r"(\S+)\s+(in|notin)\s+\(([^()]*)\)")
SEPARATOR = re.compile(r",(?![^(]*\))")
"""A comma outside of parentheses."""


def parse_selector(text: str) -> LabelSelector:
    """A selector as kubectl takes it: `a=1,b!=2,c in (x,y),!d`; raises ValueError."""
    parts = [part.strip() for part in SEPARATOR.split(text) if part.strip()]
    selector = LabelSelector(match_expressions=[parse_requirement(part) for part in parts])
    problem = label_selector_problem(selector)
    if problem:
        raise ValueError(problem)
    return selector


def parse_requirement(text: str) -> LabelRequirement:
    """One requirement of a selector."""
    if match := SET_BASED.fullmatch(text):
        values = [value.strip() for value in match[3].split(",")] if match[3].strip() else []
        operator = "In" if match[2] == "in" else "NotIn"
        return LabelRequirement(key=match[1], operator=operator, values=values)
    for sign, operator in (("!=", "NotIn"), ("==", "In"), ("=", "In")):
        key, found, value = text.partition(sign)
        if found:
            return LabelRequirement(key=key.strip(), operator=operator, values=[value.strip()])
    if text.startswith("!"):
        return LabelRequirement(key=text[1:].strip(), operator="DoesNotExist")
    return LabelRequirement(key=text, operator="Exists")
