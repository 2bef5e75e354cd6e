"""The pages of the documentation, and which test follows which of them."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

FOLLOWED = {
    "CONTRIBUTING.md": "test_pages_that_need_no_cluster_can_be_followed",
    "README.md": "test_pages_that_need_no_cluster_can_be_followed",
    "docs/air-gap.md": "test_the_page_about_the_air_gap_can_be_followed",
    "docs/dev-clusters.md": "test_the_page_about_clusters_on_ones_machine_can_be_followed",
    "docs/fleet.md": "test_the_page_about_fleets_can_be_followed",
    "docs/fleets.md": "test_the_pages_about_a_fleet_at_work_can_be_followed",
    "docs/least-privilege.md": "test_pages_that_need_no_cluster_can_be_followed",
    "docs/install.md": "test_the_page_about_installing_can_be_followed",
    "docs/migrate-knative-operator.md": "test_the_page_about_the_knative_operator_can_be_followed",
    "docs/migrate-ocm.md": "test_the_pages_about_a_fleet_at_work_can_be_followed",
    "docs/multicluster.md": "test_the_guide_to_many_clusters_works_as_it_is_written",
    "docs/packages.md": "test_the_page_about_the_command_can_be_followed",
    "docs/placement.md": "test_the_pages_about_a_fleet_at_work_can_be_followed",
    "docs/releases.md": "test_the_page_about_release_files_can_be_followed",
    "docs/replica-sets.md": "test_the_pages_about_a_fleet_at_work_can_be_followed",
    "docs/security.md": "test_the_pages_about_a_fleet_at_work_can_be_followed",
    "docs/troubleshoot.md": "test_the_pages_about_a_fleet_at_work_can_be_followed",
    "docs/works.md": "test_the_pages_about_a_fleet_at_work_can_be_followed",
    "docs/upgrade.md": "test_the_pages_about_a_fleet_at_work_can_be_followed",
}
"""The test that types what a page says to type, by the page."""

HEADING = re.compile(r"^#{1,6} +(.+?) *#*$")
LINK = re.compile(
    r"!?\[[^\]]*\]\(([^)\s]+)[^)]*\)|<img[^>]* src=\"([^\"]+)\"|<a[^>]* href=\"([^\"]+)\""
)


def pages() -> list[Path]:
    """Every page that people read."""
    own = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    return [*own, *sorted(DOCS.rglob("*.md"))]


def name(page: Path) -> str:
    """A page as the table above calls it."""
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page outside blocks of code, with their numbers and without code in them."""
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", "", line)


def links(page: Path) -> Iterator[tuple[int, str]]:
    """Where a page leads, with the line that says so."""
    for number, line in prose(page):
        for found in LINK.findall(line):
            yield number, next(target for target in found if target)


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, where the site and the forge call them the same."""
    found: set[str] = set()
    fenced = False
    for line in page.read_text().splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        heading = None if fenced else HEADING.match(line)
        if heading is not None:
            found.add(anchor(heading[1]))
    return found


def anchor(heading: str) -> str:
    """What a heading is called in links."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.replace("`", ""))
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())
