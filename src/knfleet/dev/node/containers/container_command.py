"""What a container's command line becomes on this machine.

Programs of our image run as plain processes, without a file system of their own. So a name is
looked up among the executables beside the running interpreter first, an absolute path that does not
exist here is looked up by its last component, and every mention of a mount path is turned into the
folder that holds the mount.
"""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from knfleet.api.meta import Object

ENTRYPOINT = ("knfleet",)
"""What our image runs when a container says nothing."""

REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.][A-Za-z0-9_.-]*)\)")
BOUNDARY = r"\s\"'=,:;()\[\]{}|<>`"


class CommandNotFound(Exception):
    """There is no such program on this machine."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """The text with `$(NAME)` replaced; unknown names stay, and `$$` is a dollar sign."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return REFERENCE.sub(value, text)


def command_line(container: Object, variables: Mapping[str, str]) -> list[str]:
    """Program and arguments by Kubernetes' rules.

    `command` replaces the image's entrypoint, and then its default arguments do not count.
    """
    command: Sequence[str] = container.get("command") or ENTRYPOINT
    arguments: Sequence[str] = container.get("args") or ()
    return [expand(part, variables) for part in (*command, *arguments)]


def executable(name: str, *, search: str | None = None) -> Path:
    """The program that a container's first word means on this machine."""
    if "/" in name and os.access(name, os.X_OK) and Path(name).is_file():
        return Path(name)
    basename = Path(name).name
    beside = Path(sys.executable).parent / basename
    if beside.is_file() and os.access(beside, os.X_OK):
        return beside
    found = shutil.which(basename, path=search)
    if found is None:
        raise CommandNotFound(f"{name}: no such program on this machine")
    return Path(found)


def program(arguments: Sequence[str]) -> tuple[str, ...]:
    """A command line whose first word is a program of this machine."""
    name, *rest = arguments
    return (str(executable(name)), *rest)


class Rewriter:
    """Turns mentions of mount paths into the folders that hold the mounts."""

    def __init__(self, root: Path, mount_paths: Sequence[str]) -> None:
        self.root = root
        paths = {path.rstrip("/") for path in mount_paths} - {""}
        longest_first = sorted(paths, key=len, reverse=True)
        alternatives = "|".join(re.escape(path) for path in longest_first)
        self.pattern = (
            re.compile(
                rf"(?:(?<=^)|(?<=[{BOUNDARY}])|(?<=://))(?:{alternatives})(?=$|[/{BOUNDARY}])"
            )
            if alternatives
            else None
        )

    def rewrite(self, text: str) -> str:
        """The text, with each path that begins with a mount path below the root."""
        if self.pattern is None:
            return text
        return self.pattern.sub(lambda match: f"{self.root}{match[0]}", text)

    def rewrite_all(self, variables: Mapping[str, str]) -> dict[str, str]:
        """An environment with such paths in its values."""
        return {name: self.rewrite(value) for name, value in variables.items()}
