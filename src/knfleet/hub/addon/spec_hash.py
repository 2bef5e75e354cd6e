"""The hash of a configuration, equal to that of Open Cluster Management's add-on manager.

That is SHA-256 over the JSON that Go writes: keys sorted, no spaces, some characters escaped.
"""

import hashlib
import json
import math
from collections.abc import Callable
from typing import Any, cast

from knfleet.api.meta import Object

NOT_HASHED = ("apiVersion", "kind", "metadata", "status")
ESCAPES = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


def spec_hash(manifest: Object) -> str:
    """The hash of all that configures: everything but the object's identity and status."""
    hashed = {name: value for name, value in manifest.items() if name not in NOT_HASHED}
    return hashlib.sha256(go_json(hashed).encode()).hexdigest()


def go_json(value: Any) -> str:
    """A value as Go's encoding/json writes it."""
    writer = next((WRITERS[each] for each in WRITERS if type(value) is each), None)
    if writer is None:
        raise TypeError(f"a manifest has no {type(value).__name__}")
    return writer(value)


def go_object(value: Object) -> str:
    """An object with sorted keys."""
    fields = (f"{go_string(name)}:{go_json(value[name])}" for name in sorted(value))
    return f"{{{','.join(fields)}}}"


def go_list(value: list[Any]) -> str:
    """A list."""
    return f"[{','.join(map(go_json, value))}]"


def go_string(value: str) -> str:
    """A string, safe to embed in HTML."""
    return json.dumps(value, ensure_ascii=False).translate(ESCAPES)


def go_float(value: float) -> str:
    """A number that may have a fraction."""
    if value.is_integer() and abs(value) < 1e21:
        return "-0" if value == 0 and math.copysign(1, value) < 0 else str(int(value))
    mantissa, _, exponent = f"{value!r}".partition("e")
    if abs(value) >= 1e21 or abs(value) < 1e-6:
        if not exponent:
            mantissa, _, exponent = f"{value:e}".partition("e")
        sign, digits = exponent[0], exponent[1:].lstrip("0")
        return f"{mantissa}e{sign if sign in '+-' else '+'}{digits}"
    return f"{value:.{decimals(value)}f}" if exponent else mantissa


def decimals(value: float) -> int:
    """How many digits behind the point a number needs that Python writes with an exponent."""
    mantissa, _, exponent = f"{value!r}".partition("e")
    return len(mantissa.partition(".")[2]) - int(exponent)


WRITERS: dict[type, Callable[[Any], str]] = {
    dict: lambda value: go_object(cast("Object", value)),
    list: lambda value: go_list(cast("list[Any]", value)),
    str: go_string,
    bool: lambda value: "true" if value else "false",
    int: str,
    float: go_float,
    type(None): lambda _: "null",
}
