"""The chart of a model's history, as coordinates for an SVG."""

from collections.abc import Sequence
from dataclasses import dataclass

from onnxreg.schema.compare.version_history import HistoryRow, ModelHistory

WIDTH, HEIGHT, MARGIN = 640, 180, 24
"""Of the drawing, in its own units."""


@dataclass(frozen=True)
class ChartPoint:
    """A version in the chart: its place, and the ends of its interval (None: none was published)."""

    x: float
    y: float
    row: HistoryRow
    bounds: tuple[float, float] | None


@dataclass(frozen=True)
class HistoryChart:
    """The comparable figures of a history, the oldest first, with the values at the lower and the upper edge."""

    points: Sequence[ChartPoint]
    low: float
    high: float

    @property
    def line(self) -> str:
        """The points of a polyline."""
        return " ".join(f"{point.x:.1f},{point.y:.1f}" for point in self.points)


def history_chart(history: ModelHistory) -> HistoryChart | None:
    """The chart; None with fewer than two comparable figures."""
    rows = [row for row in reversed(history.versions) if history.is_charted(row)]
    if len(rows) < 2 or history.scale is None:
        return None
    low, high = history.scale
    step = (WIDTH - 2 * MARGIN) / (len(rows) - 1)
    points = []
    for number, row in enumerate(rows):
        bounds = (
            None if row.interval is None else (_y(row.interval[0], low, high), _y(row.interval[1], low, high))
        )
        assert row.value is not None, "charted rows have values"
        points.append(ChartPoint(MARGIN + number * step, _y(row.value, low, high), row, bounds))
    return HistoryChart(points, low, high)


def _y(value: float, low: float, high: float) -> float:
    """The height of a value; all in the middle if they are equal."""
    share = (value - low) / (high - low) if high > low else 0.5
    return HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN)
