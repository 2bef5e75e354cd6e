"""The chained record of writes: what was done to it afterwards is found, and where."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from knfleet.cli.main import knfleet
from knfleet.runtime.audit.audit_file import AuditFile, rotated
from knfleet.runtime.audit.hash_chain import check

Change = Callable[[list[bytes]], list[bytes]]
CHANGES: dict[str, tuple[Change, int, str]] = {
    "changed": (
        lambda lines: [*lines[:2], lines[2].replace(b"n2", b"n9"), *lines[3:]],
        3,
        "was changed",
    ),
    "removed": (lambda lines: [*lines[:2], *lines[3:]], 3, "does not follow record 2"),
    "doubled": (lambda lines: [*lines[:3], lines[2], *lines[3:]], 4, "does not follow"),
    "swapped": (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], 3, "does not follow"),
    "overwritten": (lambda lines: [*lines[:2], b"nonsense\n", *lines[3:]], 3, "is no record"),
    "cut": (lambda lines: [*lines, lines[-1][:20]], 7, "is cut off"),
}


def written(path: Path, count: int, **options: int) -> AuditFile:
    """A file with some records."""
    file = AuditFile(path, **options)
    for number in range(count):
        file.write({"verb": "apply", "name": f"n{number}"})
    return file


def test_a_chain_that_nobody_touched_is_whole(tmp_path: Path) -> None:
    """Across a restart, and for its owner alone."""
    path = tmp_path / "audit.log"
    written(path, 3).close()
    last = written(path, 2)

    report = check(rotated(path))

    assert (report.problem, report.lines, report.last) == (None, 5, last.link)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("what", CHANGES)
def test_the_first_broken_link_is_named(tmp_path: Path, what: str) -> None:
    """By file and line, with what is wrong."""
    change, line, words = CHANGES[what]
    path = tmp_path / "audit.log"
    written(path, 6).close()
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))

    result = CliRunner().invoke(knfleet, ["audit", "verify", str(path)])

    assert result.exit_code == 1
    assert f"{path}:{line}: " in result.output
    assert words in result.output


def test_records_that_are_missing_at_the_end_are_found_by_the_last_hash(tmp_path: Path) -> None:
    """Which is noted elsewhere."""
    path = tmp_path / "audit.log"
    file = written(path, 3)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))

    fine = CliRunner().invoke(knfleet, ["audit", "verify", str(path)])
    short = CliRunner().invoke(knfleet, ["audit", "verify", str(path), "--last", file.link.hash])

    assert "2 records in 1 files are as they were written" in fine.output
    assert (short.exit_code, "missing at the end" in short.output) == (1, True)


def test_full_files_are_rotated_and_the_chain_goes_on(tmp_path: Path) -> None:
    """The oldest go; what is left is still a chain."""
    path = tmp_path / "audit.log"
    file = written(path, 40, most_bytes=1000, keep=3)

    report = check(rotated(path))

    assert len(rotated(path)) == 4
    assert report.problem is None
    assert 0 < report.first.number < report.last.number == 40
    assert report.last == file.link
    rotated(path)[1].unlink()
    assert "does not follow" in str(check(rotated(path)).problem)


def test_a_line_that_was_cut_off_by_a_crash_is_no_forgery(tmp_path: Path) -> None:
    """The next process notes it, and goes on."""
    path = tmp_path / "audit.log"
    written(path, 3).close()
    with path.open("ab") as file:
        file.write(b'{"verb":"app')

    written(path, 2).close()

    report = check(rotated(path))
    assert report.problem is None
    assert report.last.number == 6


def test_a_disk_that_is_full_ends_nothing(tmp_path: Path) -> None:
    """What could not be written is missing; what follows is still a chain."""
    path = tmp_path / "audit.log"
    file = written(path, 2)
    own = file.descriptor
    file.descriptor = os.open("/dev/full", os.O_WRONLY)
    file.write({"verb": "apply"})
    os.close(file.descriptor)
    file.descriptor = own
    file.write({"verb": "delete"})

    report = check(rotated(path))

    assert (report.problem, report.last.number) == (None, 3)


def test_a_file_that_cannot_be_rotated_writes_into_no_other(tmp_path: Path) -> None:
    """The number of a closed file is that of the next connection."""
    path = tmp_path / "audit.log"
    file = written(path, 1, most_bytes=600, keep=1)
    (tmp_path / "audit.log.1").mkdir()
    while not file.is_failing:
        file.write({"verb": "apply"})
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    file.write({"verb": "apply"})

    assert os.fstat(other).st_size == 0
    os.close(other)
    (tmp_path / "audit.log.1").rmdir()
    file.write({"verb": "apply"})
    file.close()
    assert not file.is_failing
    assert not check(rotated(path)).problem


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With where its name comes from."""
    result = CliRunner().invoke(knfleet, ["audit", "verify", str(tmp_path / "none")])

    assert (result.exit_code, "KNFLEET_AUDIT_FILE" in result.output) == (1, True)
