"""Whole processes, timed in pairs: ours and the peer's in turn, so that a drift of the machine hits both alike."""

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Command = Sequence[str | Path]


@dataclass(frozen=True)
class Run:
    """One finished process: wall seconds, and peak resident memory of its largest process in MiB."""

    wall: float
    peak: float


@dataclass(frozen=True)
class Row:
    """One comparison. `ratio` is ours over the peer's, pair by pair: median, least, most."""

    what: str
    peer: str
    ours: float
    theirs: float
    ratio: float
    least: float
    most: float
    unit: str = "s"
    aim: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run(command: Command, env: dict[str, str] | None = None) -> Run:
    """Run a command to its end; a failure raises, with what it said."""
    started = time.perf_counter()
    with subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - started
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} exited {process.returncode}:\n{output.decode()}")
    return Run(wall, usage.ru_maxrss / 1024)


def pairs(ours: Callable[[], Run], theirs: Callable[[], Run], count: int) -> list[tuple[Run, Run]]:
    """One warm-up of each, then `count` pairs in turn."""
    ours(), theirs()
    return [(ours(), theirs()) for _ in range(count)]


def rows(what: str, peer: str, measured: list[tuple[Run, Run]], aim: str = "") -> list[Row]:
    """A row for the time and one for the peak memory."""
    return [
        _row(what, peer, [(a.wall, b.wall) for a, b in measured], "s", aim),
        _row(f"{what}, peak memory", peer, [(a.peak, b.peak) for a, b in measured], "MiB", ""),
    ]


def _row(what: str, peer: str, values: list[tuple[float, float]], unit: str, aim: str) -> Row:
    ratios = [a / b for a, b in values]
    median = statistics.median
    return Row(
        what,
        peer,
        median(a for a, _ in values),
        median(b for _, b in values),
        median(ratios),
        min(ratios),
        max(ratios),
        unit,
        aim,
    )


def table(found: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| what | peer | ours | peer's | ratio (min-max) | aim |", "|---|---|---|---|---|---|"]
    for row in found:
        lines.append(
            f"| {row.what} | {row.peer} | {row.ours:.3g} {row.unit} | {row.theirs:.3g} {row.unit} "
            f"| {row.ratio:.2f} ({row.least:.2f}-{row.most:.2f}) | {row.aim} |"
        )
    return "\n".join(lines)
