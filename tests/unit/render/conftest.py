"""The real release files, from the Go module that carries them."""

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from knfleet.api.meta import Object
from knfleet.kube.yaml import load_all

MODULE = "knative.dev/operator@v0.50.0"

Load = Callable[..., list[Object]]


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Reads the objects in folders of the bundle; do not change them."""
    go = shutil.which("go")
    if go is None:
        pytest.skip(f"go is not installed, so that {MODULE} cannot be fetched")
    done = subprocess.run(
        [go, "mod", "download", "-json", MODULE],
        cwd=tmp_path_factory.mktemp("go"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    root = Path(json.loads(done.stdout)["Dir"]) / "cmd" / "operator" / "kodata"

    @cache
    def folder(name: str) -> list[Object]:
        files = sorted((root / name).glob("*.yaml"))
        assert files, f"no release files in {name}"
        return [found for file in files for found in load_all(file.read_bytes(), source=file.name)]

    def load(*folders: str) -> list[Object]:
        return [found for name in folders for found in folder(name)]

    return load
