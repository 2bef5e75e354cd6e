"""A name has one meaning: readers find a class or module by its name, at the first guess."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "knfleet"
FILE = re.compile(r"`((?:src|tests|docs|ground|tools|testbed)/[\w./-]+\.\w+)`")
MOST_FILES = 15
ROLES = {
    "__init__",
    "__main__",
    "conditions",
    "controller",
    "controllers",
    "csr",
    "driver",
    "errors",
    "main",
    "manager",
    "registry",
    "rights",
    "settings",
}
"""Modules that have the same role in several packages, and so the same name."""


def modules() -> Iterator[Path]:
    """Every module of the program."""
    yield from sorted(SOURCES.rglob("*.py"))


def test_each_class_name_is_used_once() -> None:
    """Two classes of one name would be two things, or one thing written twice."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(SOURCES)))

    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_each_module_name_is_used_once() -> None:
    """Modules of `cli` are named after their commands, those above after their roles."""
    names = Counter(
        path.stem
        for path in modules()
        if path.stem not in ROLES and path.relative_to(SOURCES).parts[0] != "cli"
    )

    assert [name for name, count in names.items() if count > 1] == []


def test_folders_are_small() -> None:
    """A folder that grows beyond this is divided."""
    counts = Counter(path.parent for path in modules() if path.name != "__init__.py")

    assert {str(path): count for path, count in counts.items() if count > MOST_FILES} == {}


def test_the_files_that_contributors_are_sent_to_exist() -> None:
    """CONTRIBUTING names the file to open first for each likely change."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(FILE.findall(text))

    assert len(named) > 40
    assert sorted(path for path in named if not (ROOT / path).exists()) == []
