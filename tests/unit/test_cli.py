"""The command line as a whole: fast to start, one overview, errors that help."""

import importlib
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from knfleet.cli.main import COMMANDS, knfleet

HEAVY = ("aiohttp", "cryptography", "msgspec", "rich", "yaml", "asyncio", "psutil", "structlog")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_overview_says_what_the_command_says(name: str) -> None:
    """The table in `main` repeats the first line of each command's help."""
    command = importlib.import_module(COMMANDS[name].module).command

    assert isinstance(command, click.Command)
    assert (command.help or "").splitlines()[0] == COMMANDS[name].help


def test_the_overview_imports_nothing_heavy() -> None:
    """Start-up time is mostly imports; this is what keeps `--help` quick on any machine."""
    script = (
        "import sys; from knfleet.cli.main import knfleet;"
        "knfleet.main(['--help'], standalone_mode=False);"
        f"print('heavy:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )

    assert answer.stdout.splitlines()[-1] == "heavy: []"


def test_the_agent_starts_without_what_structlog_loads_for_colours() -> None:
    """Four megabytes; the command keeps rich out, unless an import loads structlog before it."""
    script = (
        "import sys; import knfleet.cli.process.agent as agent; agent.spare_memory();"
        "import knfleet.agent.assembly, structlog; print(sys.modules.get('rich'))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )

    assert answer.stdout == "None\n"


def test_an_unknown_command_is_wrong_usage() -> None:
    """Exit code 2, and the way to the overview."""
    answer = CliRunner().invoke(knfleet, ["upp"])

    assert answer.exit_code == 2
    assert "No such command 'upp'" in answer.output
