"""What is drawn of a transfer: one line that fits, and nothing that moves a cursor."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from onnxreg.cli.render.progress import transfer


def lines(line: Any, width: int) -> list[str]:
    sink = StringIO()
    Console(file=sink, width=width, force_terminal=True, no_color=True).print(line)
    assert "\x1b" not in sink.getvalue()
    return [line.rstrip() for line in sink.getvalue().splitlines() if line.strip()]


@pytest.mark.parametrize("seconds", [0, 1e-6, 0.5, 40, 4_000, 400_000])
@pytest.mark.parametrize("width", [50, 80, 120])
def test_a_transfer_takes_one_line_however_slow(width: int, seconds: float) -> None:
    """The time that is left can have hours and days."""
    now = 1000.0
    line, drawn = transfer("pushing acme/a-model-with-a-\x1b[2Jname-that-is-long:1.2.0", width)
    line.renderable.get_time = lambda: now
    drawn.plan(2, 300_000_000)
    drawn.plan(1, 700_000_000)
    with drawn.file("onnx/model_quantized.onnx", 300_000_000) as moved, drawn.file("a.json", 5) as other:
        for count in (30_000_000, 5, 2_000):
            now += seconds
            moved(count)
        other(5)
    (whole,) = lines(line, width)
    assert "long:1.2.0"[-width // 10 :] in whole
    assert "30.0/1,000.0 MB" in whole or "0.0/1.0 GB" in whole
    assert len(whole) <= width - 3
