r"""JSONPath as Kubernetes has it: `.status.conditions[?(@.type=="Ready")].status`.

Paths come from users, values from clusters: a path has a limited length, a search a limited number
of results. A field that is not there is no error, it matches nothing.
"""

import re
from collections.abc import Callable, Iterator
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Protocol, cast

from msgspec import Struct

LONGEST = 1_024
"""Characters of a path, at most."""
MOST = 10_000
"""Values that one search may visit."""

NAME = re.compile(r"(?:\\.|[^\s.\[\],:$@{}()'\"<>=!?*\\])+")
NUMBER = re.compile(r"-?\d+")
SLICE = re.compile(r"\s*(-?\d+)?\s*:\s*(-?\d+)?\s*(?::\s*(-?\d+))?\s*$")
QUOTED = re.compile(r"""'((?:\\.|[^'\\])*)'|"((?:\\.|[^"\\])*)\"""")
LITERAL = re.compile(r"-?\d+(?:\.\d+)?|true|false|null")
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": eq,
    "!=": ne,
    "<=": le,
    ">=": ge,
    "<": lt,
    ">": gt,
}


class JsonPathError(ValueError):
    """A text that is no JSONPath, or a search that finds too much."""


class Step(Protocol):
    """One part of a path."""

    def select(self, value: Any) -> Iterator[Any]:
        """What the step leads to from a value."""
        ...


class Field(Struct, frozen=True):
    """A field of an object."""

    name: str

    def select(self, value: Any) -> Iterator[Any]:
        """The field, of every element when the value is a list."""
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            if self.name in fields:
                yield fields[self.name]


class Every(Struct, frozen=True):
    """All fields or elements."""

    def select(self, value: Any) -> Iterator[Any]:
        """The values in it."""
        return iter(children(value))


class Descend(Struct, frozen=True):
    """The value and everything below it."""

    def select(self, value: Any) -> Iterator[Any]:
        """Parents before their children."""
        waiting = [value]
        while waiting:
            found = waiting.pop()
            yield found
            waiting.extend(reversed(children(found)))


class Slice(Struct, frozen=True):
    """Some elements of a list."""

    start: int | None
    stop: int | None
    step: int | None

    def select(self, value: Any) -> Iterator[Any]:
        """The elements that there are."""
        if isinstance(value, list):
            elements = cast("list[Any]", value)
            yield from elements[slice(self.start, self.stop, self.step)]


class Index(Struct, frozen=True):
    """One element of a list, from the end when negative."""

    number: int

    def select(self, value: Any) -> Iterator[Any]:
        """The element, if it is there."""
        if isinstance(value, list):
            elements = cast("list[Any]", value)
            if -len(elements) <= self.number < len(elements):
                yield elements[self.number]


class Union(Struct, frozen=True):
    """What several steps lead to, one after the other."""

    steps: tuple[Step, ...]

    def select(self, value: Any) -> Iterator[Any]:
        """All of it."""
        for step in self.steps:
            yield from step.select(value)


class Constant(Struct, frozen=True):
    """A value in a filter."""

    value: Any

    def find(self, _value: Any) -> list[Any]:
        """The value itself."""
        return [self.value]


class ParsedPath(Struct, frozen=True):
    """A parsed path."""

    steps: tuple[Step, ...]

    def find(self, value: Any) -> list[Any]:
        """All values at the path; raises JsonPathError when there are too many."""
        found, visited = [value], 0
        for step in self.steps:
            reached: list[Any] = []
            for each in found:
                for selected in step.select(each):
                    visited += 1
                    if visited > MOST:
                        raise JsonPathError(f"the path leads to more than {MOST} values")
                    reached.append(selected)
            found = reached
        return found


class Filter(Struct, frozen=True):
    """Elements of a list that fulfil a condition."""

    left: ParsedPath | Constant
    operator: str = ""
    right: ParsedPath | Constant = Constant(None)

    def select(self, value: Any) -> Iterator[Any]:
        """The elements for which it holds."""
        if isinstance(value, list):
            yield from (each for each in cast("list[Any]", value) if self.holds(each))

    def holds(self, element: Any) -> bool:
        """Whether an element fulfils it; values of different types are never in order."""
        left = self.left.find(element)
        if not self.operator:
            return bool(left)
        right = self.right.find(element)
        if not left or not right:
            return False
        try:
            return OPERATORS[self.operator](left[0], right[0])
        except TypeError:
            return False


