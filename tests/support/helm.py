"""The real Helm, for tests of our chart."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.dev.progress_reporter import SilentProgress
from knfleet.kube.yaml import load_all
from testbed.go_build import built

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "knfleet"
PACKAGE = "helm.sh/helm/v3/cmd/helm"
SECONDS = 120


class Answer(Struct, frozen=True):
    """What a command said."""

    code: int
    output: str
    complaint: str


class Helm(Struct, frozen=True):
    """Helm, with a home of its own."""

    binary: Path
    home: Path
    kubeconfig: Path | None = None

    async def run(self, *arguments: str) -> Answer:
        """Run a command."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        if self.kubeconfig is not None:
            environment["KUBECONFIG"] = str(self.kubeconfig)
        process = await asyncio.create_subprocess_exec(
            *(str(self.binary), *arguments),
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            output, complaint = await asyncio.wait_for(process.communicate(), SECONDS)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        assert process.returncode is not None
        return Answer(process.returncode, output.decode(), complaint.decode())

    async def done(self, *arguments: str) -> str:
        """Run a command that must succeed."""
        answer = await self.run(*arguments)
        assert answer.code == 0, answer.complaint
        return answer.output

    async def template(self, *arguments: str) -> list[Object]:
        """The objects of our chart."""
        text = await self.done("template", "operator", str(CHART), *arguments)
        return [each for each in load_all(text) if each]


@pytest.fixture(scope="session")
def helm_binary() -> Path:
    """The program, built unless it is kept from before."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed, so that Helm cannot be built")
    return asyncio.run(built("helm", PACKAGE, "helm", SilentProgress()))


@pytest.fixture
def helm(helm_binary: Path, tmp_path: Path) -> Helm:
    """Helm without a cluster."""
    return Helm(helm_binary, tmp_path)
