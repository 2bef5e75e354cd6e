"""Completion: scripts that shells accept, commands without a hub, and silence without one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from knfleet.cli.main import knfleet

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: hub
clusters: [{name: hub, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: me, user: {token: abc}}]
contexts: [{name: hub, context: {cluster: hub, user: me}}]
"""


def complete(line: str, kubeconfig: Path) -> subprocess.CompletedProcess[str]:
    """What bash is told for a line whose last word is to be completed."""
    asked = {
        "_KNFLEET_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "KUBECONFIG": str(kubeconfig),
    }
    return subprocess.run(
        [sys.executable, "-m", "knfleet"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_names_the_program_and_its_variable(shell: str, tmp_path: Path) -> None:
    """And the shell itself, where it is installed, finds nothing wrong with it."""
    answer = CliRunner().invoke(knfleet, ["completion", shell])

    assert answer.exit_code == 0
    assert "knfleet" in answer.output
    assert f"_KNFLEET_COMPLETE={shell}_complete" in answer.output
    if found := shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(answer.output)
        subprocess.run([found, "-n", str(script)], check=True, timeout=30)


def test_commands_are_completed_from_the_table(tmp_path: Path) -> None:
    answer = complete("knfleet st", tmp_path / "none")

    assert answer.stdout.split() == ["plain,status"]


@pytest.mark.parametrize("content", [KUBECONFIG, "", "{"])
def test_without_a_hub_there_are_no_names_and_no_complaint(content: str, tmp_path: Path) -> None:
    """A shell that prints errors while somebody types is worse than one without names."""
    path = tmp_path / "kubeconfig"
    path.write_text(content)

    answer = complete("knfleet status kn", path)

    assert (answer.stdout.strip(), answer.stderr) == ("", "")


def test_an_unknown_shell_is_wrong_usage() -> None:
    answer = CliRunner().invoke(knfleet, ["completion", "csh"])

    assert answer.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in answer.output
