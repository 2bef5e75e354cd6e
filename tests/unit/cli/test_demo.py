"""What `knfleet demo` prints at its end."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from knfleet.cli.demo import command
from knfleet.dev.demo import demo
from knfleet.dev.demo.demo import DemoResult
from knfleet.dev.dev_status import DevClusterStatus


@pytest.mark.parametrize("folder", [None, "some where"])
def test_hints_name_the_clusters_that_were_kept(
    folder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By --dir when they are in a folder of the user's choice."""

    async def show(*_: Any, **__: Any) -> DemoResult:
        return DemoResult(
            (DevClusterStatus("spoke1", True, "https://127.0.0.1:1", "v1.35", "", ()),),
            "http://127.0.0.1:2",
        )

    monkeypatch.setattr(demo, "show", show)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KNFLEET_DEV_DIR", raising=False)
    options = [] if folder is None else ["--dir", folder]

    answer = CliRunner().invoke(command, ["--keep", *options])

    chosen = "--name demo" if folder is None else f"--dir '{tmp_path / folder}'"
    assert answer.exit_code == 0, answer.output
    assert f"knfleet dev status {chosen}\n" in answer.output
    assert f"knfleet dev down {chosen}\n" in answer.output
