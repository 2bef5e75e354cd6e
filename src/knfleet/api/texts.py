"""How long texts in the API may be. Whatever a server, a plugin or a release says may end up there.

Conditions bound their messages when they are made and Events when they are written, both by
`bounded`: a text beyond the limit would have the API server refuse the whole status or Event.
"""

CONDITION_BYTES = 32768
"""What Kubernetes allows for the message of a condition."""
EVENT_BYTES = 1024
"""What Kubernetes allows for the note of an Event."""


def bounded(text: str, limit: int = CONDITION_BYTES) -> str:
    """The text, cut so that it has no more bytes than the limit, never within a character."""
    # Most texts are short; a character has four bytes at most.
    if len(text) * 4 <= limit:
        return text
    encoded = text.encode(errors="replace")
    if len(encoded) <= limit:
        return text
    return encoded[: limit - len("…".encode())].decode(errors="ignore") + "…"
