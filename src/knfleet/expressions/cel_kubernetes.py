"""Functions that Kubernetes adds to CEL: versions, quantities and lists; and those of the fleet.

The CEL library has no types but its own. So a version or a quantity is a map with one key, which
says what it is, and a text in one form only: equal ones are equal in CEL too.
"""

import json
import re
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any, cast

from knfleet.api.quantity import quantity as parse_quantity
from knfleet.expressions.cel import Function

Tagged = dict[str, Any]
Precedence = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]

SEMVER = "kubernetes.Semver"
QUANTITY = "kubernetes.Quantity"
IDENTIFIER = r"(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)"
NUMBER = r"(0|[1-9]\d{0,17})"
VERSION = re.compile(
    rf"{NUMBER}\.{NUMBER}\.{NUMBER}(?:-({IDENTIFIER}(?:\.{IDENTIFIER})*))?(?:\+[0-9A-Za-z.-]+)?"
)
LOOSE = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?([-+].*)?")
LONGEST = 256


def version(text: str, normalize: bool = False) -> Tagged:
    """A semantic version; with `normalize` also `v1.2` and `1.02.3`."""
    match = VERSION.fullmatch(normalized(text) if normalize else text)
    if match is None or len(text) > LONGEST:
        raise ValueError(f"{text[:LONGEST]!r} is not a semantic version")
    *numbers, pre_release = match.groups()
    return {SEMVER: ".".join(numbers) + (f"-{pre_release}" if pre_release else "")}


def normalized(text: str) -> str:
    """A version with all three numbers, and without a prefix or leading zeros."""
    match = LOOSE.fullmatch(text[:LONGEST])
    if match is None:
        return text
    *numbers, rest = match.groups()
    return ".".join((number or "0").lstrip("0") or "0" for number in numbers) + (rest or "")


def is_version(text: str, normalize: bool = False) -> bool:
    """Whether a text is a semantic version."""
    try:
        version(text, normalize)
    except ValueError:
        return False
    return True


def precedence(text: str) -> Precedence:
    """What versions are ordered by: a release comes after its pre-releases."""
    core, _, pre_release = text.partition("-")
    major, minor, patch = map(int, core.split("."))
    identifiers = pre_release.split(".") if pre_release else []
    return (
        *(major, minor, patch, not pre_release),
        tuple(
            (not each.isdigit(), int(each) if each.isdigit() else 0, each) for each in identifiers
        ),
    )


def amount(text: str) -> Tagged:
    """A resource quantity."""
    number = parse_quantity(text)
    if number is None:
        raise ValueError(f"{text[:LONGEST]!r} is not a quantity")
    return tagged(number)


def tagged(number: Decimal) -> Tagged:
    """A quantity as CEL has it."""
    return {QUANTITY: format(number.normalize(), "f")}


def number_of(value: Tagged) -> Decimal:
    """The number of a quantity."""
    if QUANTITY not in value:
        raise ValueError("the value is not a quantity")
    return Decimal(value[QUANTITY])


def number_in(index: int) -> Callable[[Tagged], int]:
    """A function that gives one of the three numbers of a version."""

    def number(value: Tagged) -> int:
        if SEMVER not in value:
            raise ValueError("the value is not a semantic version")
        return int(value[SEMVER].partition("-")[0].split(".")[index])

    return number


def compare(left: Tagged, right: Tagged) -> int:
    """Whether a version or quantity comes before another (-1), after it (1) or neither (0)."""
    if SEMVER in left and SEMVER in right:
        first, second = precedence(left[SEMVER]), precedence(right[SEMVER])
        return (first > second) - (first < second)
    one, other = number_of(left), number_of(right)
    return (one > other) - (one < other)


def is_before(left: Tagged, right: Tagged) -> bool:
    """Whether a version or quantity is less than another."""
    return compare(left, right) < 0


def is_after(left: Tagged, right: Tagged) -> bool:
    """Whether a version or quantity is greater than another."""
    return compare(left, right) > 0


