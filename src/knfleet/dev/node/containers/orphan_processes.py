"""Processes of real pods that outlived the node which started them.

Every process has a file beside its log with its number and start time, so that neither a reused
number nor a node that was killed can mislead us. Processes that such a file misses (started just
before the kill, or grown out of their process group) are known by their environment, which names
the pods folder. Nothing but the standard library and psutil is needed here.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
from msgspec import Struct

from knfleet.kube.auth.pod_path import POD_ROOT

TOLERANCE_SECONDS = 2.0
"""How far two readings of one start time may differ."""
PATIENCE_SECONDS = 2.0


class Orphan(Struct, frozen=True, order=True):
    """A living process of a pod."""

    pid: int
    created: float
    pod: str
    """Name of the pod's folder: namespace, name and uid."""


def write_pid_file(path: Path, pid: int) -> None:
    """Note which process a container is."""
    try:
        created = psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return
    path.write_text(json.dumps({"pid": pid, "created": created}))


def orphans(pods_folder: Path) -> list[Orphan]:
    """Every living process that belongs to a pod below the folder."""
    found = {each.pid: each for each in by_environment(pods_folder)}
    found.update({each.pid: each for each in by_pid_file(pods_folder)})
    return sorted(found.values())


def kill_orphans(pods_folder: Path) -> list[Orphan]:
    """End every process that belongs to a pod below the folder; says which they were."""
    found = orphans(pods_folder)
    for number in (signal.SIGTERM, signal.SIGKILL):
        living = [process for each in found if (process := alive(each.pid, each.created))]
        for process in living:
            send(process, number)
        psutil.wait_procs(living, timeout=PATIENCE_SECONDS)
    return found


def send(process: psutil.Process, number: signal.Signals) -> None:
    """Signal a process, and its group if it leads one."""
    try:
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
    except (ProcessLookupError, psutil.NoSuchProcess):
        return


def by_pid_file(pods_folder: Path) -> Iterator[Orphan]:
    """Living processes that a pid file names."""
    for path in pods_folder.glob("*/*.pid"):
        try:
            noted = json.loads(path.read_text())
            orphan = Orphan(int(noted["pid"]), float(noted["created"]), path.parent.name)
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if alive(orphan.pid, orphan.created):
            yield orphan


def by_environment(pods_folder: Path) -> Iterator[Orphan]:
    """Living processes whose environment names a pod below the folder."""
    folder = pods_folder.resolve()
    for process in psutil.process_iter():
        try:
            root = Path(process.environ().get(POD_ROOT, ""))
            created = process.create_time()
        except (psutil.Error, OSError):
            continue
        if root.is_relative_to(folder) and root != folder:
            yield Orphan(process.pid, created, root.relative_to(folder).parts[0])


def alive(pid: int, created: float) -> psutil.Process | None:
    """The process with that number, if it is the one that started then and still runs."""
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - created) < TOLERANCE_SECONDS
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None
