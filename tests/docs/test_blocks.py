"""Whatever a page says to type is typed by a test, or the page says why not."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import FOLLOWED, ROOT, name, pages
from tests.support.documents import NOT_TYPED, steps

SHELLS = ("```bash", "```shell", "```console", "```zsh")
MOST_NOT_TYPED = 12
"""In all pages together; every one of them needs a good reason."""


def typed(page: Path) -> int:
    """How many blocks of a page are to be typed."""
    return sum(step.what == "type" for step in steps(page.read_text()))


def test_every_page_with_commands_belongs_to_a_test():
    """A new page is followed, or this fails."""
    with_commands = {name(page) for page in pages() if typed(page)}

    assert with_commands - FOLLOWED.keys() == set()
    assert all((ROOT / page).is_file() for page in FOLLOWED)


@pytest.mark.parametrize(("page", "test"), FOLLOWED.items())
def test_the_test_of_a_page_is_there_and_opens_it(page: str, test: str):
    """A renamed test, or one that leaves out the page, must be missed."""
    files = [file.read_text() for file in (ROOT / "tests").rglob("test_*.py")]
    (found,) = [text for text in files if f"async def {test}(" in text]

    assert Path(page).name in found


@pytest.mark.parametrize("page", pages(), ids=name)
def test_commands_are_in_blocks_that_tests_read(page: Path):
    """Blocks by indentation, or of another shell's name, would be passed over in silence."""
    lines = page.read_text().splitlines()
    before = ["", *lines]
    indented = [
        number
        for number, line in enumerate(lines, start=1)
        if re.match(r"    \S", line)
        and not before[number - 1].strip()
        and not fenced(lines, number)
    ]

    assert indented == []
    assert [line for line in lines if line.startswith(SHELLS)] == []


def fenced(lines: list[str], number: int) -> bool:
    """Whether a line is within a block."""
    return sum(line.lstrip().startswith("```") for line in lines[: number - 1]) % 2 == 1


def test_few_blocks_are_not_typed():
    """Each one is a promise that nobody checks."""
    marks = [
        f"{name(page)}: {line.strip()}"
        for page in pages()
        for line in page.read_text().splitlines()
        if NOT_TYPED.match(line)
    ]

    assert len(marks) <= MOST_NOT_TYPED, "\n".join(marks)
