"""What an unquoted YAML scalar means to kubectl.

kubectl reads YAML with the words of YAML 1.1 (`yes`, `on`, `y`), with Go's integers (`010`, `0o10`,
`1_000`), without dates and without base 60, and then sends JSON, whose numbers are whole or not by
their value alone: `1.0` and `1e3` are whole. No Python parser reads it so, hence this table.
"""

import base64
import binascii
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal

Scalar = str | int | float | bool | None

WORDS: dict[str, bool | float | None] = {
    "": None,
    **dict.fromkeys(("~", "null", "Null", "NULL"), None),
    **dict.fromkeys(
        ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True
    ),
    **dict.fromkeys(
        ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False
    ),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
"""Scalars that stand for something else than themselves."""

FIRST_OF_WORDS = frozenset("~yYnNtTfFoO")
FIRST_OF_NUMBERS = frozenset("0123456789+-.")

INTEGER = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bits>[01]+)"
    r"|0[oO]?(?P<octal>[0-7]+)|(?P<decimal>0|[1-9][0-9]*))"
)
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
FRACTION = re.compile(r"\.[0-9]+(_[0-9]+)*([eE][-+]?[0-9]+)?")
BASES = {"hex": 16, "bits": 2, "octal": 8, "decimal": 10}

# What other YAML readers would not read as a string, although kubectl does.
READ_OTHERWISE_ELSEWHERE = re.compile(
    r"=|<<|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*|[-+]?[0-9.]+e?"
    r"|(?i:y|n|yes|no|on|off|true|false|null)"
)

TAG = "tag:yaml.org,2002:"


def plain(text: str) -> Scalar:
    """The value of an unquoted scalar."""
    if not text:
        return None
    first = text[0]
    if first in FIRST_OF_NUMBERS:
        return WORDS[text] if text in WORDS else number(text)
    if first in FIRST_OF_WORDS:
        return WORDS.get(text, text)
    return text


def number(text: str) -> str | int | float:
    """The number that a text writes down, or the text if it writes none."""
    if text[0] == ".":
        digits = text.replace("_", "") if FRACTION.fullmatch(text) else ""
    else:
        digits = text.replace("_", "")
        if match := INTEGER.fullmatch(digits):
            whole = integer(match)
            if fits(whole) or (whole < 2**64 and not match["sign"]):
                return whole
    if not FLOAT.fullmatch(digits):
        return text
    value = float(digits)
    return value if math.isfinite(value) else text


def integer(match: re.Match[str]) -> int:
    """The number that `INTEGER` matched."""
    name = match.lastgroup or "decimal"
    whole = int(match[name], BASES[name])
    return -whole if match["sign"] == "-" else whole


def fits(whole: int) -> bool:
    """Whether Kubernetes keeps an integer exactly, which it does with 64 bits and a sign."""
    return -(2**63) <= whole < 2**63


def json_number(value: float) -> int | float:
    """A number as it comes back from JSON: whole when its digits are, a float when too long."""
    if isinstance(value, int):
        return value if fits(value) else float(value)
    if not math.isfinite(value):
        raise ValueError("infinity and not-a-number cannot be sent as JSON; write it in quotes")
    if not value.is_integer() or abs(value) >= 2**63:
        return value
    whole = int(Decimal(repr(value)))
    return whole if fits(whole) else value


def json_integer(digits: str) -> int | float:
    return json_number(int(digits) if len(digits) < 20 else float(digits))


def tagged(tag: str, text: str) -> Scalar:
    """The value of a scalar with an explicit tag; raises `ValueError` when they do not fit."""
    read = TAGGED.get(tag.removeprefix(TAG)) if tag.startswith(TAG) else None
    return read(text) if read else text


def typed(kind: type, name: str) -> Callable[[str], Scalar]:
    """A reader for a tag that wants values of one type."""

    def read(text: str) -> Scalar:
        value = plain(text)
        if type(value) is kind or (kind is float and type(value) is int):
            return value
        raise ValueError(f"the value is not of the type that its tag !!{name} says")

    return read


def binary(text: str) -> str:
    """The text that a `!!binary` scalar holds."""
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode("utf-8", "replace")
    except binascii.Error as error:
        raise ValueError("the value of a !!binary is not base64") from error


TAGGED: dict[str, Callable[[str], Scalar]] = {
    "int": typed(int, "int"),
    "float": typed(float, "float"),
    "bool": typed(bool, "bool"),
    "null": typed(type(None), "null"),
    "binary": binary,
}


def key(value: Scalar) -> str:
    """A mapping's key as JSON has it; raises `ValueError` for one that JSON cannot have."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if not fits(value):
            raise ValueError("a key is a number of more than 64 bits; write it in quotes")
        return str(value)
    if value is None:
        raise ValueError("a key is null; write it in quotes if it is a word")
    return float_key(value)


def float_key(value: float) -> str:
    """A float as kubectl writes it when it is a key: the shortest digits of its 32 bits."""
    single = as_single(value)
    if not math.isfinite(single):
        return ".nan" if math.isnan(single) else ".inf" if single > 0 else "-.inf"
    digits = next(p for p in range(9) if p == 8 or as_single(float(f"{single:.{p}e}")) == single)
    exponent = int(f"{single:.{digits}e}".partition("e")[2])
    if -4 <= exponent < 6:
        return f"{single:.{max(digits - exponent, 0)}f}"
    return f"{single:.{digits}e}"


def as_single(value: float) -> float:
    """The nearest float of 32 bits."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def reads_as_itself(text: str) -> bool:
    """Whether a string may stand unquoted, for kubectl and for other readers of YAML."""
    return isinstance(plain(text), str) and not READ_OTHERWISE_ELSEWHERE.fullmatch(text)
