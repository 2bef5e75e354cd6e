"""Pages promise nothing that no test holds: every test that they name is there."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT

NAMED = re.compile(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)`")
"""A test, by its name alone or with its file."""


def written() -> set[tuple[str, str]]:
    """All tests, by file and name."""
    return {
        (file.relative_to(ROOT).as_posix(), name)
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", file.read_text())
    }


def missing(text: str) -> set[str]:
    """The tests that a text names and that are not there."""
    tests = written()
    names = {name for _, name in tests}
    return {
        f"{file}::{name}" if file else name
        for file, name in NAMED.findall(text)
        if ((file, name) not in tests if file else name not in names)
    }


@pytest.mark.parametrize("page", ["compatibility.md", "fleet-checklist.md", "security.md"])
def test_every_test_that_a_page_names_is_there(page: str):
    """A renamed or removed test must be missed."""
    text = (DOCS / page).read_text()

    assert NAMED.findall(text)
    assert missing(text) == set()


@pytest.mark.parametrize(
    ("page", "heading"), [("security.md", "Tests"), ("compatibility.md", "Test")]
)
def test_every_row_names_its_test(page: str, heading: str):
    """In tables with a column for tests; on the page on security, with the file."""
    rows = rows_below(DOCS / page, heading)

    assert rows
    assert [row for row in rows if not NAMED.search(row)] == []
    if page == "security.md":
        assert [row for row in rows if not all(file for file, _ in NAMED.findall(row))] == []


def rows_below(page: Path, heading: str) -> list[str]:
    """The last cells of all tables whose last column is called so."""
    found: list[str] = []
    inside = False
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            inside = False
        elif cells[-1] == heading:
            inside = True
        elif inside and not line.startswith("|--"):
            found.append(cells[-1])
    return found


def test_a_test_that_is_not_there_is_found():
    here = "tests/docs/test_named_tests.py"
    text = f"`test_nothing_of_the_kind` `{here}::test_every_row_names_its_test` `{here}::test_no`"

    assert missing(text) == {"test_nothing_of_the_kind", f"{here}::test_no"}
