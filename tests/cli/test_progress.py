"""What is drawn of files under way: their paths and sizes, not more lines than fit, nothing that moves a cursor."""

from contextlib import ExitStack
from io import StringIO

import pytest
from rich.console import Console

from onnxreg.cli.render.progress_display import ProgressDisplay


def lines(drawn: ProgressDisplay, width: int) -> list[str]:
    sink = StringIO()
    Console(file=sink, width=width, force_terminal=True, no_color=True).print(drawn.lines)
    assert "\x1b" not in sink.getvalue()
    return [line.rstrip() for line in sink.getvalue().splitlines() if line.strip()]


@pytest.mark.parametrize("width", [50, 80, 120])
def test_the_files_under_way_and_the_whole(width: int) -> None:
    drawn = ProgressDisplay("pushing acme/a-model-with-a-name-that-is-long:1.2.0", width, 8)
    drawn.plan(2, 300_000_000)
    drawn.plan(1, 700_000_000)
    with (
        drawn.file("onnx/model_quantized.onnx", 300_000_000) as moved,
        drawn.file("a\x1b[2J.json", 5) as other,
    ):
        moved(30_000_000)
        other(5)
        first, second, whole = lines(drawn, width)
        assert "quantized.onnx"[-width // 10 :] in first and "30.0/300.0 MB" in first
        assert "5/5 bytes" in second
        assert "30.0/1,000.0 MB" in whole or "0.0/1.0 GB" in whole
        assert max(map(len, (first, second, whole))) <= width - 3
    assert len(lines(drawn, width)) == 1
    moved(50_000_000)  # what was only read while it had a line of its own is sent now
    assert "80.0/1,000.0 MB" in lines(drawn, width)[0] or "0.1/1.0 GB" in lines(drawn, width)[0]


@pytest.mark.parametrize("seconds", [1e-6, 0.5, 40, 4_000, 400_000])
def test_a_slow_transfer_takes_one_line_too(seconds: float) -> None:
    """The time that is left can have hours and days."""
    now = 1000.0
    drawn = ProgressDisplay("pushing acme/a-model-with-a-name-that-is-long:1.2.0", 50, 8)
    drawn._all.get_time = lambda: now
    drawn.plan(2, 1_000_000_000)
    with drawn.file("onnx/model_quantized.onnx", 300_000_000) as moved:
        for count in (30_000_000, 5, 2_000):
            now += seconds
            moved(count)
        assert len(lines(drawn, 50)) == 2


def test_not_more_lines_than_asked_for_and_every_byte_counts() -> None:
    drawn = ProgressDisplay("verifying", 80, 2)
    drawn.plan(3, 30)
    with ExitStack() as under_way:
        for name in ("a", "b", "c"):
            under_way.enter_context(drawn.file(name, 10))(10)
        assert [line.split()[0] for line in lines(drawn, 80)] == ["a", "b", "verifying"]
        assert "30/30 bytes" in lines(drawn, 80)[-1]
    with drawn.file("d", None):
        assert [line.split()[0] for line in lines(drawn, 80)] == ["d", "verifying"]
