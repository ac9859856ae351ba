"""Whole processes, timed in pairs: ours and the peer's in turn, so that a drift of the machine hits both alike."""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Command = Sequence[str | Path]


@dataclass(frozen=True)
class Run:
    """One finished process: wall seconds, peak resident memory of its largest process in MiB, and seconds of processor
    time, user and system, of it and of those that it waited for."""

    wall: float
    peak: float
    cpu: float


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

    def cost(self) -> tuple[float, float, float]:
        """The ratio, least and most, turned round for rates: below 1 we are ahead."""
        if self.unit.endswith("/s"):
            return 1 / self.ratio, 1 / self.most, 1 / self.least
        return self.ratio, self.least, self.most


@dataclass(frozen=True)
class Curve:
    """What one step costs as its input grows: `values` at `sizes`, both ascending, and of what a size counts."""

    what: str
    size: str
    sizes: list[int]
    values: list[float]
    unit: str

    def slope(self) -> float:
        """The exponent between the ends of the curve, on logarithmic axes: 1 is linear, 0 is flat."""
        return steepness(self.sizes[0], self.values[0], self.sizes[-1], self.values[-1])

    def steepest(self) -> float:
        """The exponent of its last third, where a step that is worse than linear shows first."""
        start = max(0, len(self.sizes) - 1 - len(self.sizes) // 3)
        return steepness(self.sizes[start], self.values[start], self.sizes[-1], self.values[-1])


def steepness(small: float, cheap: float, large: float, dear: float) -> float:
    return math.log(max(dear, 1) / max(cheap, 1)) / math.log(large / small)


LAUNCHER = """
import json, os, sys, time
started = time.perf_counter()
process = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(process, 0)
wall, cpu = time.perf_counter() - started, usage.ru_utime + usage.ru_stime
found = [wall, usage.ru_maxrss / 1024, cpu, os.waitstatus_to_exitcode(status)]
open(sys.argv[1], "w").write(json.dumps(found))
"""
"""Starts the command from a small process: Linux counts the memory of whoever starts one as its own."""


def run(command: Command, env: Mapping[str, str] | None = None) -> Run:
    """Run a command to its end; a failure raises, with what it said. Programs in Python may keep their compiled modules."""
    known = os.environ if env is None else env
    env = {name: value for name, value in known.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.NamedTemporaryFile("r") as report:
        done = subprocess.run(
            [sys.executable, "-S", "-c", LAUNCHER, report.name, *command],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        wall, peak, cpu, code = json.load(report)
    if code:
        raise SystemExit(f"{' '.join(map(str, command))} exited {code}:\n{done.stdout}\n{done.stderr}")
    return Run(wall, peak, cpu)


def pairs(ours: Callable[[], Run], theirs: Callable[[], Run], count: int) -> list[tuple[Run, Run]]:
    """One warm-up of each, then `count` pairs in turn."""
    ours(), theirs()
    return [(ours(), theirs()) for _ in range(count)]


def rows(what: str, peer: str, measured: list[tuple[Run, Run]], aim: str = "") -> list[Row]:
    """A row for the time and one for the peak memory."""
    return [
        row(what, peer, [(a.wall, b.wall) for a, b in measured], "s", aim),
        row(f"{what}, peak memory", peer, [(a.peak, b.peak) for a, b in measured], "MiB", ""),
    ]


def processor(what: str, peer: str, measured: list[tuple[Run, Run]]) -> Row:
    """A row for the processor time, which other users of the machine disturb least."""
    return row(f"{what}, processor", peer, [(a.cpu, b.cpu) for a, b in measured], "s", "")


def row(what: str, peer: str, values: list[tuple[float, float]], unit: str, aim: str) -> Row:
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
