"""Whole processes, timed in pairs: ours and the peer's in turn, so that a drift of the machine hits both alike."""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

Command = Sequence[str | Path]
T = TypeVar("T")
ROUNDS = 3
"""How often a comparison takes its pairs at most: again while its spread is too wide. All pairs count."""
BUDGET, PAIRS = 6, 3
"""Seconds after which a comparison may end once it has this number of pairs."""
LIMIT = 0.15
"""The widest spread of a row. Aims differ from the peer by this much, so a wider row decides nothing."""
ROUGH_LIMIT = 0.3
"""The same if a side takes less than `SHORT` seconds, in which the scheduler alone moves some percent, or if the sides
differ more than `FAR` times, so that the order of magnitude is the result."""
SHORT, FAR = 0.1, 10
SECONDS = {"s": 1, "ms": 1e-3}


@dataclass(frozen=True)
class Run:
    """One finished process, with those that it waited for: wall seconds, peak resident memory of the largest in MiB, and
    seconds of processor time, user and system."""

    wall: float
    peak: float
    cpu: float


@dataclass(frozen=True)
class Row:
    """One comparison. `ratio` is ours over the peer's, pair by pair: median, least, most.

    `spread` says how far off the median may be, as a share of it (`spread_of`); 0 also if there is one pair.
    """

    what: str
    peer: str
    ours: float
    theirs: float
    ratio: float
    least: float
    most: float
    unit: str = "s"
    aim: str = ""
    spread: float = 0.0

    def cost(self) -> tuple[float, float, float]:
        """The ratio, least and most, turned round for rates: below 1 we are ahead."""
        if self.unit.endswith("/s"):
            return 1 / self.ratio, 1 / self.most, 1 / self.least
        return self.ratio, self.least, self.most

    def limit(self) -> float:
        """The widest spread with which the row may be published."""
        is_short = min(self.ours, self.theirs) * SECONDS.get(self.unit, math.inf) < SHORT
        is_far = not 1 / FAR <= self.ratio <= FAR
        return ROUGH_LIMIT if is_short or is_far else LIMIT

    def is_wide(self) -> bool:
        return self.spread > self.limit()


@dataclass(frozen=True)
class GroupRun:
    """One run of a group of rows: when it began (UTC), its seconds, the load of the machine before and after (the mean of
    a minute), and the names of rows that were written although they are too wide."""

    date: str
    seconds: int
    load: list[float]
    wide: list[str]


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
        launch = [sys.executable, "-S", "-c", LAUNCHER, report.name, *command]
        pipes: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        done = subprocess.run(launch, check=True, env=env, **pipes)
        *found, code = json.load(report)
    if code:
        raise SystemExit(f"{' '.join(map(str, command))} exited {code}:\n{done.stdout}\n{done.stderr}")
    return Run(*found)


def peak_anonymous(command: Command, env: Mapping[str, str]) -> float:
    """The most anonymous memory of a command and the processes that it starts, in MiB; looked at every 20 ms.

    `env` is added to the environment. A failure raises, with what the command said.
    """
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, env={**os.environ, **env}, stdout=said, stderr=said)
        peak = 0
        while process.poll() is None:
            peak = max(peak, sum(memory(pid, "RssAnon:", "RssShmem:") for pid in tree(process.pid)))
            time.sleep(0.02)
        said.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(map(str, command))} exited {process.returncode}:\n{said.read()}")
    return peak / 1024


def tree(process: int) -> Iterator[int]:
    """A process and those that it started, also indirectly; nothing if it ended."""
    with suppress(OSError):
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            for child in children.read_text().split():
                yield from tree(int(child))
        yield process


def memory(process: int, *keys: str) -> int:
    """KiB that the kernel counts for a process under these keys of its status; 0 if the process ended."""
    with suppress(OSError):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(keys))
    return 0


def pairs(
    ours: Callable[[], T],
    theirs: Callable[[], T],
    count: int,
    value: Callable[[T], float] = attrgetter("wall"),
    warm_up: bool = True,
    budget: float = BUDGET,
) -> list[tuple[T, T]]:
    """One warm-up of each, then `count` pairs in turn; in all up to `ROUNDS` times, while the ratio of `value` is wide.

    It may end sooner after `budget` seconds. What moves a GiB each time needs no warm-up: little of it is cold.
    """
    if warm_up:
        ours(), theirs()
    measured: list[tuple[T, T]] = []
    began = time.monotonic()
    while len(measured) < ROUNDS * count:
        measured.append((ours(), theirs()))
        is_late = time.monotonic() - began > budget and len(measured) >= min(PAIRS, count)
        values = [(value(a), value(b)) for a, b in measured]
        if is_late or (len(measured) % count == 0 and not row("", "", values, "s", "").is_wide()):
            break
    return measured


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
    sides = median(a for a, _ in values), median(b for _, b in values)
    extent = median(ratios), min(ratios), max(ratios)
    return Row(what, peer, *sides, *extent, unit, aim, spread_of(ratios))


def spread_of(ratios: Sequence[float]) -> float:
    """Half of the 95 % interval of the median, over the median: 1.57 interquartile ranges by the root of the count.

    That is the notch of a box plot (McGill, Tukey and Larsen 1978). One outlier does not widen it, more pairs narrow it.
    With two or three pairs it only tells when to stop.
    """
    if len(ratios) < 2:
        return 0.0
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return 1.57 * (high - low) / math.sqrt(len(ratios)) / median


def table(found: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| what | peer | ours | peer's | ratio (min-max) | aim |", "|---|---|---|---|---|---|"]
    for row in found:
        lines.append(
            f"| {row.what} | {row.peer} | {row.ours:.3g} {row.unit} | {row.theirs:.3g} {row.unit} "
            f"| {row.ratio:.2f} ({row.least:.2f}-{row.most:.2f}) | {row.aim} |"
        )
    return "\n".join(lines)
