"""Processes that outlive their node are found, and nobody else is."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil

from knfleet.dev.node.containers.orphan_processes import kill_orphans, orphans, write_pid_file
from knfleet.kube.auth.pod_path import POD_ROOT

SLEEP = [sys.executable, "-c", "import signal; signal.pause()"]


@contextmanager
def process(**environment: str) -> Generator[subprocess.Popen[bytes]]:
    """A process of its own group."""
    child = subprocess.Popen(SLEEP, env={**os.environ, **environment}, start_new_session=True)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def test_processes_are_found_by_file_and_by_environment(tmp_path: Path) -> None:
    """Those of other folders are not touched."""
    pod = tmp_path / "ns_pod_uid"
    pod.mkdir()
    inside = str(pod.resolve() / "roots" / "main")
    with (
        process() as noted,
        process(**{POD_ROOT: inside}) as unnoted,
        process(**{POD_ROOT: f"{tmp_path}-other/ns_pod_uid/roots/main"}) as foreign,
    ):
        write_pid_file(pod / "main.pid", noted.pid)

        found = kill_orphans(tmp_path)

        assert {each.pid for each in found} == {noted.pid, unnoted.pid}
        assert {each.pod for each in found} == {"ns_pod_uid"}
        assert not psutil.pid_exists(noted.pid)
        assert not psutil.pid_exists(unnoted.pid)
        assert foreign.poll() is None
    assert orphans(tmp_path) == []


def test_a_reused_number_is_somebody_else(tmp_path: Path) -> None:
    """A file from before a restart of the machine must not end another program."""
    pod = tmp_path / "ns_pod_uid"
    pod.mkdir()
    created = psutil.Process().create_time() - 3600
    (pod / "main.pid").write_text(json.dumps({"pid": os.getpid(), "created": created}))
    (pod / "half.pid").write_text('{"pid": 1')

    assert orphans(tmp_path) == []


def test_no_folder_is_no_orphans(tmp_path: Path) -> None:
    """A cluster that never had a real pod."""
    assert kill_orphans(tmp_path / "none") == []
