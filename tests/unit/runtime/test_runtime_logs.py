"""Log lines: their form, what is never in them, and that they never raise."""

import io
import json
import logging
from collections.abc import Generator
from typing import Any

import pytest
import structlog

from knfleet.runtime import logs
from knfleet.runtime.logs import log

TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2lnbmF0dXJl"
KEY = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIGzz\n-----END EC PRIVATE KEY-----"


class Terminal(io.StringIO):
    """A stream that people look at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Generator[None]:
    """Logging as it was before."""
    root = logging.getLogger()
    level, handlers, raising = root.level, list(root.handlers), logging.raiseExceptions
    yield
    root.setLevel(level)
    root.handlers[:] = handlers
    logging.raiseExceptions = raising
    logging.captureWarnings(capture=False)
    logging.getLogger("aiohttp.access").setLevel(logging.NOTSET)
    structlog.reset_defaults()


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_line_is_json_with_a_constant_message_and_fields(out: io.StringIO):
    """For machines, when nobody looks."""
    logs.configure(stream=out)
    with logs.bound(cluster="spoke-1", key="ns/a"):
        log.info("applied", wave=2)

    (line,) = lines(out)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "applied",
        "level": "info",
        "wave": 2,
        "cluster": "spoke-1",
        "key": "ns/a",
    }


def test_fields_bound_for_one_piece_of_work_are_gone_after_it(out: io.StringIO):
    """The next one starts clean."""
    logs.configure(stream=out)
    with logs.bound(cluster="spoke-1"):
        pass
    log.info("later")

    assert "cluster" not in lines(out)[0]


def test_on_a_terminal_a_line_is_for_people():
    """Columns, not braces."""
    out = Terminal()
    logs.configure(stream=out)
    log.info("applied", wave=2)

    assert "applied" in out.getvalue()
    assert "wave=2" in out.getvalue()
    assert "{" not in out.getvalue()


def test_the_level_decides(out: io.StringIO):
    """Also for the lines of libraries."""
    logs.configure("warning", stream=out)
    log.info("quiet")
    logging.getLogger("some.library").info("quiet")
    log.warning("loud")

    assert [line["event"] for line in lines(out)] == ["loud"]


def test_lines_of_libraries_are_lines_of_ours(out: io.StringIO):
    """With the library's name, and redacted like all."""
    logs.configure(stream=out)
    logging.getLogger("aiohttp.client").warning("sent %s", f"Bearer {TOKEN}")

    (line,) = lines(out)
    assert (line["event"], line["logger"], line["level"]) == (
        "sent Bearer [redacted]",
        "aiohttp.client",
        "warning",
    )


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize(
    "fields",
    [
        {"token": "s3cret-value"},
        {"bearer_token": "s3cret-value"},
        {"Authorization": "Basic s3cret-value"},
        {"password": "s3cret-value"},
        {"client_key": b"s3cret-value"},
        {"clientKeyData": "s3cret-value"},
        {"client-key-data": "s3cret-value"},
        {"secret_data": {"a": "s3cret-value"}},
        {"secret": "s3cret-value"},
        {"kubeconfig": "s3cret-value"},
        {"manifest": {"kind": "Secret", "data": {"a": "s3cret-value"}}},
        {"manifest": {"kind": "Secret", "stringData": {"a": "s3cret-value"}}},
        {"nested": [{"deep": {"password": "s3cret-value"}}]},
        {"body": b"s3cret-value"},
        {"headers": {"authorization": ["s3cret-value"]}},
        {"text": "Authorization: Bearer s3cret-value"},
    ],
)
def test_secrets_are_taken_out_by_the_name_of_their_field(
    out: io.StringIO, form: str, fields: dict[str, Any]
):
    """However deep they are."""
    logs.configure(form=form, stream=out)
    log.info("request", **fields)

    assert "request" in out.getvalue()
    assert "s3cret" not in out.getvalue()


@pytest.mark.parametrize("secret", [TOKEN, KEY])
def test_secrets_are_taken_out_by_their_look(out: io.StringIO, secret: str):
    """In messages, fields and tracebacks."""
    logs.configure(stream=out)
    log.error(f"odd {secret}", error=f"got {secret}", exc_info=ValueError(f"cannot use {secret}"))

    assert "cannot use" in out.getvalue()
    assert "eyJzdWIiOiJhZG1pbiJ9" not in out.getvalue()
    assert "MHcCAQEEIGzz" not in out.getvalue()


def test_names_that_only_sound_like_secrets_are_told(out: io.StringIO):
    """A key is what we call the name of an object."""
    logs.configure(stream=out)
    log.info("reconciled", key="ns/name", tokens=3, secret_name="ca", keys=["a"])

    (line,) = lines(out)
    assert (line["key"], line["tokens"], line["secret_name"]) == ("ns/name", 3, "ca")


class Mute:
    """Something that cannot be told."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


@pytest.mark.parametrize("form", ["json", "console"])
def test_what_cannot_be_told_does_not_raise(out: io.StringIO, form: str):
    """The line comes with what can be told."""
    logs.configure(form=form, stream=out)
    log.info("odd", what=Mute(), number=float("nan"), self_made={1: {2, 3}})

    assert "odd" in out.getvalue()


def test_a_stream_that_is_closed_does_not_raise(out: io.StringIO):
    """Nobody reads any more: so be it."""
    logs.configure(stream=out)
    out.close()

    log.error("unheard")
    logging.getLogger("x").error("unheard")
