"""`make fuzz`: gives each reader of foreign input so many random inputs, one reader at a time.

Each begins with valid input and with what was found before. An input that fails stays in
`build/fuzz`; once it is understood, a copy in `tests/fuzz/corpus` keeps it tested.
"""

import argparse
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from msgspec import Struct

from tests.fuzz.corpus import kept
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "fuzz"
DONE = re.compile(r"stat::number_of_executed_units: (\d+)")
COVERED = re.compile(r"cov: (\d+)")


class FuzzResult(Struct, frozen=True):
    """What came of one reader."""

    target: str
    inputs: int
    covered: int
    seconds: float
    failed: bool

    def __str__(self) -> str:
        verdict = "FAILED" if self.failed else "held"
        rate = self.inputs / self.seconds
        return (
            f"{self.target:16} {self.inputs:>9} inputs {self.seconds:7.0f} s {rate:7.0f}/s"
            f" {self.covered:5} branches  {verdict}"
        )


def fuzz(target: str, inputs: int, seed: int) -> FuzzResult:
    """Fuzz one reader in a process of its own."""
    folder = BUILD / target
    shutil.rmtree(folder, ignore_errors=True)
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    for number, content in enumerate([*seeds(target), *kept(target)]):
        (corpus / f"seed-{number}").write_bytes(content)
    started = time.monotonic()
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "tests.fuzz.one", target, str(folder)]
        done = subprocess.run(
            [*command, str(inputs), str(seed)], cwd=ROOT, stdout=log, stderr=log, check=False
        )
    seconds = time.monotonic() - started
    said = (folder / "log").read_text(errors="replace")
    counts = [int(each) for each in DONE.findall(said)]
    covered = [int(each) for each in COVERED.findall(said)]
    result = FuzzResult(target, sum(counts), max(covered, default=0), seconds, done.returncode != 0)
    print(result, flush=True)
    if result.failed:
        print("\n".join(said.splitlines()[-25:]), flush=True)
    return result


def main() -> int:
    """Fuzz all readers, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("targets", nargs="*", help=", ".join(TARGETS))
    given = parser.parse_args()
    results = [fuzz(each, given.inputs, given.seed) for each in given.targets or TARGETS]
    failed = [each.target for each in results if each.failed]
    if failed:
        print(f"{', '.join(failed)} failed; the input is in {BUILD}/TARGET/found-*")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
