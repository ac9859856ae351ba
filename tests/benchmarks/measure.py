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
    """One finished process: wall seconds, peak resident memory of its largest process in MiB, seconds of processor time,
    user and system, and bytes that it read and wrote, of it and of those that it waited for."""

    wall: float
    peak: float
    cpu: float
    read: float = 0
    written: float = 0


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
    """What one step costs as its input grows: its `count` is `values` at `sizes`, so many of what `size` says."""

    step: str
    count: str
    size: str
    sizes: list[int]
    values: list[float]
    unit: str

    def relative(self) -> list[float]:
        """The values over the first one; nothing counts as 1, or as a hundredth of a second."""
        least = 0.01 if self.unit == "s" else 1
        return [max(value, least) / max(self.values[0], least) for value in self.values]

    def slope(self) -> float:
        """The exponent between the ends of the curve, on logarithmic axes: 1 is linear, 0 is flat."""
        return self._exponent(0)

    def last_slope(self) -> float:
        """The exponent of the last step, where what is worse than linear shows first."""
        return self._exponent(-2)

    def _exponent(self, start: int) -> float:
        grown = self.relative()[-1] / self.relative()[start]
        return math.log(grown) / math.log(self.sizes[-1] / self.sizes[start])


LAUNCHER = """
import json, os, sys, time
started = time.perf_counter()
process = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(process, 0)
wall, cpu = time.perf_counter() - started, usage.ru_utime + usage.ru_stime
moved = [int(line.split()[1]) for line in open("/proc/self/io").read().splitlines()[:2]]
found = [wall, usage.ru_maxrss / 1024, cpu, *moved, os.waitstatus_to_exitcode(status)]
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
        *found, code = json.load(report)
    if code:
        raise SystemExit(f"{' '.join(map(str, command))} exited {code}:\n{done.stdout}\n{done.stderr}")
    return Run(*found)


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
