"""The pages on compatibility promise nothing that no test holds."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["compatibility.md", "fleet-checklist.md"])
def test_every_test_that_the_page_names_is_there(name: str):
    """A renamed or removed test must be missed."""
    page = (ROOT / "docs" / name).read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    files = (ROOT / "tests").rglob("test_*.py")
    written = {found for file in files for found in re.findall(r"def (test_\w+)", file.read_text())}

    assert named
    assert set() == named - written
