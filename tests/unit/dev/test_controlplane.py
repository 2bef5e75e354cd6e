"""How the servers of dev clusters are started."""

import pytest

from knfleet.dev.control_plane import environment


def test_servers_collect_garbage_less_often_unless_somebody_says_how_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The variable of the Go runtime, which people may have set for themselves."""
    monkeypatch.delenv("GOGC", raising=False)
    assert environment() == {"GOGC": "200"}
    monkeypatch.setenv("GOGC", "off")
    assert environment() == {"GOGC": "off"}
