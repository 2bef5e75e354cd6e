"""Records failed tests for `tests.support.run`, as a pytest plugin.

A worker notes on each report how its test is called and whether it used real clusters; the process
that prints the results writes the failed ones to the file that `--failures` names.
"""

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

TEST = "test"
CLUSTERS = "on clusters"
FIRST_LINE_CHARACTERS = 200
POOLS = frozenset({"pool", "hub_pool", "serving_pool"})
"""The fixtures that give tests real clusters."""


class Failed(Struct, frozen=True):
    """A test that failed."""

    test: str
    error: str
    """The first line of what went wrong."""
    on_clusters: bool
    """Whether it used real clusters or a browser, so that other load can have caused it."""


class Failures:
    """All failed tests of a run, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[str, Failed] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the first failure of a test."""
        if report.failed and report.nodeid not in self.found:
            known: dict[str, Any] = dict(report.user_properties)
            failed = Failed(
                known.get(TEST, report.nodeid), first_line(report), known.get(CLUSTERS, False)
            )
            self.found[report.nodeid] = failed
            print(f"\nfailed: {failed.test}: {failed.error}", file=sys.stderr, flush=True)

    def pytest_sessionfinish(self) -> None:
        """Write the list, also when it is empty: a missing file means that the run was cut off."""
        self.path.write_bytes(msgspec.json.encode(list(self.found.values())))


def first_line(report: pytest.TestReport) -> str:
    """The first line of the error itself, without its traceback."""
    crash: Any = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash is not None else report.longreprtext).strip().splitlines()
    return lines[0][:FIRST_LINE_CHARACTERS] if lines else report.outcome


def pytest_addoption(parser: pytest.Parser) -> None:
    """Name the option."""
    parser.addoption("--failures", type=Path, help="write failed tests to this file as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Record in the process that has all reports."""
    path: Path | None = config.getoption("--failures")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(path))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say on the report what its test is called and uses."""
    report = yield
    group = item.get_closest_marker("xdist_group")
    # Workers add the name of the group to the name of the test.
    suffix = f"@{group.args[0]}" if group is not None and group.args else ""
    report.user_properties.append((TEST, item.nodeid.removesuffix(suffix)))
    fixtures: list[str] = getattr(item, "fixturenames", [])
    report.user_properties.append((CLUSTERS, not POOLS.isdisjoint(fixtures)))
    return report
