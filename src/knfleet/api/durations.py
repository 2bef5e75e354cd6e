"""Durations, as Go writes them: `60s`, `1m30s`, `500ms`."""

import re

PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST = 32


def seconds(text: str) -> float | None:
    """The seconds of a duration; None when the text is not one. Zero needs no unit."""
    if text == "0":
        return 0.0
    found = list(PART.finditer(text)) if len(text) <= LONGEST else []
    if not found or "".join(each[0] for each in found) != text:
        return None
    return sum(float(each[1]) * UNITS[each[2]] for each in found)
