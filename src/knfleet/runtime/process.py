"""A manager as a whole program: event loop, signals, exit code.

The first SIGTERM or SIGINT ends it in order; a second one ends it at once, as does the time limit,
which counts even while the event loop is stuck.
"""

import asyncio
import faulthandler
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

from knfleet.runtime.leader import LostLeadership
from knfleet.runtime.logs import log
from knfleet.runtime.manager import GRACE_SECONDS, Manager

SIGNALS = (signal.SIGTERM, signal.SIGINT)
Build = Callable[[Manager], Awaitable[None]]


def run_process(build: Build, grace_seconds: float = GRACE_SECONDS) -> int:
    """Build a manager's components and run them; 0 when it was told to stop, 1 when it failed."""
    allow_files()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        try:
            return runner.run(serve(build, Manager(grace_seconds)))
        finally:
            faulthandler.cancel_dump_traceback_later()


async def serve(build: Build, manager: Manager) -> int:
    """Run until a signal or a failure."""
    building = asyncio.ensure_future(build(manager))

    def end(number: int) -> None:
        restore_signals()
        log.info("stopping", signal=signal.Signals(number).name)
        faulthandler.dump_traceback_later(
            manager.grace_seconds + 1, exit=True, file=sys.__stderr__ or sys.stderr
        )
        manager.stop()
        building.cancel()

    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        await run_built(building, manager)
    except LostLeadership as error:
        log.error("leadership lost", error=str(error))
        return 1
    except Exception as error:  # noqa: BLE001  the end of the program, told in its log
        log.critical("crashed", error=f"{type(error).__name__}: {error}", exc_info=error)
        return 1
    finally:
        restore_signals()
    log.info("stopped")
    return 0


async def run_built(building: asyncio.Future[None], manager: Manager) -> None:
    """Run a manager once it is built; if that fails, close what it has opened."""
    try:
        await building
    except asyncio.CancelledError:
        await manager.closing.aclose()
        if not manager.stopping.is_set():
            raise
    except Exception:
        await manager.closing.aclose()
        raise
    else:
        await manager.run()


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
