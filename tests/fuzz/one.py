"""Fuzz one reader: `python -m tests.fuzz.one TARGET FOLDER INPUTS SEED`, guided by coverage.

libFuzzer ends the process itself, and leaves the input that failed in the folder.
"""

import importlib
import sys
import warnings
from typing import Any

atheris: Any = importlib.import_module("atheris")

with atheris.instrument_imports(include=["knfleet"]):
    from tests.fuzz.targets import TARGETS

INPUT_BYTES = 4096
SLOW_SECONDS = 20
"""An input that takes so long has found something, on a busy machine too."""


def main() -> None:
    """Give a reader random inputs until one fails."""
    target, folder, inputs, seed = sys.argv[1:5]
    warnings.simplefilter("ignore")
    options = [
        f"-runs={inputs}",
        f"-seed={seed}",
        f"-max_len={INPUT_BYTES}",
        f"-timeout={SLOW_SECONDS}",
        f"-artifact_prefix={folder}/found-",
        "-print_final_stats=1",
        "-rss_limit_mb=2048",
        f"{folder}/corpus",
    ]
    atheris.Setup([sys.argv[0], *options], TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
