"""Numbers that may be percentages of something."""

import re

PERCENTAGE = re.compile(r"\d{1,3}%")
NUMBER = re.compile(r"\d{1,9}")


def is_share(value: int | str) -> bool:
    """Whether a value is a number or a percentage."""
    if isinstance(value, int):
        return True
    return bool(PERCENTAGE.fullmatch(value) or NUMBER.fullmatch(value))


def share(value: int | str, total: int) -> int:
    """The number that a value means; percentages of the total are rounded up."""
    if isinstance(value, str) and value.endswith("%"):
        return -(-int(value[:-1]) * total // 100)
    return int(value)
