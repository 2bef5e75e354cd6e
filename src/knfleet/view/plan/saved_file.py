"""Files that hold plans: written for their owner alone, read as what anybody may have written."""

from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

Saved = TypeVar("Saved", bound=Struct)


class PlanFileError(Exception):
    """A file that holds no plan that could be carried out; names the file and says what to do."""


def write_plan(path: Path, saved: Struct) -> None:
    """Write a plan into a file that only its owner can read; raises `PlanFileError`."""
    content = msgspec.json.format(msgspec.json.encode(saved), indent=2)
    try:
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_bytes(content + b"\n")
    except OSError as error:
        raise PlanFileError(f"{path} cannot be written: {error.strerror}") from error


def read_plan(path: Path, kind: type[Saved], what: str, command: str) -> Saved:
    """The plan in a file; raises `PlanFileError`, which says by which command to make one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise PlanFileError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PlanFileError(f"{path} is not {what}: {error}; make one with {command}") from None
