"""JSON of other processes: whatever its bytes are, reading it fails in one way only.

The decoder itself raises three kinds of errors: for what is no JSON or has other types, for text
that is not UTF-8, and for values that are nested too deep.
"""

from typing import TypeVar

import msgspec

T = TypeVar("T")


class TooDeep(msgspec.DecodeError):
    """Values that are nested deeper than the decoder reads."""


def decode_json(text: bytes | str, type: type[T]) -> T:  # noqa: A002 - the word of the decoder
    """The value in a text, with the given type; raises `msgspec.DecodeError`."""
    try:
        return msgspec.json.decode(text, type=type)
    except UnicodeDecodeError:
        raise msgspec.DecodeError("text that is not UTF-8") from None
    except RecursionError:
        raise TooDeep("values that are nested too deep") from None
