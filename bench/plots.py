"""Bar charts as SVG, drawn by hand: a median as a bar, every round as a dot on it."""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from msgspec import Struct

WIDTH, LABEL, HEIGHT, GAP = 760, 300, 16, 12
RIGHT = 70
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333 }
.title { font-size: 14px; font-weight: 600 }
.bar0 { fill: #9aa5b1 } .bar1 { fill: #0b7285 } .bar2 { fill: #e9a23b }
.dot { fill: #fff; stroke: #333 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .dot { stroke: #ddd; fill: #222 } }
"""


class Bar(Struct, frozen=True):
    """One figure of one contestant."""

    group: str
    who: str
    value: float
    rounds: tuple[float, ...] = ()


def chart(title: str, bars: Sequence[Bar]) -> str:
    """Bars in groups; each group has a scale of its own, since figures differ a hundredfold."""
    names = list(dict.fromkeys(bar.who for bar in bars))
    parts: list[str] = []
    top = 52
    for group, members in groupby(bars, key=lambda bar: bar.group):
        some = list(members)
        parts.append(label(LABEL - 10, top + 12, group, anchor="end"))
        largest = max([1e-9, *(value for bar in some for value in (bar.value, *bar.rounds))])
        for bar in some:
            parts.append(drawn(bar, top, (WIDTH - LABEL - RIGHT) / largest, names.index(bar.who)))
            top += HEIGHT + 2
        top += GAP
    head = f'viewBox="0 0 {WIDTH} {top}" role="img" aria-label="{escape(title)}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {head}>',
            f"<style>{STYLE}</style>",
            f'<text class="title" x="10" y="20">{escape(title)}</text>',
            *legend(names),
            *parts,
            "</svg>\n",
        ]
    )


def drawn(bar: Bar, top: int, scale: float, color: int) -> str:
    """One bar, its value, and its rounds."""
    width = max(1.0, bar.value * scale)
    dots = "".join(
        f'<circle class="dot" cx="{LABEL + value * scale:.1f}" cy="{top + HEIGHT / 2:g}" r="2.5"/>'
        for value in bar.rounds
    )
    end = LABEL + max([bar.value, *bar.rounds]) * scale + 8
    figure = (
        f"{bar.value:.0f}"
        if bar.value >= 50 or bar.value == int(bar.value)
        else (f"{bar.value:.2f}")
    )
    return (
        f'<rect class="bar{color}" x="{LABEL}" y="{top}" width="{width:.1f}" height="{HEIGHT}"'
        f' rx="2"><title>{escape(bar.who)}: {figure}</title></rect>{dots}'
        + label(end, top + 12, figure)
    )


def legend(names: Sequence[str]) -> list[str]:
    """Which colour is whose."""
    parts: list[str] = []
    left = LABEL
    for color, name in enumerate(names):
        parts.append(f'<rect class="bar{color}" x="{left}" y="30" width="12" height="12" rx="2"/>')
        parts.append(label(left + 18, 41, name))
        left += 40 + 8 * len(name)
    return parts


def label(left: float, top: float, text: str, *, anchor: str = "start") -> str:
    """Some text."""
    return f'<text x="{left:.1f}" y="{top:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
