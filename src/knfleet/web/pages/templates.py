"""Templates, and the blocks that are drawn from them; everything that is put in is escaped."""

import hashlib
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from knfleet import __version__
from knfleet.view.fleet_model import ClusterRow, InstallRow
from knfleet.view.work.work_rows import ManifestRow, WorkRow

FOLDER = Path(__file__).parents[1]
STATIC = FOLDER / "static"
ROWS_REMEMBERED = 8192
MARKS: dict[str, str] = {"bad": "✕", "unknown": "?", "busy": "…", "ok": "✓"}
"""A sign for each state, so that colours are not needed."""
WORDS: dict[str, str] = {
    "bad": "failed",
    "unknown": "unknown",
    "busy": "in progress",
    "ok": "ready",
}
SHORT = 160


@cache
def environment() -> Environment:
    """Where templates are, and what they can call."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    own: dict[str, Any] = {
        "short": short,
        "component": component,
        "clock": clock,
        "cluster_url": cluster_url,
        "kind_path": kind_path,
        "work_path": work_path,
    }
    made.filters.update(own)
    shared = cast("dict[str, Any]", made.globals)
    shared.update(marks=MARKS, words=WORDS, version=__version__, static=static_url)
    return made


def prepare() -> None:
    """Compile all templates, so that the first page does not wait for it."""
    for name in environment().list_templates():
        environment().get_template(name)
    static_files()


def draw(template: str, **values: Any) -> str:
    """A whole page."""
    return environment().get_template(template).render(**values)


def block(name: str, *values: Any) -> str:
    """One of the macros of `blocks.html`; the text is safe to put into pages."""
    macro = getattr(environment().get_template("blocks.html").module, name)
    # A plain string: what is Markup inside stays escaped, and JSON takes it as it is.
    return str(macro(*values))


@lru_cache(ROWS_REMEMBERED)
def install_line(row: InstallRow) -> str:
    """The table's row of an installation."""
    return block("install", row)


@lru_cache(ROWS_REMEMBERED)
def cluster_tile(row: ClusterRow, broken: str = "") -> str:
    return block("tile", row, broken)


@lru_cache(ROWS_REMEMBERED)
def work_line(row: WorkRow) -> str:
    """The table's row of a work."""
    return block("work", row)


def work_id(row: WorkRow) -> str:
    """The id of a work's row."""
    return f"w:{row.ref}"


def manifest_id(row: ManifestRow) -> str:
    """The id of a manifest's row."""
    return f"m:{row.ordinal}"


def work_path(row: WorkRow) -> str:
    """The page of a work."""
    return f"/work/{quote(row.cluster)}/{quote(row.name)}"


def install_id(row: InstallRow) -> str:
    return f"i:{row.ref}"


def tile_id(row: ClusterRow) -> str:
    return f"t:{row.name}"


def short(text: str, length: int = SHORT) -> str:
    """The beginning of a text, as one line."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def component(kind: str) -> str:
    return kind.removeprefix("Knative")


def clock(moment: str) -> str:
    """A time of Kubernetes for people: in UTC, to the second."""
    return moment.replace("T", " ").removesuffix("Z")


def cluster_url(name: str) -> str:
    return f"/cluster/{quote(name)}"


def kind_path(row: InstallRow) -> str:
    """The page of an installation."""
    return f"/cr/{row.kind.lower()}/{quote(row.namespace)}/{quote(row.name)}"


@cache
def static_files() -> dict[str, tuple[bytes, str]]:
    """The files that pages need beside their HTML, and a digest of each."""
    found: dict[str, tuple[bytes, str]] = {}
    for path in sorted(STATIC.iterdir()):
        content = path.read_bytes()
        found[path.name] = (content, hashlib.blake2b(content, digest_size=8).hexdigest())
    return found


def static_url(name: str) -> str:
    """Where a file is, by its content, so that browsers may keep it."""
    return f"/static/{name}?v={static_files()[name][1]}"
