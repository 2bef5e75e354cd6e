"""The benchmark's report: made from values, so it can be wrong without any cluster."""

from pathlib import Path
from xml.etree import ElementTree as ET

from bench.machine import machine
from bench.report import (
    ALONE,
    FLOOR,
    OURS,
    PAIRED,
    THEIRS,
    Results,
    hung_text,
    line,
    pairs_text,
    read_results,
    write_report,
)
from bench.suite import Findings

READY, WAITING = "1 spoke to Ready, s", "6 spokes beside 2 that hang to Ready, s"


def results(*ours: float | None, theirs: float = 8.0) -> Results:
    """Rounds of ours beside one of theirs and of the floor."""
    return {
        THEIRS: [{READY: theirs}],
        OURS: [{READY: each} for each in ours],
        FLOOR: [{READY: 1.5}],
    }


def test_the_median_of_the_rounds_counts() -> None:
    """A round that went wrong changes nothing; its figure is in the spread."""
    found = line(results(1.7, 9.0, 1.6), READY, None)

    assert (found.ours, found.our_spread, found.verdict) == (1.7, "1.60 to 9", "met")


def test_a_goal_is_missed_by_theirs_or_by_the_floor() -> None:
    """Being fast enough for one of them is not enough."""
    assert line(results(1.9), READY, None).verdict == "met"
    assert line(results(1.96), READY, None).verdict == "**missed**"
    assert line(results(1.9, theirs=7.0), READY, None).verdict == "**missed**"


def test_a_figure_that_never_came_is_no_figure() -> None:
    """It is neither fast nor slow."""
    found = line(results(None), READY, None)

    assert (found.ours, found.verdict) == (None, "")


def test_a_ratio_that_became_worse_is_marked() -> None:
    """Only by more than 15 percent, and by the ratio: a slower machine is slower for both."""
    before = results(1.0)

    assert "worse" in line(results(1.2), READY, before).verdict
    assert "worse" not in line(results(1.1), READY, before).verdict
    assert "worse" not in line(results(1.9, theirs=16.0), READY, before).verdict


def test_hung_spokes_are_judged_round_by_round() -> None:
    """A machine that was slow in one round was so for both parts of it."""
    pairs = ((10.0, 10.3), (20.0, 20.4), (5.0, 6.0))
    rounds: Results = {OURS: [{ALONE: one, WAITING: other} for one, other in pairs]}

    text = hung_text(rounds)

    assert "changes by +3.0 %" in text
    assert "met" in text
    assert "+2.0, +3.0, +20.0 %" in text


def test_pairs_are_judged_pair_by_pair() -> None:
    """A minute in which everything is slow counts as much as any other."""
    rounds: Results = {
        THEIRS: [],
        OURS: [{PAIRED: 11.0}, {PAIRED: 24.0}, {PAIRED: 14.0}],
        FLOOR: [{PAIRED: 10.0}, {PAIRED: 20.0}, {PAIRED: 10.0}],
    }

    text = pairs_text(rounds)

    assert "take 1.20 times as long" in text
    assert "met" in text
    assert "1.10, 1.20, 1.40" in text
    rounds[OURS][0] = {PAIRED: 14.0}
    assert "1.40 times as long" in pairs_text(rounds)
    assert "missed" in pairs_text(rounds)


def test_what_is_written_can_be_read_again(tmp_path: Path) -> None:
    """The page names figures and goals, plots are well-formed, and the next run finds the JSON."""
    found = results(1.7, 1.8)
    for each in found[OURS]:
        each |= {ALONE: 10.0, WAITING: 12.0}

    page = write_report(tmp_path, found, machine(), None)

    assert "| 1 spoke to Ready, s | 8 | 1.75 | 0.22 | 1.50 | 1.17 |" in page
    assert "+20.0 %" in page
    assert read_results(tmp_path) == found
    drawn = ET.parse(tmp_path / "time.svg").getroot()
    assert any(READY in (text.text or "") for text in drawn.iter())


def test_a_part_that_is_measured_anew_shares_no_row_with_the_run_before(tmp_path: Path) -> None:
    """However few of its rounds were played; rows of other parts stay."""
    many = "8 spokes to Ready, s"
    kept: Results = {who: [{READY: 1.0, many: 9.0}] * 3 for who in (THEIRS, OURS, FLOOR)}
    write_report(tmp_path, kept, machine(), None)

    findings = Findings(tmp_path, is_part=True)
    findings.note(OURS, 0, {many: 99.0})
    findings.note(OURS, 1, {many: 5.0})
    findings.note(OURS, 2, {many: 6.0})

    found = read_results(tmp_path)
    assert found is not None
    assert found[OURS] == [{READY: 1.0, many: 5.0}, {READY: 1.0, many: 6.0}, {READY: 1.0}]
    assert found[THEIRS] == kept[THEIRS]
