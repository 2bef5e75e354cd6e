"""Which failed tests are repeated, and what a run with flaky ones reports."""

import ast
from pathlib import Path

import pytest

from tests.support import run
from tests.support.failures import POOLS, Failed

TESTS = Path(__file__).parents[1]


def failed(count: int, *, on_clusters: bool = True) -> list[Failed]:
    """Some failed tests."""
    return [Failed(f"tests/server/test_a.py::test_{n}", "lost", on_clusters) for n in range(count)]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (failed(0), False),
        (failed(1), True),
        (failed(run.REPEAT_LIMIT), True),
        (failed(run.REPEAT_LIMIT + 1), False),
        ([*failed(1), *failed(1, on_clusters=False)], False),
    ],
)
def test_only_a_few_failures_on_clusters_are_repeated(
    found: list[Failed], *, expected: bool
) -> None:
    """Any other failure is a defect."""
    assert run.repeatable(found) is expected


def test_flaky_tests_are_listed_with_their_first_error() -> None:
    """More than three are too many, and the report says so."""
    assert run.report(failed(1)) == "FLAKY tests/server/test_a.py::test_0: lost"
    assert "4 flaky tests" in run.report(failed(4))


def test_every_fixture_that_gives_clusters_is_known() -> None:
    """A test on clusters of an unknown pool would not be repeated."""
    makers = {
        function.name
        for path in TESTS.rglob("conftest.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "Pool"
    }

    assert makers == POOLS