def is_amount(text: str) -> bool:
    """Whether a text is a quantity."""
    return parse_quantity(text) is not None


def add(value: Tagged, other: Tagged | int) -> Tagged:
    """The sum of two quantities."""
    return tagged(number_of(value) + operand(other))


def subtract(value: Tagged, other: Tagged | int) -> Tagged:
    """The difference of two quantities."""
    return tagged(number_of(value) - operand(other))


def operand(value: Tagged | int) -> Decimal:
    """What is added to a quantity: another, or a whole number."""
    return Decimal(value) if isinstance(value, int) else number_of(value)


def as_float(value: Tagged) -> float:
    """A quantity as a floating-point number."""
    return float(number_of(value))


def as_integer(value: Tagged) -> int:
    """A quantity as a whole number, if it is one."""
    number = number_of(value)
    if number != number.to_integral_value():
        raise ValueError(f"quantity {number:f} is not a whole number")
    return int(number)


def is_integer(value: Tagged) -> bool:
    """Whether a quantity is a whole number that fits into 64 bits."""
    number = number_of(value)
    return number == number.to_integral_value() and -(2**63) <= number < 2**63


def sign(value: Tagged) -> int:
    """Whether a quantity is negative (-1), positive (1) or zero (0)."""
    number = number_of(value)
    return (number > 0) - (number < 0)


def parse_json(text: str) -> Any:
    """The value that a JSON text describes."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON text is nested too deeply") from None


def has_conditions(status: Any) -> bool:
    """Whether a status has a list of conditions that is not empty."""
    if not isinstance(status, dict):
        return False
    found = cast("dict[str, Any]", status).get("conditions")
    return isinstance(found, list) and bool(cast("list[Any]", found))


def is_sorted(elements: list[Any]) -> bool:
    """Whether the elements of a list are in ascending order."""
    return all(first <= second for first, second in pairwise(elements))


SEMVERS = (
    Function("semver", ("string",), "map", version),
    Function("semver", ("string", "bool"), "map", version),
    Function("isSemver", ("string",), "bool", is_version),
    Function("isSemver", ("string", "bool"), "bool", is_version),
    Function("major", ("map",), "int", number_in(0), member=True),
    Function("minor", ("map",), "int", number_in(1), member=True),
    Function("patch", ("map",), "int", number_in(2), member=True),
)
QUANTITIES = (
    Function("quantity", ("string",), "map", amount),
    Function("isQuantity", ("string",), "bool", is_amount),
    Function("isInteger", ("map",), "bool", is_integer, member=True),
    Function("asInteger", ("map",), "int", as_integer, member=True),
    Function("asApproximateFloat", ("map",), "double", as_float, member=True),
    Function("sign", ("map",), "int", sign, member=True),
    Function("add", ("map", "map"), "map", add, member=True),
    Function("add", ("map", "int"), "map", add, member=True),
    Function("sub", ("map", "map"), "map", subtract, member=True),
    Function("sub", ("map", "int"), "map", subtract, member=True),
)
COMPARISONS = (
    Function("compareTo", ("map", "map"), "int", compare, member=True),
    Function("isLessThan", ("map", "map"), "bool", is_before, member=True),
    Function("isGreaterThan", ("map", "map"), "bool", is_after, member=True),
)
LISTS = (
    Function("isSorted", ("list",), "bool", is_sorted, member=True),
    Function("sum", ("list",), "any", sum, member=True),
    Function("min", ("list",), "any", min, member=True),
    Function("max", ("list",), "any", max, member=True),
)
FLEET = (
    Function("parseJSON", ("string",), "any", parse_json, member=True),
    Function("hasConditions", ("any",), "bool", has_conditions),
)

KUBERNETES: tuple[Function, ...] = (*SEMVERS, *QUANTITIES, *COMPARISONS, *LISTS, *FLEET)
"""What every expression of the fleet can call."""
