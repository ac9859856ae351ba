"""Charts of the benchmarks as SVG, written by hand: ratios on a logarithmic axis, and how costs grow."""

import math
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from benchmarks.measure import Curve, Row

AHEAD, BEHIND, LEVEL, INK, FAINT = "#1b7837", "#c51b7d", "#737373", "#222222", "#d9d9d9"
COLOURS = ("#1b7837", "#c51b7d", "#2166ac", "#b35806", "#542788", "#737373", "#01665e", "#8c2d04")
DRAWN = {"pushers at once": "requests", "MiB of a file": "peak memory"}
"""The count that is drawn of those in the table, if it is another one than opened files."""
LINE, LABELS, WIDTH = 17, 420, 960


def ratios(groups: Mapping[str, Sequence[Row]]) -> str:
    """A line for each comparison: time filled, peak memory hollow, from the least to the most. Left of 1 we are ahead."""
    lines = [each for group in groups for each in ((group, None), *((group, row) for row in groups[group]))]
    shown = [row.cost() for rows in groups.values() for row in rows]
    least, most = min(cost[1] for cost in shown), max(cost[2] for cost in shown)
    axis = Axis(min(least, 0.5), max(most, 2), LABELS, WIDTH - 20)
    height = 40 + LINE * len(lines)
    parts = [*axis.grid(30, height), f'<text x="{LABELS}" y="14">ahead of the peer (ratio below 1)</text>']
    parts += [f'<text x="{axis.place(1)}" y="14" font-weight="bold">| behind</text>']
    for number, (group, row) in enumerate(lines):
        y = 44 + LINE * number
        if row is None:
            parts.append(f'<text x="4" y="{y}" font-weight="bold">{escape(group)}</text>')
        else:
            parts += _ratio(row, axis, y)
    return _svg(WIDTH, height + 20, parts)


def _ratio(row: Row, axis: "Axis", y: int) -> Iterator[str]:
    median, least, most = row.cost()
    colour = BEHIND if least > 1 else AHEAD if most < 1 else LEVEL
    memory = row.unit == "MiB"
    label = f"{row.what} / {row.peer}".replace(", peak memory", ", memory").replace("reg, ", "")
    yield f'<text x="12" y="{y}" fill="{BEHIND if median > 1 else INK}">{escape(label[:78])}</text>'
    ends = (axis.place(least), axis.place(most))
    yield f'<line x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="2"/>'
    fill = "white" if memory else colour
    yield f'<circle cx="{axis.place(median):.1f}" cy="{y - 4}" r="4" fill="{fill}" stroke="{colour}" stroke-width="2"/>'


def curves(found: Sequence[Curve]) -> str:
    """A panel for each kind of growth: cost over its value at the smallest size, both axes logarithmic, beside a linear one."""
    panels: dict[str, list[Curve]] = {}
    for curve in found:
        if curve.count == DRAWN.get(curve.size, "files opened"):
            panels.setdefault(curve.size, []).append(curve)
    parts: list[str] = []
    for number, (size, together) in enumerate(panels.items()):
        parts += _panel(size, together, 20 + number % 2 * 470, 20 + number // 2 * 345)
    return _svg(WIDTH, 20 + 345 * -(-len(panels) // 2), parts)


def _panel(size: str, together: Sequence[Curve], left: int, top: int) -> Iterator[str]:
    first, last = min(c.sizes[0] for c in together), max(c.sizes[-1] for c in together)
    across = Axis(first, last, left + 40, left + 430)
    up = Axis(1, max(last / first, *(c.relative()[-1] for c in together)), top + 190, top + 20)
    yield f'<text x="{left}" y="{top}" font-weight="bold">{escape(size)}</text>'
    yield from across.grid(top + 20, top + 190)
    yield _line([(across.place(first), up.place(1)), (across.place(last), up.place(last / first))], FAINT, 6)
    for number, curve in enumerate(together):
        colour = COLOURS[number % len(COLOURS)]
        points = [(across.place(x), up.place(y)) for x, y in zip(curve.sizes, curve.relative(), strict=True)]
        yield _line(points, colour, 2)
        y = top + 225 + 14 * number
        values = f"{curve.values[0]:.3g} to {curve.values[-1]:.3g} {curve.unit}, exponent {curve.slope():.2f}"
        yield f'<text x="{left + 10}" y="{y}" fill="{colour}">{escape(curve.step)}: {values}</text>'


class Axis:
    """A logarithmic axis from one place of the picture to another."""

    def __init__(self, least: float, most: float, start: float, end: float) -> None:
        self._low, self._high = math.log10(least) - 0.02, math.log10(max(most, least * 1.01)) + 0.02
        self._start, self._end = start, end

    def place(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)

    def grid(self, top: float, bottom: float) -> Iterator[str]:
        """A line and a number at every power of ten, and at 2 and 5 where there is room."""
        steps = (1, 2, 5) if self._high - self._low < 4 else (1,)
        for power in range(math.floor(self._low), math.ceil(self._high) + 1):
            for value in (step * 10.0**power for step in steps):
                if self._low <= math.log10(value) <= self._high:
                    x, colour = f"{self.place(value):.1f}", INK if value == 1 else FAINT
                    yield f'<line x1="{x}" x2="{x}" y1="{top}" y2="{bottom}" stroke="{colour}"/>'
                    yield f'<text x="{x}" y="{bottom + 13}" text-anchor="middle">{value:g}</text>'


def _line(points: Sequence[tuple[float, float]], colour: str, width: int) -> str:
    path = " L ".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M {path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    style = f' font-family="sans-serif" font-size="11" fill="{INK}">'
    body = "\n".join(parts)
    return f'{head}{style}\n<rect width="{width}" height="{height}" fill="white"/>\n{body}\n</svg>\n'
