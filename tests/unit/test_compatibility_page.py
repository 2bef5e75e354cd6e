"""The page on compatibility promises nothing that no test holds."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_names_is_there():
    """A renamed or removed test must be missed."""
    page = (ROOT / "docs" / "compatibility.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    files = (ROOT / "tests").rglob("test_*.py")
    written = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}

    assert named
    assert set() == named - written
