"""A report says what came of a run, and how to play it again."""

from pathlib import Path

import msgspec
from msgspec.structs import replace

from tests.chaos.evidence import Violation
from tests.chaos.report import Line, Report, write

GREEN = Report(
    seed=7,
    minutes=10,
    spokes=4,
    steps=(),
    timeline=(Line(1.5, "freeze spoke1 for 9 s"),),
    violations=(),
    problem="",
    converged_seconds=3.2,
    figures={"faults": 1},
)
BAD = Violation(1794816000.0, "never two leaders act", "operator-a wrote")


def test_a_run_in_which_all_held_says_so() -> None:
    assert GREEN.is_green
    assert "all held; converged 3.2 s after the last fault" in GREEN.text()
    assert "[    1.5 s] freeze spoke1 for 9 s" in GREEN.text()


def test_a_violation_or_a_problem_is_told_with_the_command_that_plays_it_again() -> None:
    for broken in (replace(GREEN, violations=(BAD,)), replace(GREEN, problem="not ready")):
        assert not broken.is_green
        assert "CHAOS_SEED=7 CHAOS_MINUTES=10 make chaos" in broken.verdict()
    assert "never two leaders act: operator-a wrote" in replace(GREEN, violations=(BAD,)).text()
    assert "CHAOS_SPOKES=2" in replace(GREEN, spokes=2).replay


def test_it_is_written_for_people_and_for_programs(tmp_path: Path) -> None:
    text = write(GREEN, tmp_path / "out")

    assert text.read_text() == GREEN.text()
    assert msgspec.json.decode(text.with_suffix(".json").read_bytes(), type=Report) == GREEN
