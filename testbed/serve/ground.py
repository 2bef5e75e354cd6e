"""All images that an installation of Knative and its users need, from what is on this machine."""

import importlib.util
import sys
from pathlib import Path

from knfleet.dev.progress_reporter import ProgressReporter
from testbed.serve import function
from testbed.serve.images import Image, Images
from testbed.serve.programs import programs

ENVOY = "envoyproxy/envoy"
ENVOY_PATH = "/usr/local/bin/envoy"
FUNCTION = "dev.local/function"
"""Of a registry that Serving asks for no digests."""
FUNCTION_PATH = "/function.py"


async def images(progress: ProgressReporter) -> Images:
    """Knative's programs, Envoy, and the function of a user."""
    found = {
        package: Image((f"/ko-app/{path.name}",), {f"/ko-app/{path.name}": path})
        for package, path in (await programs(progress)).items()
    }
    envoy = envoy_program()
    assert envoy is not None, "run `make serve`, which installs Envoy"
    found[ENVOY] = Image((ENVOY_PATH,), {ENVOY_PATH: envoy})
    found[FUNCTION] = function_image()
    return Images(found)


def function_image() -> Image:
    """Python itself, and the program of the function."""
    python = Path(sys.base_prefix)
    interpreter = python / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    files = {FUNCTION_PATH: Path(function.__file__), str(python): python}
    return Image((str(interpreter), "-I", FUNCTION_PATH), files)


def envoy_program() -> Path | None:
    """Envoy, from the Python package that carries it."""
    found = importlib.util.find_spec("envoy")
    if found is None or found.origin is None:
        return None
    program = Path(found.origin).parent / "_bin" / "envoy"
    return program if program.is_file() else None
