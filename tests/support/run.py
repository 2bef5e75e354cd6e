"""Runs tests in parallel, and repeats alone those on real clusters that failed.

    python -m tests.support.run [pytest's arguments]

Control planes of several workers share few cores, so that a test on them can fail for want of
time. Such a test is repeated once, with nothing beside it. What passes only then is listed as
FLAKY, with its first error; more than three of them fail the run, and so does any other failure.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.support.failures import Failed

FLAKY_LIMIT = 3
REPEAT_LIMIT = 10
"""When more tests fail than this, the cause is not chance."""
TESTS_FAILED = 1
"""pytest's exit code when tests failed, and nothing else went wrong."""


def pytest(*arguments: str) -> int:
    """Run pytest; its exit code."""
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def repeatable(failed: Sequence[Failed]) -> bool:
    """Whether it makes sense to repeat failed tests."""
    return 0 < len(failed) <= REPEAT_LIMIT and all(each.on_clusters for each in failed)


def report(failed: Sequence[Failed]) -> str:
    """The tests that passed only when they were repeated."""
    lines = [f"FLAKY {each.test}: {each.error}" for each in failed]
    if len(failed) > FLAKY_LIMIT:
        lines.append(f"{len(failed)} flaky tests, at most {FLAKY_LIMIT} are tolerated")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Run the tests; 0 when all passed, at once or repeated."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "failures.json"
        code = pytest(*arguments, f"--failures={path}")
        if code != TESTS_FAILED or not path.exists():
            return code
        failed = msgspec.json.decode(path.read_bytes(), type=list[Failed])
    if not repeatable(failed):
        return code
    print(f"\nrepeating {len(failed)} failed tests alone", flush=True)
    code = pytest("-n0", "-rA", *(each.test for each in failed))
    if code == 0:
        print(report(failed), flush=True)
        code = int(len(failed) > FLAKY_LIMIT)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
