"""A terminal as a picture: what programs printed in it, in their colours, line by line in time.

The picture is an SVG without scripts, fonts or addresses of others. Viewers that know animations
see the lines appear; all others see everything at once.
"""

import os
import pty
import re
import subprocess
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

from msgspec import Struct
from rich.color import ColorType
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

SVG = "http://www.w3.org/2000/svg"
COLUMNS = 140
FONT, LINE = 14, 20
ADVANCE = 8.43
MARGIN, BAR = 18, 34
TYPING_SECONDS = 0.035
"""For each letter of a command."""
LONGEST_WAIT = 1.6
"""What takes longer is shown as if it took so long."""
PAUSE_SECONDS = 1.2
END_SECONDS = 6.0
SECRET = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+|sha256:[0-9a-f]{64}")
BACKGROUND, FOREGROUND, PROMPT = "#14161b", "#d7dae0", "#7fd1b9"


class Said(Struct, frozen=True):
    """One command, as it is shown, and what it printed."""

    command: str
    output: str
    seconds: float = 0.0


class Line(Struct, frozen=True):
    """A line of the picture, and when it appears."""

    text: Text
    at: float


def run(command: str, folder: Path, environment: Mapping[str, str]) -> str:
    """What a command prints to a terminal; raises `RuntimeError` when it fails."""
    ours, theirs = pty.openpty()
    sized = {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": "50"}
    with subprocess.Popen(
        ["bash", "-c", f"stty cols {COLUMNS} rows 50; {command}"],
        cwd=folder,
        env={**environment, **sized},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        printed = bytearray()
        try:
            while chunk := os.read(ours, 65536):
                printed += chunk
        except OSError:
            pass  # the last one who could write is gone
        finally:
            os.close(ours)
        code = process.wait()
    text = printed.decode(errors="replace")
    if code:
        raise RuntimeError(f"{command}: exit code {code}\n{text}")
    return text


def settled(printed: str) -> list[str]:
    """The lines that stay: what was rewritten in place is gone, and so is what nobody may see."""
    lines: list[str] = []
    for line in printed.replace("\r\n", "\n").split("\n"):
        kept = re.split(r"\r|\x1b\[K", line)[-1]
        lines.append(SECRET.sub("…", kept))
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def played(scenes: Sequence[Said]) -> tuple[list[Line], float]:
    """All lines with their times, and how long it takes."""
    lines: list[Line] = []
    now = 0.6
    for scene in scenes:
        prompt = Text.assemble(("$ ", Style(color=PROMPT, bold=True)), (scene.command, "bold"))
        lines.append(Line(prompt, now))
        now += len(scene.command) * TYPING_SECONDS + min(scene.seconds, LONGEST_WAIT)
        for each in settled(scene.output):
            text = Text.from_ansi(each)
            text.truncate(COLUMNS, overflow="ellipsis")
            lines.append(Line(text, now))
            now += 0.05
        lines.append(Line(Text(""), now))
        now += PAUSE_SECONDS
    return lines[:-1], now + END_SECONDS


def picture(title: str, scenes: Sequence[Said]) -> str:
    """The SVG."""
    lines, length = played(scenes)
    width = round(2 * MARGIN + COLUMNS * ADVANCE)
    height = BAR + MARGIN + len(lines) * LINE
    spoken = escape("\n".join(line.text.plain for line in lines))
    size = f'width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="{SVG}" role="img" viewBox="0 0 {width} {height}" {size}>',
            f"<title>{escape(title)}</title>",
            f"<desc>{spoken}</desc>",
            f"<style>{styles(lines, length)}</style>",
            f'<rect {size} rx="9" fill="{BACKGROUND}"/>',
            *dots(),
            f'<text class="t" x="90" y="22" fill="#8b90a0">{escape(title)}</text>',
            *(drawn(line, number) for number, line in enumerate(lines)),
            "</svg>\n",
        ]
    )


def styles(lines: Sequence[Line], length: float) -> str:
    """The look, and when each line appears; whoever wants no motion gets none."""
    appearing = "".join(
        f"@keyframes k{number}{{0%,{share:.2f}%{{opacity:0}}{share + 0.01:.2f}%,100%{{opacity:1}}}}"
        f"#l{number}{{animation:k{number} {length:.1f}s infinite}}"
        for number, line in enumerate(lines)
        for share in [100 * line.at / length]
    )
    return (
        f".t{{font:{FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;"
        f"white-space:pre}}@media (prefers-reduced-motion:no-preference){{{appearing}}}"
    )


def dots() -> list[str]:
    """What windows have at their top."""
    colours = ("#ff5f57", "#febc2e", "#28c840")
    return [
        f'<circle cx="{20 + 20 * number}" cy="17" r="6" fill="{colour}"/>'
        for number, colour in enumerate(colours)
    ]


def drawn(line: Line, number: int) -> str:
    """One line of text, in as many pieces as it has looks."""
    y = BAR + FONT + number * LINE
    pieces: list[str] = []
    for start, end, style in looks(line.text):
        words = line.text.plain[start:end]
        x = MARGIN + start * ADVANCE
        # The width is said, so that columns stay columns in any font.
        across = f'textLength="{len(words) * ADVANCE:.1f}" lengthAdjust="spacingAndGlyphs"'
        pieces.append(
            f'<text class="t" x="{x:.1f}" y="{y}" {across}{dressed(style)}>{escape(words)}</text>'
        )
    return f'<g id="l{number}">{"".join(pieces)}</g>'


def looks(text: Text) -> list[tuple[int, int, Style]]:
    """The pieces of a line that look the same and are not empty: from, to, and how."""
    borders = {0, len(text), *(edge for span in text.spans for edge in (span.start, span.end))}
    # Two spaces part columns: pieces of their own keep them in place.
    borders |= {found.start() for found in re.finditer(r"(?<=  )\S", text.plain)}
    found: list[tuple[int, int, Style]] = []
    for start, end in pairwise(sorted(borders)):
        words = text.plain[start:end].rstrip()
        if words.strip():
            found.append((start, start + len(words), style_at(text, start)))
    return found


def style_at(text: Text, place: int) -> Style:
    """How one letter looks."""
    style = Style()
    for span in text.spans:
        if span.start <= place < span.end:
            style += span.style if isinstance(span.style, Style) else Style.parse(span.style)
    return style


def dressed(style: Style) -> str:
    """A style as attributes."""
    fill = FOREGROUND
    if style.color is not None and style.color.type is not ColorType.DEFAULT:
        red, green, blue = style.color.get_truecolor(DIMMED_MONOKAI)
        fill = f"#{red:02x}{green:02x}{blue:02x}"
    parts = [f' fill="{fill}"']
    if style.bold:
        parts.append(' font-weight="bold"')
    if style.dim:
        parts.append(' opacity="0.7"')
    return "".join(parts)
