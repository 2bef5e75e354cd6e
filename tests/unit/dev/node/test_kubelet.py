"""Which part of a log is sent."""

from pathlib import Path

import pytest

from knfleet.api.meta import Key
from knfleet.dev.node.kubelet_api import (
    CHUNK_BYTES,
    LogRequest,
    UnsupportedRequest,
    log_request,
    tail_offset,
)


def test_a_request_for_logs_is_understood() -> None:
    """With the options that kubectl sends."""
    query = {"follow": "true", "tailLines": "5", "limitBytes": "100"}

    assert log_request("/containerLogs/shop/web-1/main", query) == LogRequest(
        Key("shop", "web-1"), "main", follow=True, tail_lines=5, limit_bytes=100
    )
    assert log_request("/containerLogs/shop/web-1/main", {"previous": "true"}).previous


@pytest.mark.parametrize("path", ["/exec/shop/web-1/main", "/portForward/shop/web-1", "/"])
def test_other_requests_are_answered_with_a_sentence(path: str) -> None:
    """They are not implemented, and say so."""
    with pytest.raises(UnsupportedRequest, match="the dev node has no") as refusal:
        log_request(path, {})

    assert refusal.value.status == 501


@pytest.mark.parametrize(
    ("text", "lines", "expected"),
    [
        ("a\nb\nc\n", 2, "b\nc\n"),
        ("a\nb\nc", 2, "b\nc"),
        ("a\nb\n", 5, "a\nb\n"),
        ("a\nb\n", 0, ""),
        ("", 3, ""),
        ("x" * CHUNK_BYTES + "\nlast\n", 1, "last\n"),
        ("first\n" + ("y" * 99 + "\n") * 2000, 2, ("y" * 99 + "\n") * 2),
    ],
)
def test_the_last_lines_of_a_file(tmp_path: Path, text: str, lines: int, expected: str) -> None:
    """However long they are."""
    path = tmp_path / "log"
    path.write_text(text)

    assert text[tail_offset(path, lines) :] == expected
