"""Log lines: a constant message and fields, as JSON for machines or columns for people.

Secrets are taken out on the way, by the names of fields and by the look of values, wherever they
stand in a field, a message or a traceback. A line that cannot be written is lost; nothing in here
ever raises into the code that logs. structlog is loaded by the first line, not by the import.
"""

import logging
import re
import sys
from collections.abc import Generator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger, Processor

REDACTED = "[redacted]"
DEPTH = 6
"""How deep a field's value is searched; what lies deeper is left out."""

SECRET_FIELD = re.compile(
    r"(token|password|passwd|authorization|cookie|secret|secretdata|stringdata|clientkey|privatekey|apikey"
    r"|credential|credentials|kubeconfig)(data|file)?$"
)
SECRET_VALUE = re.compile(
    r"(?i:(?<=bearer )|(?<=basic ))[A-Za-z0-9._~+/=-]{8,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"
    r"|(?<=-----BEGIN )[A-Z ]*PRIVATE KEY-----[^-]*"
)
SECRET_HINTS = ("earer ", "asic ", "eyJ", "PRIVATE KEY")
"""A text with none of these needs no closer look."""


class LazyLogger:
    """Stands for the structlog logger, which it makes when it is first used."""

    def __getattr__(self, name: str) -> Any:
        import structlog

        return getattr(structlog.get_logger(), name)


log = cast("FilteringBoundLogger", LazyLogger())
"""What the runtime and all packages above it log with."""


@contextmanager
def bound(**fields: object) -> Generator[None]:
    """Put fields on every line that is logged within, also by what is called."""
    from structlog.contextvars import bound_contextvars

    with bound_contextvars(**fields):
        yield


def configure(level: str = "info", form: str = "", stream: TextIO | None = None) -> None:
    """Log to a stream from now on, as `console` or `json`.

    Without a form it is for people on a terminal, and JSON elsewhere.
    """
    import structlog

    output = cast("TextIO", stream or sys.stderr)
    number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    structlog.configure(
        processors=processors(form or ("console" if output.isatty() else "json")),
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: LogWriter(output),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, LoggingForwarder)]:
        root.removeHandler(handler)
    root.addHandler(LoggingForwarder())
    root.setLevel(max(number, logging.INFO))
    # Every request that a server of ours answers is not news.
    logging.getLogger("aiohttp.access").setLevel(max(number, logging.WARNING))
    logging.captureWarnings(capture=True)
    logging.raiseExceptions = False


def processors(form: str) -> list["Processor"]:
    """What a line goes through on its way out."""
    import structlog

    if form == "console":
        renderer: Processor = structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        )
    else:
        renderer = structlog.processors.JSONRenderer(default=plain)
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        SafeProcessor(structlog.processors.format_exc_info),
        SafeProcessor(redact),
        SafeProcessor(renderer),
    ]


class SafeProcessor:
    """A processor that loses what it cannot process, and says so, instead of raising."""

    def __init__(self, processor: "Processor") -> None:
        self.processor = processor

    def __call__(self, logger: object, method: str, event_dict: MutableMapping[str, Any]) -> Any:
        """What the processor makes of the line, or what can be logged without it."""
        try:
            return self.processor(logger, method, event_dict)
        except Exception as error:  # noqa: BLE001  a log line must not break what it tells of
            return f'{{"level":"error","event":"unloggable line","error":"{type(error).__name__}"}}'


class LogWriter:
    """Writes lines to a stream as long as it has a reader."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def msg(self, message: str) -> None:
        """Write one line."""
        try:
            self.stream.write(message + "\n")
            self.stream.flush()
        except (OSError, ValueError):
            return

    debug = info = warning = warn = error = critical = exception = fatal = log = msg


class LoggingForwarder(logging.Handler):
    """Hands the lines of libraries that use `logging` to ours."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record as a line of ours."""
        try:
            log.log(
                record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info
            )
        except Exception:  # noqa: BLE001  a log line must not break what it tells of
            return


def redact(
    _logger: object, _method: str, event_dict: MutableMapping[str, Any]
) -> Mapping[str, Any]:
    """The line without what must not be in it."""
    return {name: clean(name, value, DEPTH) for name, value in event_dict.items()}


def clean(name: str, value: object, depth: int) -> object:
    """A field's value without secrets."""
    if is_secret(name):
        return REDACTED
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, bytes):
        return f"[{len(value)} bytes]"
    if value is None or isinstance(value, bool | int | float):
        return value
    return clean_parts(value, depth) if depth else "…"


def clean_parts(value: object, depth: int) -> object:
    """A value of many parts without secrets."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[object, object]", value)
        hidden = {"data"} if fields.get("kind") == "Secret" else set[str]()
        return {
            str(key): REDACTED if key in hidden else clean(str(key), inner, depth - 1)
            for key, inner in fields.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [clean("", inner, depth - 1) for inner in cast("list[object]", value)]
    return clean_text(plain(value))


def clean_text(text: str) -> str:
    """A text without what looks like a token or a key."""
    if any(hint in text for hint in SECRET_HINTS):
        return SECRET_VALUE.sub(REDACTED, text)
    return text


@lru_cache(maxsize=1024)
def is_secret(name: str) -> bool:
    """Whether a field of that name holds what must not be logged."""
    return SECRET_FIELD.search(name.lower().replace("_", "").replace("-", "")) is not None


def plain(value: object) -> str:
    """A text for any value, also for one that cannot tell what it is."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001  a log line must not break what it tells of
        return f"<{type(value).__name__}>"
