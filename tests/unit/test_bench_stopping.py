"""A measurement that is stopped leaves nothing behind, though started in the background."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from testbed.waiting import PATIENCE_SECONDS, until

MEASURE = """
import asyncio, signal, sys
from pathlib import Path
from bench.stopping import measured

async def measure(folder):
    Path(sys.argv[1]).write_text(str(folder))
    await asyncio.Event().wait()

signal.signal(signal.SIGINT, signal.SIG_IGN)  # as shells start what goes to the background
measured(measure)
"""


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGTERM])
async def test_signals_end_a_measurement_and_its_folder(tmp_path: Path, blow: int) -> None:
    """Both alike."""
    said = tmp_path / "said"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", MEASURE, str(said)), stderr=asyncio.subprocess.DEVNULL
    )
    await until(lambda: said.exists() and bool(said.read_text()), "it measures")
    folder = Path(said.read_text())
    assert folder.is_dir()
    process.send_signal(blow)
    assert await asyncio.wait_for(process.wait(), PATIENCE_SECONDS) != 0
    assert not folder.exists()
