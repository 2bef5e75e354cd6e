"""How long a removal may take."""

from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.chaos import hands
from tests.chaos.resources import wanted
from tests.chaos.stage import Stage

LOOK_SECONDS = 10.0


def struck(*places: str) -> Stage:
    """A stage with two spokes, without anything behind it."""
    stage = Stage(cast("Any", None), cast("Any", None), Path())
    stage.spokes = cast("Any", {"spoke1": None, "spoke2": None})
    stage.struck = list(places)
    return stage


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes with every look, and by nothing else."""
    ticks = count(0.0, LOOK_SECONDS)
    monkeypatch.setattr(hands, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    monkeypatch.setattr(hands, "POLL_SECONDS", 0)


@pytest.mark.parametrize(
    ("places", "calm"),
    [((), True), (("spoke2",), True), (("spoke1",), False), (("hub",), False)],
)
def test_who_is_struck(places: tuple[str, ...], *, calm: bool) -> None:
    """Another spoke is no excuse."""
    assert struck(*places).is_calm("spoke1") is calm


@pytest.mark.usefixtures("clock")
async def test_time_under_faults_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred looks while the spoke is struck are none; then a few are too many."""
    stage, looks = struck("spoke1"), count(1)
    cr = next(each for each in wanted(["spoke1"]) if each.spoke == "spoke1")
    last = 0

    async def is_gone(*_: object) -> bool:
        nonlocal last
        last = next(looks)
        if last == 100:
            stage.struck.clear()
        return False

    monkeypatch.setattr(hands, "is_gone", is_gone)
    with pytest.raises(AssertionError, match="not within 240 calm seconds"):
        await hands.see_gone(stage, cr)
    assert last == 99 + hands.GONE_SECONDS / LOOK_SECONDS
