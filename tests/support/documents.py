"""Pages as programs: what a page says to type is typed, and what it shows must come out.

In a page, a block of `sh` is typed; a block with a title, such as `yaml title="values.yaml"`, is
written to that file first; a block of `text` after a typed one is what that printed, where `…`
stands for anything. A block after the comment `<!-- not typed: why -->` is left alone.
"""

import asyncio
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>\w*) *(?P<rest>.*)$")
TITLE = re.compile(r'title="([^"]+)"')
NOT_TYPED = re.compile(r"^ *<!-- not typed: .+ -->$")
STEP_SECONDS = 240.0
ANYTHING = "…"


class Step(Struct, frozen=True):
    """One block of a page."""

    what: Literal["type", "write", "show"]
    line: int
    text: str
    file: str = ""


def steps(page: str) -> list[Step]:
    """The blocks of a page that mean something to a reader who follows it."""
    found: list[Step] = []
    skipped = False
    lines = iter(enumerate(page.splitlines(), start=1))
    for number, line in lines:
        opened = FENCE.match(line)
        if opened is None:
            skipped = bool(NOT_TYPED.match(line)) or (skipped and not line.strip())
            continue
        body: list[str] = []
        for _, inner in lines:
            if inner.strip() == "```":
                break
            body.append(inner.removeprefix(opened["indent"]))
        step = None if skipped else block(opened, number, "\n".join(body) + "\n")
        skipped = False
        if step is not None:
            found.append(step)
    return found


def block(opened: re.Match[str], line: int, text: str) -> Step | None:
    """What one block asks for; None when it is only to be read."""
    title = TITLE.search(opened["rest"])
    if title is not None:
        return Step("write", line, text, title[1])
    if opened["kind"] == "sh":
        return Step("type", line, text)
    return Step("show", line, text) if opened["kind"] == "text" else None


def matches(shown: str, printed: str) -> bool:
    """Whether the output is what the page shows; the width of columns does not count."""
    wanted = "\n".join(" ".join(line.split()) for line in shown.strip().splitlines())
    got = "\n".join(" ".join(line.split()) for line in printed.strip().splitlines())
    pattern = ".*".join(re.escape(part) for part in wanted.split(ANYTHING))
    return re.fullmatch(pattern, got, re.DOTALL) is not None


HIDDEN = ("KUBECONFIG", "KO_DATA_PATH", "SYSTEM_NAMESPACE")
"""Variables of the one who runs the tests that a reader does not have."""


def surroundings(folder: Path, *tools: Path, **variables: str) -> dict[str, str]:
    """The variables of a reader with a data folder of their own, and some programs at hand."""
    inherited = {name: value for name, value in os.environ.items() if name not in HIDDEN}
    path = [*(str(tool.parent) for tool in tools), os.environ["PATH"]]
    own = {"PATH": os.pathsep.join(path), "XDG_DATA_HOME": str(folder / "data")}
    return inherited | own | variables


class Reader:
    """Somebody who follows a page in a folder of their own, in one shell."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.environment = dict(environment)
        self.state = folder / ".variables"
        self.printed = ""

    async def follow(self, page: Path) -> int:
        """Do everything in order; how many blocks were typed. Fails with line and output."""
        typed = 0
        for step in steps(page.read_text()):
            where = f"{page.name}:{step.line}"
            if step.what == "write":
                (self.folder / step.file).write_text(step.text)
            elif step.what == "show":
                shown, printed = step.text, self.printed
                assert matches(shown, printed), f"{where} shows\n{shown}\nbut it was\n{printed}"
            else:
                await self.type(step.text, where)
                typed += 1
        return typed

    async def type(self, text: str, where: str) -> None:
        """Type one block; variables stay set, as in a terminal."""
        self.state.touch()
        kept = self.state.name
        script = f"set -euo pipefail; set -a\n. ./{kept}\n{text}\ndeclare -px > {kept}\n"
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            script,
            cwd=self.folder,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(STEP_SECONDS):
                out, errors = await process.communicate()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            raise AssertionError(f"{where} took more than {STEP_SECONDS:g} s:\n{text}") from None
        self.printed = out.decode()
        assert process.returncode == 0, f"{where} failed:\n{text}\n{self.printed}{errors.decode()}"
