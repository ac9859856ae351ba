"""Run the benchmarks: ratios to docs/benchmarks.json, and from there to docs/benchmarks.md with its charts.

make bench [GROUPS="GROUP ..."]     all groups, or these
make bench-quick                    one group for each headline, in 8 minutes

`page` alone writes the page anew from the figures that are there. A group with a row that is still too wide after it was
measured again is not written, and the exit status is 1; `--force` writes it, and the page says so. A run of all
first makes the peers' environments and trains models, whose minutes do not count, and names the groups that cannot be
measured here. Groups that only count run first, side by side. The others follow alone, the oldest figures first; the run
ends before the first that does not fit in an hour. The groups that are left are named, and the exit status is 1.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from benchmarks import (
    adding,
    certification,
    deltas,
    durability,
    encoders,
    export,
    fleet,
    growth,
    hub,
    javascript,
    large,
    oci,
    peers,
    proving,
    remotes,
    report,
    resolving,
    scale,
    searching,
    serving,
    startup,
    transfer,
    verify,
)
from benchmarks.measure import GroupRun, Row, table

CACHE = Path(__file__).parents[2] / ".cache"
CHECKPOINTS = CACHE / "pii"


BENCHMARKS: dict[str, Callable[[], list[Row]]] = {
    "startup": lambda: startup.benchmark(CACHE),
    "ingest": transfer.ingest,
    "adding": lambda: adding.benchmark(CACHE),
    "memory": lambda: list(large.memory()),
    "durability": durability.benchmark,
    "verify": verify.benchmark,
    "prove": proving.benchmark,
    "scale": lambda: scale.benchmark(CACHE),
    "resolve": resolving.benchmark,
    "export": lambda: export.benchmark(CHECKPOINTS / "0.2.0", CACHE),
    "fleet": fleet.benchmark,
    "certification": lambda: certification.benchmark(CHECKPOINTS),
    "deltas sizes": lambda: deltas.sizes(CHECKPOINTS, CACHE),
    "deltas speed": lambda: deltas.speed(CHECKPOINTS),
    "javascript": lambda: javascript.benchmark(CHECKPOINTS),
    "encoders": lambda: encoders.benchmark(CACHE),
    **{f"remotes {part}": partial(remotes.benchmark, CACHE, part) for part in remotes.PARTS},
    **{f"oci {part}": partial(oci.benchmark, CACHE, part) for part in ("oras", "skopeo", "publish")},
    "hub": lambda: hub.benchmark(CACHE),
    "search": searching.benchmark,
    **{
        f"serving {part}": partial(serving.benchmark, CACHE, part)
        for part in ("mlflow", "nginx", "small", "size")
    },
}

PROGRAMS = {
    "deltas sizes": ("zstd", "xdelta3", "casync"),
    "javascript": ("nginx", "node", "chromium"),
    "oci oras": ("docker-registry",),
    "oci skopeo": ("docker-registry", "skopeo"),
    "oci publish": ("docker-registry", "skopeo"),
    "hub": ("nginx", "curl"),
    "serving mlflow": ("wrk",),
    "serving nginx": ("nginx",),
    "serving small": ("wrk", "nginx"),
}
"""Programs of the distribution that groups need."""
OF_THE_DEMO = ("export", "certification", "deltas sizes", "deltas speed", "javascript")
"""Groups that need the checkpoints of the demo."""

TRAINED = "deltas sizes"
"""The group whose models are trained first."""
RUN_SECONDS = 3600
"""A run of all groups ends before the first that took longer the last time than what is left of this time."""

GROWTH = {f"growth {part}": curves for part, curves in growth.PARTS.items()}
COUNTED = ("memory", "deltas sizes", *(name for name in GROWTH if name != "growth pushers at once"))
"""Groups that count calls, requests, bytes or memory, which what runs beside them does not change. Their seconds of
processor time do change a little. Pushers that race have the machine for themselves."""


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.run")
    parser.add_argument("groups", nargs="*")
    parser.add_argument("--force", action="store_true", help="also write groups with rows that are too wide")
    parser.add_argument("--part", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    CACHE.mkdir(exist_ok=True)
    print(f"load {_load()}", file=sys.stderr)
    chosen = _chosen(options.groups)
    runs = {name: GroupRun(**run) for name, run in report.load().get("runs", {}).items()}
    limit = float("inf")
    if not options.groups:
        limit = RUN_SECONDS
        chosen.sort(key=lambda name: runs[name].date if name in runs else "")
        peers.install(CACHE)
    lacks = {name: lacking(name) for name in chosen}
    if lacks.get(TRAINED) == "":
        lacks[TRAINED] = _train()
    failures = [f"{name}: not measured: {lack}" for name, lack in lacks.items() if lack]
    for failure in failures:
        print(failure, file=sys.stderr, flush=True)
    started = time.monotonic()
    names = [name for name, lack in lacks.items() if not lack]
    expected = {name: runs[name].seconds if name in runs else 0 for name in names}
    side_by_side = [name for name in names if name in COUNTED and not options.part]
    side_by_side.sort(key=expected.__getitem__, reverse=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failures += filter(None, pool.map(partial(_measure_apart, force=options.force), side_by_side))
    for name in [name for name in names if name not in side_by_side]:
        if time.monotonic() - started + expected[name] > limit:
            limit = 0
            failures.append(f"{name}: not measured: the hour is over; {_again(name)}")
        elif failure := _measure(name, options.force):
            failures.append(failure)
    if not options.part:
        report.write(report.load())
        minutes = (time.monotonic() - started) / 60
        print(f"{len(chosen)} groups in {minutes:.1f} minutes, {len(failures)} not written", file=sys.stderr)
    for failure in failures:
        print(failure, file=sys.stdout if options.part else sys.stderr)
    return int(bool(failures))


def lacking(name: str) -> str:
    """Name what a group needs and this machine lacks, and say what to type; empty if nothing is lacking."""
    lacks = [
        f"{program} is missing: apt-get install {peers.PACKAGED[program]}"
        for program in PROGRAMS.get(name, ())
        if shutil.which(program) is None
    ]
    if name in OF_THE_DEMO and not (CHECKPOINTS / "confirm.jsonl").exists():
        lacks.append("the checkpoints are missing: run `make demo` first")
    return "; ".join(lacks)


def _train() -> str:
    """Train the models of the group `TRAINED`. Returns why that failed."""
    try:
        deltas.prepare(CACHE)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (the other groups are measured)
        return f"the training failed: {type(error).__name__}: {error}"
    return ""


def _measure_apart(name: str, force: bool) -> str | None:
    """Measure a group in a process of its own, which writes it. Returns its rows and why it was not written."""
    words = [sys.executable, "-m", "benchmarks.run", "--part", *["--force"] * force, name]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return f"{name}: not written\n{done.stdout}".rstrip()
    print(done.stdout, end="", flush=True)
    return None


def _measure(name: str, force: bool) -> str | None:
    """Measure a group and write it. Returns why it was not written."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    date, before, started = datetime.now(UTC), os.getloadavg()[0], time.monotonic()
    installed = sum(peers.INSTALL_SECONDS)
    try:
        measured = list((BENCHMARKS.get(name) or GROWTH[name])())
    except SystemExit as error:
        return f"{name}: not measured: {error}"
    except (Exception, pytest.skip.Exception) as error:  # noqa: BLE001  (one group does not end the others)
        traceback.print_exc()
        said = getattr(error, "stderr", None) or ""
        return f"{name}: not measured: {type(error).__name__}: {error}\n{said}".rstrip()
    seconds = time.monotonic() - started - (sum(peers.INSTALL_SECONDS) - installed)
    rows = [item for item in measured if isinstance(item, Row)]
    wide = [row for row in rows if row.is_wide()]
    load = [round(value, 2) for value in (before, os.getloadavg()[0])]
    run = GroupRun(
        date.isoformat(timespec="minutes"), round(seconds), load, [f"{row.what} / {row.peer}" for row in wide]
    )
    print(f"{table(rows)}\n{name}: {seconds:.0f} s, load {_load()}", flush=True)
    if wide and not force:
        return refusal(name, wide, load)
    part = "growth" if name in GROWTH else "groups"
    report.save(part, name, [asdict(item) for item in measured], run, peers.versions(CACHE))
    return None


