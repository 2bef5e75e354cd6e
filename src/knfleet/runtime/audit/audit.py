"""Has every write of this process recorded: as a line of the log, and in a file if one is named."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from knfleet.kube.client.write_records import WriteRecord, recording
from knfleet.runtime.audit.audit_file import MIB, AuditFile
from knfleet.runtime.logs import log

FILE, SIZE, KEEP = "KNFLEET_AUDIT_FILE", "KNFLEET_AUDIT_FILE_MIB", "KNFLEET_AUDIT_FILES"
ASKED = ("controller", "key")
"""What the log is bound to while a custom resource or another object is worked on."""


@contextmanager
def auditing(environment: Mapping[str, str]) -> Generator[None]:
    """Record all writes, as the environment asks for it; raises `OSError` for a file of no use."""
    path = environment.get(FILE, "")
    file = None
    if path:
        size, keep = number(environment, SIZE, 64), number(environment, KEEP, 10)
        file = AuditFile(Path(path), most_bytes=size * MIB, keep=keep)

    def handle(record: WriteRecord) -> None:
        fields = {name: value for name, value in msgspec.to_builtins(record).items() if value}
        log.info("wrote", **fields)
        if file is not None:
            file.write({"time": now(), **asked(), **fields})

    try:
        with recording(handle):
            yield
    finally:
        if file is not None:
            file.close()


def asked() -> dict[str, str]:
    """Which controller writes, and for which object."""
    from structlog.contextvars import get_contextvars

    bound = get_contextvars()
    return {name: str(bound[name]) for name in ASKED if name in bound}


def now() -> str:
    """The time of a record."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def number(environment: Mapping[str, str], name: str, default: int) -> int:
    """A number of the environment; what is none counts as the default."""
    text = environment.get(name, "")
    return int(text) if text.isdecimal() and int(text) > 0 else default
