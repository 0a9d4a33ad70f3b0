"""A chart of how much faster delayq is than each peer: bars on a logarithmic scale, as SVG.

It is drawn by hand: four panels do not justify matplotlib and numpy, and pygal's files contain a script and styles
that not every viewer supports.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from benchmarks.programs import OWN
from benchmarks.targets import Results, median

WIDTH, LABELS, MARGIN, PAD = 860, 170, 70, 12  # pixels; labels are left of the bars, values right of them
ROW, HEAD, GAP = 22, 50, 14
AHEAD, BEHIND, INK, FAINT = "#2f6fb0", "#c4672d", "#444c56", "#8a949e"  # on white

PANELS = (  # workload, figure, title, whether more is better
    ("send_one", "per_second", "Send one by one", True),
    ("send_bulk", "per_second", "Send in bulk", True),
    ("drain", "per_second", "One consumer process drains", True),
    ("lateness", "p99_ms", "Lateness, 99%", False),
)


class Bar(NamedTuple):
    """A peer, and how many times better delayq is."""

    name: str
    ratio: float


def bars(results: Results, workload: str, figure: str, more: bool) -> list[Bar]:
    """Return one bar per peer that was measured with delayq, the closest first."""
    own = median(results, workload, OWN, figure)
    found = []
    for key, about in results["peers"].items():
        other = median(results, workload, key, figure)
        if key != OWN and own and other:
            found.append(Bar(about["peer"], own / other if more else other / own))
    return sorted(found, key=lambda bar: bar.ratio)


def svg(results: Results) -> str:
    """Return the chart."""
    panels = [(title, bars(results, workload, figure, more)) for workload, figure, title, more in PANELS]
    panels = [(title, found) for title, found in panels if found]
    scale = _Scale([bar.ratio for _, found in panels for bar in found])
    body: list[str] = []
    top = 40
    body.append(_text(PAD, 24, "How many times faster or more punctual delayq is", INK, 16, bold=True))
    for title, found in panels:
        body += _panel(title, found, top, scale)
        top += HEAD + ROW * len(found) + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}"'
    paper = '<rect width="100%" height="100%" fill="#ffffff"/>'  # the page may be dark
    return "\n".join([f'{head} font-family="sans-serif">', paper, *body, "</svg>\n"])


class _Scale:
    """Maps ratios to pixels; it ends at 1 or whole powers of ten."""

    def __init__(self, ratios: list[float]) -> None:
        self._low = math.floor(min(0.0, *map(math.log10, ratios), 0.0))
        self._high = math.ceil(max(1.0, *map(math.log10, ratios), 1.0))

    def x(self, ratio: float) -> float:
        share = (math.log10(ratio) - self._low) / (self._high - self._low)
        return LABELS + share * (WIDTH - LABELS - MARGIN)

    def powers(self) -> Iterator[float]:
        for exponent in range(self._low, self._high + 1):
            yield 10.0**exponent


def _panel(title: str, found: list[Bar], top: int, scale: _Scale) -> Iterator[str]:
    bottom = top + HEAD + ROW * len(found)
    yield _text(PAD, top + 16, title, INK, 14, bold=True)
    for power in scale.powers():
        x = scale.x(power)
        ends = f'x1="{x:.1f}" y1="{top + HEAD - 8}" x2="{x:.1f}" y2="{bottom}"'
        yield f'<line {ends} stroke="{FAINT}" stroke-width="0.5"/>'
        yield _text(x, top + HEAD - 14, f"{power:g}×", FAINT, 11, anchor="middle")
    for number, (name, ratio) in enumerate(found):
        y = top + HEAD + ROW * number
        left, right = sorted((scale.x(1), scale.x(ratio)))
        colour = AHEAD if ratio >= 1 else BEHIND
        width = max(1.0, right - left)
        yield _text(LABELS - 8, y + 12, name, INK, 12, anchor="end")
        yield f'<rect x="{left:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 6}" fill="{colour}"/>'
        yield _text(right + 5, y + 12, shown(ratio), INK, 12)


def shown(ratio: float) -> str:
    """Return a ratio with two significant digits."""
    return f"{ratio:,.0f}×" if ratio >= 10 else f"{ratio:.2g}×"


def _text(x: float, y: float, text: str, colour: str, size: int, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" fill="{colour}"{weight}>{escape(text)}</text>'