def refusal(name: str, wide: Sequence[Row], load: Sequence[float]) -> str:
    """Say which rows are too wide, and what to type next."""
    loads = " to ".join(f"{value:.2f}" for value in load)
    lines = [f"{name}: not written: {len(wide)} rows are too wide at load {loads} on {os.cpu_count()} cores"]
    for row in wide:
        spread, limit = f"{row.spread * 100:.0f} %", f"{row.limit() * 100:.0f} %"
        lines.append(f"  {row.what} / {row.peer}: {row.ratio:.2f} within {spread}, the limit is {limit}")
    lines.append(f"  end other programs, then {_again(name)}")
    lines.append("  to write the group all the same, marked as wide, put --force before its name")
    return "\n".join(lines)


def _again(name: str) -> str:
    return f"""type: make bench GROUPS="'{name}'\""""


def _load() -> str:
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def _chosen(wanted: list[str]) -> list[str]:
    """A group is wanted by its whole name or by the first word of it; `quick` are those of `report.QUICK`."""
    known = [*BENCHMARKS, *GROWTH]
    if wanted == ["page"]:
        return []
    if "quick" in wanted:
        wanted = [*wanted, *report.QUICK]
    words = {word for name in known for word in (name, name.split()[0], "quick")}
    if unknown := [word for word in wanted if word not in words]:
        raise SystemExit(f"no group is named {', '.join(unknown)}; the groups: {', '.join(known)}")
    return [name for name in known if not wanted or name in wanted or name.split()[0] in wanted]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
