"""Ports: free, below the ephemeral range, and never promised twice."""

import socket
from pathlib import Path

import msgspec
import pytest

from knfleet.dev import ports
from knfleet.dev.errors import DevError


@pytest.mark.parametrize("text", ["", "1", "20000", "5-1", "80-90", "32000-40000", "a-b", "-1-5"])
def test_a_wrong_range_is_refused_with_an_example(text: str) -> None:
    """The message shows what a range looks like."""
    with pytest.raises(DevError, match="such as 20000-29999"):
        ports.parse_range(text)


def test_a_range_includes_its_last_port() -> None:
    """As people write it."""
    assert list(ports.parse_range("20000-20002")) == [20000, 20001, 20002]


def test_a_port_in_use_is_passed_over(tmp_path: Path) -> None:
    """Somebody else's server keeps its port."""
    with socket.socket() as server:
        first = next(port for port in range(25000, 26000) if ports.is_free(port))
        server.bind(("127.0.0.1", first))
        server.listen()

        chosen = ports.choose(
            tmp_path / "ports.json", 1, range(first, first + 50), tmp_path / "state"
        )

    assert chosen != [first]
    assert len(chosen) == 1


def test_a_reserved_port_is_not_given_again(tmp_path: Path) -> None:
    """A server needs a moment before it listens; until then the port is promised."""
    registry = tmp_path / "ports.json"

    first = ports.choose(registry, 2, range(25000, 25100), tmp_path / "state")
    second = ports.choose(registry, 2, range(25000, 25100), tmp_path / "state")

    assert set(first).isdisjoint(second)


def test_a_port_is_kept_as_long_as_its_clusters_exist(tmp_path: Path) -> None:
    """A cluster whose server was killed finds its port again, however late."""
    registry, state = tmp_path / "ports.json", tmp_path / "state.json"
    state.write_text("{}")
    old = ports.Reservation(at=0, state_file=str(state))
    registry.write_bytes(msgspec.json.encode({25000: old}))

    assert ports.choose(registry, 1, range(25000, 25100), tmp_path / "other") != [25000]

    state.unlink()
    assert 25000 in ports.choose(registry, 1, range(25000, 25001), tmp_path / "other")


def test_an_exhausted_range_says_how_many_are_free(tmp_path: Path) -> None:
    """The user can choose a larger one."""
    with pytest.raises(DevError, match=r"of 5 ports are free in 25000-25001.*--port-range"):
        ports.choose(tmp_path / "ports.json", 5, range(25000, 25002), tmp_path / "state")


def test_a_damaged_registry_reserves_nothing(tmp_path: Path) -> None:
    """It is only a hint, so it never stands in the way."""
    registry = tmp_path / "ports.json"
    registry.write_text("[")

    assert len(ports.choose(registry, 1, range(25000, 25100), tmp_path / "state")) == 1
