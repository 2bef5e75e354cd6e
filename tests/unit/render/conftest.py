"""The real release files, from the Go module that carries them."""

import asyncio
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from knfleet.api.meta import Object
from knfleet.kube.yaml import load_all
from knfleet.release.source.sources import GoModuleSource

Load = Callable[..., list[Object]]


@pytest.fixture(scope="session")
def bundle_root() -> Path:
    """The folder of release files."""
    if shutil.which("go") is None:
        pytest.skip(f"go is not installed, so that {GoModuleSource()} cannot be fetched")
    return asyncio.run(GoModuleSource().fetch())


@pytest.fixture(scope="session")
def release(bundle_root: Path) -> Load:
    """Reads the objects in folders of the bundle; do not change them."""

    @cache
    def folder(name: str) -> list[Object]:
        files = sorted((bundle_root / name).glob("*.yaml"))
        assert files, f"no release files in {name}"
        return [found for file in files for found in load_all(file.read_bytes(), source=file.name)]

    def load(*folders: str) -> list[Object]:
        return [found for name in folders for found in folder(name)]

    return load
