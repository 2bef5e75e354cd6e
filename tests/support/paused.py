"""Processes of a cluster that are there, and do nothing."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager

from knfleet.dev import processes
from knfleet.dev.control_plane import CONTROLLER_MANAGER, process_name
from testbed.clusters import Lent


@contextmanager
def controllers_stand_still(lent: Lent) -> Generator[None]:
    """Deployments get no pods, and nobody collects garbage, for a while."""
    name = process_name(lent.name, CONTROLLER_MANAGER)
    pid = processes.recorded(lent.folder)[name].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
