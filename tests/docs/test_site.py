"""The site is built from the pages, with nothing to complain about and nothing from elsewhere."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import DOCS, ROOT

FETCHED = re.compile(r"<(?:script|img|link|iframe)[^>]*(?:src|href)=\"?(https?:)?//")


def settings() -> dict[str, Any]:
    """How the site is made."""
    return tomllib.loads((ROOT / "zensical.toml").read_text())["project"]


def listed(entry: Any) -> Iterator[str]:
    """All pages of a part of the navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        parts: list[Any] = [*entry.values()] if hasattr(entry, "values") else entry
        for each in parts:
            yield from listed(each)


def test_every_page_is_in_the_navigation_once():
    """A page that nobody finds is not there; single decisions are found by the list of them."""
    pages = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
    decisions = [page for page in pages if page.startswith("decisions/0")]
    index = (DOCS / "decisions" / "README.md").read_text()

    assert sorted([*listed(settings()["nav"]), *decisions]) == pages
    assert [each for each in decisions if f"]({Path(each).name})" not in index] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built apart from the working tree."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(DOCS, folder / "docs")
    shutil.copy(ROOT / "zensical.toml", folder)
    program = Path(sys.executable).parent / "zensical"
    built = subprocess.run(
        [program, "build", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = built.stdout + built.stderr
    assert built.returncode == 0, said
    assert "warning" not in said.lower()
    return folder / "site"


def test_the_site_has_all_pages_and_their_files(site: Path):
    for page in filter(Path.is_file, DOCS.rglob("*")):
        path = site / page.relative_to(DOCS)
        if path.name == "README.md":
            path = path.with_name("index.html")
        elif path.suffix == ".md":
            path = path.with_suffix(".html")
        assert path.exists(), path


def test_the_site_fetches_nothing_from_elsewhere(site: Path):
    """It can be read where there is no network."""
    pages = list(site.rglob("*.html"))

    assert pages
    for page in pages:
        assert FETCHED.findall(page.read_text()) == [], page.name
