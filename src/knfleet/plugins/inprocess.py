"""Our own plugins without a process for each run.

Starting an interpreter costs a hundred times what a plugin does with it, and a thousand spokes log
in at once after a restart. A program that is a start script of one of our plugins, for the very
interpreter that runs here, would run the code that is here already: so that is called, in a thread,
and what it says is taken as if it had been printed. Everything else is run as a program.
"""

import asyncio
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from threading import Lock

from knfleet.kube.auth import exec_process
from knfleet.kube.auth.exec_process import ProcessEnd, ProcessResult
from knfleet.kube.auth.pod_path import POD_ROOT
from knfleet.plugins import hub_api, kubeconfig_secretreader, permission, secretreader
from knfleet.plugins.execcredential import EXEC_INFO, PROFILE, PluginEnvironment, Provide, respond
from knfleet.plugins.hub_api import CONTEXT_VARIABLE, FAILURES, HubApi

THREADS = 4
KEEP_SECONDS = 20.0
BELIEVED_SECONDS = 5.0
SCRIPT_BYTES = 1024
"""A start script is shorter than this."""
STARTS = re.compile(rb"^from (knfleet\.plugins\.\w+) import main$", re.MULTILINE)
OWN: Mapping[str, tuple[str, Provide]] = {
    module.__name__: (module.NAME, module.credential)
    for module in (secretreader, kubeconfig_secretreader)
}
ASKED = frozenset({EXEC_INFO, PROFILE, permission.VARIABLE})
"""Variables that say what is asked for, and what is permitted."""
HEEDED = ASKED | {CONTEXT_VARIABLE, "KUBECONFIG", "POD_NAMESPACE"}
"""Variables that configure our plugins; others may change how an interpreter starts."""
MEANING = frozenset({hub_api.HOST, hub_api.PORT, POD_ROOT, "HOME"}) | (HEEDED - ASKED)
"""Variables that say which hub is meant, and as who."""


class PooledHubApi(HubApi):
    """A hub whose connections are used again."""

    @property
    def idle(self) -> deque[tuple[HTTPConnection, float]]:
        """Connections that are not in use, and since when."""
        return self.__dict__.setdefault("lines", deque())

    def get(self, path: str) -> tuple[int, bytes]:
        """The status code and body of one answer."""
        while (line := self.take()) is not None:
            with suppress(*FAILURES):
                return self.ask_and_keep(line, path)
        line = self.line()
        try:
            self.dial(line)
            return self.ask_and_keep(line, path)
        except FAILURES as error:
            raise self.unanswered(error) from error

    def take(self) -> HTTPConnection | None:
        """A connection that was used not long ago."""
        while True:
            try:
                line, since = self.idle.pop()
            except IndexError:
                # Asking first whether there is one would not do: another thread may take it.
                return None
            if time.monotonic() - since < KEEP_SECONDS:
                return line
            line.close()

    def ask_and_keep(self, line: HTTPConnection, path: str) -> tuple[int, bytes]:
        """An answer; the connection is kept unless something went wrong."""
        try:
            answered = self.ask(line, path)
        except BaseException:
            line.close()
            raise
        self.idle.append((line, time.monotonic()))
        if "is_closed" in self.__dict__:
            self.close()
        return answered

    def close(self) -> None:
        """Close what is not in use now, and what is when its answer is there."""
        self.__dict__["is_closed"] = True
        while (line := self.take()) is not None:
            line.close()


class InProcessPlugins:
    """Runs programs; those that are our own plugins, here."""

    def __init__(self, find: Callable[[Mapping[str, str]], HubApi] = hub_api.find) -> None:
        self.find_hub = find
        self.locks: dict[tuple[str | None, ...], Lock] = {}
        # Not the threads that all share: a hub that hangs must not keep others from rendering.
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="plugin")
        self.hubs: dict[tuple[str | None, ...], tuple[PooledHubApi, float]] = {}
        """What environments mean, and until when that is believed: tokens change."""

    def close(self) -> None:
        """End the threads, and close all connections."""
        self.threads.shutdown()
        for known, _ in self.hubs.values():
            known.close()

    def find(self, environ: Mapping[str, str]) -> PooledHubApi:
        """The hub that an environment means; raises `PluginError`."""
        key = tuple(environ.get(name) for name in sorted(MEANING))
        with self.locks.setdefault(key, Lock()):
            known = self.hubs.get(key)
            if known is None or known[1] < time.monotonic():
                found = PooledHubApi(*self.find_hub(environ))
                if known is not None:
                    known[0].close()
                known = self.hubs[key] = (found, time.monotonic() + BELIEVED_SECONDS)
        return known[0]

    async def __call__(
        self, argv: Sequence[str], *, env: Mapping[str, str], timeout_seconds: float
    ) -> ProcessResult:
        """The outcome of a program; raises `OSError` when it cannot be started."""
        own = own_plugin(argv, env)
        if own is None:
            return await exec_process.run(argv, env=env, timeout_seconds=timeout_seconds)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_seconds):
                here = PluginEnvironment(env, self.find)
                output = await loop.run_in_executor(self.threads, respond, *own, here)
        except TimeoutError:
            return ProcessResult(ProcessEnd.TIMED_OUT, -1, b"", "")
        if output.code:
            return ProcessResult(
                ProcessEnd.EXITED, output.code, b"", exec_process.one_line(output.text.encode())
            )
        return ProcessResult(ProcessEnd.EXITED, 0, output.text.encode(), "")


def own_plugin(argv: Sequence[str], env: Mapping[str, str]) -> tuple[str, Provide] | None:
    """The plugin of ours that a program is, if running it here makes no difference."""
    if not is_plain(env):
        return None
    program, *arguments = argv
    if arguments[:1] == ["-m"] and program == sys.executable and len(arguments) == 2:
        return OWN.get(arguments[1])
    return None if arguments else scripted(Path(program))


def scripted(program: Path) -> tuple[str, Provide] | None:
    """The plugin of ours that a start script runs."""
    try:
        with program.open("rb") as file:
            script = file.read(SCRIPT_BYTES)
    except OSError:
        return None
    first, _, rest = script.partition(b"\n")
    found = STARTS.search(rest)
    return OWN.get(found[1].decode()) if found is not None and is_ours(first) else None


def is_ours(first_line: bytes) -> bool:
    """Whether a script is run by the interpreter of the environment that this runs in."""
    interpreter = Path(os.fsdecode(first_line.removeprefix(b"#!").strip()))
    own = Path(sys.executable)
    return interpreter.parent == own.parent and interpreter.name.startswith("python")


def is_plain(env: Mapping[str, str]) -> bool:
    """Whether an environment is ours, apart from a plugin's configuration."""
    names = env.keys() | os.environ.keys()
    return all(env.get(name) == os.environ.get(name) for name in names - HEEDED)