class Parser:
    """Reads a path from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fail(self, problem: str) -> JsonPathError:
        """The error for what comes next."""
        return JsonPathError(f"{self.text!r} is no JSONPath: {problem} at character {self.at + 1}")

    def peek(self) -> str:
        """The next character; empty at the end."""
        return self.text[self.at : self.at + 1]

    def take(self, text: str) -> bool:
        """Whether this comes next; it is passed over then."""
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """What a pattern finds next; it is passed over."""
        if (match := pattern.match(self.text, self.at)) is not None:
            self.at = match.end()
        return match

    def spaces(self) -> None:
        """Pass over blanks."""
        while self.peek().isspace():
            self.at += 1

    def path(self, ends: str = "") -> ParsedPath:
        """A path up to the end, or up to one of some characters."""
        steps: list[Step] = []
        if not (self.take("$") or self.take("@")) and NAME.match(self.text, self.at):
            steps.append(self.name())
        while self.peek() and self.peek() not in ends:
            steps.append(self.step())
        return ParsedPath(tuple(steps))

    def step(self) -> Step:
        """One part of a path."""
        if self.take(".."):
            return Descend() if self.peek() == "[" else Pair(Descend(), self.named())
        if self.take("."):
            return self.named()
        if self.take("["):
            return self.bracket()
        raise self.fail("a field or bracket is missing")

    def named(self) -> Step:
        """A field after a dot."""
        if self.take("*"):
            return Every()
        return self.name() if self.peek() != "[" else Pass()

    def name(self) -> Field:
        """The name of a field."""
        match = self.match(NAME)
        if match is None:
            raise self.fail("the name of a field is missing")
        return Field(re.sub(r"\\(.)", r"\1", match.group()))

    def bracket(self) -> Step:
        """What is in brackets."""
        if self.take("?("):
            return self.filter()
        end = self.closing()
        inside, self.at = self.text[self.at : end], end + 1
        if (match := SLICE.match(inside)) is not None:
            numbers = [None if each is None else int(each) for each in match.groups()]
            if numbers[2] == 0:
                raise self.fail("the step of a slice is 0")
            return Slice(*numbers)
        parts = [self.inside(each.strip()) for each in split(inside)]
        return parts[0] if len(parts) == 1 else Union(tuple(parts))

    def closing(self) -> int:
        """Where the bracket ends."""
        at = self.at
        while at < len(self.text):
            quoted = QUOTED.match(self.text, at)
            if quoted is not None:
                at = quoted.end()
            elif self.text[at] == "]":
                return at
            else:
                at += 1
        raise self.fail("a bracket is not closed")

    def inside(self, text: str) -> Step:
        """An index, a name or all."""
        if text == "*":
            return Every()
        if NUMBER.fullmatch(text):
            return Index(int(text))
        if (quoted := QUOTED.fullmatch(text)) is not None:
            return Field(unquoted(quoted))
        raise self.fail(f"{text!r} is neither a number nor a name in quotes")

    def filter(self) -> Step:
        """A condition, behind `?(`."""
        left = self.operand()
        operator = next((each for each in OPERATORS if self.take(each)), "")
        right = self.operand() if operator else Constant(None)
        if not self.take(")") or not self.take("]"):
            raise self.fail("a filter is not closed")
        return Filter(left, operator, right)

    def operand(self) -> ParsedPath | Constant:
        """One side of a condition."""
        self.spaces()
        found: ParsedPath | Constant
        if (quoted := self.match(QUOTED)) is not None:
            found = Constant(unquoted(quoted))
        elif (literal := self.match(LITERAL)) is not None:
            found = Constant(constant(literal.group()))
        elif self.peek() in ("@", "$", "."):
            found = self.path(ends=" )<>=!")
        else:
            raise self.fail("a value or @ is missing")
        self.spaces()
        return found


class Pass(Struct, frozen=True):
    """Stays where it is: the dot before a bracket."""

    def select(self, value: Any) -> Iterator[Any]:
        """The value itself."""
        yield value


class Pair(Struct, frozen=True):
    """One step after another."""

    first: Step
    second: Step

    def select(self, value: Any) -> Iterator[Any]:
        """What the second leads to from all that the first leads to."""
        for each in self.first.select(value):
            yield from self.second.select(each)


def parse(text: str) -> ParsedPath:
    """The path that a text says, with or without braces; raises JsonPathError."""
    stripped = text.strip()
    if len(stripped) > LONGEST:
        raise JsonPathError(f"the path has more than {LONGEST} characters")
    if stripped.startswith("{") and stripped.endswith("}"):
        stripped = stripped[1:-1].strip()
    if not stripped:
        raise JsonPathError("the path is empty")
    return Parser(stripped).path()


def children(value: Any) -> list[Any]:
    """The fields' values or the elements of a value."""
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return list(cast("list[Any]", value)) if isinstance(value, list) else []


def split(text: str) -> list[str]:
    """The parts between commas, but not those in quotes."""
    parts, start, at = list[str](), 0, 0
    while at < len(text):
        quoted = QUOTED.match(text, at)
        if quoted is not None:
            at = quoted.end()
            continue
        if text[at] == ",":
            parts.append(text[start:at])
            start = at + 1
        at += 1
    return [*parts, text[start:]]


def unquoted(match: re.Match[str]) -> str:
    """The text between quotes."""
    text = match.group(1) if match.group(1) is not None else match.group(2)
    return re.sub(r"\\(.)", r"\1", text)


def constant(text: str) -> Any:
    """A literal of a filter as a value."""
    if text in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[text]
    return float(text) if "." in text else int(text)
