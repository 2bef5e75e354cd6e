"""Links lead somewhere: on the forge, and on the site, which has the pages below docs alone."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, anchor, anchors, links, name, pages

OUTSIDE = ("http://", "https://", "mailto:")


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere, each with its line."""
    found: list[str] = []
    for line, target in links(page):
        if target.startswith(OUTSIDE):
            continue
        path, _, part = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists():
            found.append(f"{page.name}:{line}: {target} is not there")
        elif part and part not in anchors(there):
            found.append(f"{page.name}:{line}: {there.name} has no heading #{part}")
        elif page.is_relative_to(DOCS) and not there.is_relative_to(DOCS):
            found.append(f"{page.name}:{line}: {target} is not on the site")
    return found


@pytest.mark.parametrize("page", pages(), ids=name)
def test_every_link_of_a_page_leads_somewhere(page: Path):
    """Files, and headings in them."""
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path):
    """What this test is good for."""
    page = tmp_path / "page.md"
    page.write_text(
        "# One page\n\n[a](other.md) [b](#one-page) [c](#two)\n"
        "`[d](none.md)`\n\n```\n[e](x.md)\n```\n"
        '<img alt="" src="missing.svg">\n'
    )

    assert broken(page) == [
        "page.md:3: other.md is not there",
        "page.md:3: page.md has no heading #two",
        "page.md:9: missing.svg is not there",
    ]


def test_headings_are_called_as_people_link_to_them():
    assert anchor("knfleet bundle pull") == "knfleet-bundle-pull"
    assert anchor("What is `not` there yet?") == "what-is-not-there-yet"


def test_nothing_leads_to_this_machine():
    """A path of somebody's home, or of a worktree, is of no use to others."""
    assert [name(page) for page in pages() if str(ROOT) in page.read_text()] == []
