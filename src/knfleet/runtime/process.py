"""A manager as a whole program: event loop, signals, exit code.

The first SIGTERM or SIGINT ends it in order; a second one ends it at once, as does the time limit,
which counts even while the event loop is stuck.

A process that lost its Lease, because the API server did not answer for so long or because it was
paused, ends everything that runs in it, in order, and is then a candidate as if it had just been
started: nothing that it remembers may be true any more, since another process may have led.
"""

import asyncio
import faulthandler
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from knfleet.runtime.audit.audit import auditing
from knfleet.runtime.leader.leader import LostLeadership
from knfleet.runtime.logs import log
from knfleet.runtime.manager import GRACE_SECONDS, Build, ComponentFailed, Manager

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_process(build: Build, grace_seconds: float = GRACE_SECONDS) -> int:
    """Build a manager's components and run them; 0 when it was asked to stop, 1 when it failed."""
    allow_files()
    with (
        auditing(os.environ),
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        return runner.run(serve(build, Manager(grace_seconds)))


async def serve(build: Build, manager: Manager) -> int:
    """Run until a signal or a failure."""
    is_ending = False

    def end(number: int) -> None:
        nonlocal is_ending
        is_ending = True
        restore_signals()
        log.info("stopping", signal=signal.Signals(number).name)
        manager.stop()

    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        while True:
            error = await outcome(build, manager)
            if error is None:
                log.info("stopped")
                return 0
            if is_ending or not is_loss(error):
                return 1
            manager = Manager(manager.grace_seconds, manager.identity)
    finally:
        restore_signals()


async def outcome(build: Build, manager: Manager) -> Exception | None:
    """Run a manager to its end; what went wrong, which is logged, if anything did."""
    limit = asyncio.ensure_future(limit_end(manager))
    try:
        await manager.run(build)
    except Exception as error:  # noqa: BLE001  the end of the program, or of its leadership
        if is_loss(error):
            log.error("leadership lost; everything is stopped", error=str(error))
        else:
            log.critical("crashed", error=f"{type(error).__name__}: {error}", exc_info=error)
        return error
    finally:
        limit.cancel()
        faulthandler.cancel_dump_traceback_later()
    return None


async def limit_end(manager: Manager) -> None:
    """From when a manager begins to end, let it not take longer than it may."""
    await manager.stopping.wait()
    faulthandler.dump_traceback_later(
        manager.grace_seconds + 1, exit=True, file=sys.__stderr__ or sys.stderr
    )


def is_loss(error: BaseException | None) -> bool:
    """Whether a failure is that this process leads no more, wherever that was noticed first."""
    if isinstance(error, ComponentFailed):
        return is_loss(error.__cause__)
    grouped: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    return isinstance(error, LostLeadership) or (bool(grouped) and all(map(is_loss, grouped)))


def restore_signals() -> None:
    """Let the next signal do what signals do: end the process at once."""
    for number in SIGNALS:
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)


def allow_files() -> None:
    """Have as many files open as the system lets us; every watch of every spoke is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where there is one: its TLS connections need a quarter of the memory."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
