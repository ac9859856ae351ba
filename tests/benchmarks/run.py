"""Run the benchmarks: ratios to docs/benchmarks.json, and from there to docs/benchmarks.md.

make bench [GROUPS="GROUP ..."]     all groups, or these
make bench-quick                    one group for each headline, in 8 minutes

`page` alone writes the page anew from the figures that are there. A group with a row that is still too wide after it was
measured again is not written, and the exit status is 1; `--force` writes it, and the page says so.
"""

import argparse
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from benchmarks import (
    deltas,
    exports,
    fleet,
    javascript,
    large,
    oci,
    peers,
    proving,
    questions,
    remotes,
    report,
    serving,
    storing,
)
from benchmarks.measure import GroupRun, Row, table

CACHE = Path(__file__).parents[2] / ".cache"
CHECKPOINTS = CACHE / "pii"

BENCHMARKS: dict[str, Callable[[], list[Row]]] = {
    "startup": partial(questions.startup, CACHE),
    "ingest": storing.ingest,
    "adding": partial(storing.add, CACHE),
    "memory": large.memory,
    "verify": storing.verify,
    "prove": proving.benchmark,
    "scale": partial(questions.scale, CACHE),
    "resolve": questions.resolve,
    "export": partial(exports.android, CHECKPOINTS / "0.2.0", CACHE),
    "fleet": fleet.benchmark,
    "certification": partial(exports.search, CHECKPOINTS, CACHE),
    "deltas sizes": partial(deltas.sizes, CHECKPOINTS),
    "deltas speed": partial(deltas.speed, CHECKPOINTS),
    "javascript": partial(javascript.benchmark, CHECKPOINTS),
    "encoders": partial(exports.encoders, CACHE),
    **{f"remotes {part}": partial(remotes.benchmark, CACHE, part) for part in remotes.PARTS},
    "oci publish": oci.benchmark,
    **{f"serving {part}": partial(serving.benchmark, CACHE, part) for part in ("mlflow", "nginx", "small")},
}
PROGRAMS = {
    "javascript": ("nginx", "node", "chromium"),
    "oci publish": ("docker-registry", "skopeo"),
    "serving mlflow": ("wrk",),
    "serving nginx": ("nginx",),
    "serving small": ("wrk", "nginx"),
}
"""Programs of the distribution that groups need."""
OF_THE_DEMO = ("export", "certification", "deltas sizes", "deltas speed", "javascript")
"""Groups that need the checkpoints of the demo."""


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.run")
    parser.add_argument("groups", nargs="*")
    parser.add_argument("--force", action="store_true", help="also write groups with rows that are too wide")
    options = parser.parse_args(words)
    CACHE.mkdir(exist_ok=True)
    trust = CACHE / "trust.toml"  # empty: this user's own would cost each start
    trust.touch()
    os.environ["REG_TRUST"] = str(trust)
    chosen = _chosen(options.groups)
    if not options.groups:
        peers.install(CACHE)
    failures = [f"{name}: not measured: {lack}" for name in chosen if (lack := lacking(name))]
    print(f"load {_load()}", *failures, sep="\n", file=sys.stderr, flush=True)
    failures += [_measure(name, options.force) for name in chosen if not lacking(name)]
    failures = [failure for failure in failures if failure]
    report.write(report.load())
    print(f"{len(chosen)} groups, {len(failures)} not written", *failures, sep="\n", file=sys.stderr)
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


def _measure(name: str, force: bool) -> str:
    """Measure a group and write it. Returns why it was not written, empty if it was."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    date, before, started = datetime.now(UTC), os.getloadavg()[0], time.monotonic()
    try:
        rows = BENCHMARKS[name]()
    except (Exception, SystemExit, pytest.skip.Exception) as error:  # noqa: BLE001  (one group does not end the others)
        traceback.print_exc()
        said = getattr(error, "stderr", None) or ""
        return f"{name}: not measured: {type(error).__name__}: {error}\n{said}".rstrip()
    seconds = round(time.monotonic() - started)
    wide = [row for row in rows if row.is_wide()]
    load = [round(value, 2) for value in (before, os.getloadavg()[0])]
    names = [f"{row.what} / {row.peer}" for row in wide]
    print(f"{table(rows)}\n{name}: {seconds} s, load {_load()}", flush=True)
    if wide and not force:
        return refusal(name, wide, load)
    run = GroupRun(date.isoformat(timespec="minutes"), seconds, load, names)
    report.save(name, [asdict(row) for row in rows], run, peers.versions(CACHE))
    return ""


def refusal(name: str, wide: Sequence[Row], load: Sequence[float]) -> str:
    """Say which rows are too wide, and what to type next."""
    loads = " to ".join(f"{value:.2f}" for value in load)
    lines = [f"{name}: not written: {len(wide)} rows are too wide at load {loads} on {os.cpu_count()} cores"]
    for row in wide:
        spread, limit = f"{row.spread * 100:.0f} %", f"{row.limit() * 100:.0f} %"
        lines.append(f"  {row.what} / {row.peer}: {row.ratio:.2f} within {spread}, the limit is {limit}")
    again = f"""make bench GROUPS="'{name}'\""""
    return "\n".join(
        [
            *lines,
            f"  end other programs, then type: {again}, or write it marked as wide: --force before its name",
        ]
    )


def _load() -> str:
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def _chosen(wanted: list[str]) -> list[str]:
    """A group is wanted by its whole name or by the first word of it; `quick` are those of `report.QUICK`."""
    if wanted == ["page"]:
        return []
    if "quick" in wanted:
        wanted = [*wanted, *report.QUICK]
    words = {word for name in BENCHMARKS for word in (name, name.split()[0], "quick")}
    if unknown := [word for word in wanted if word not in words]:
        raise SystemExit(f"no group is named {', '.join(unknown)}; the groups: {', '.join(BENCHMARKS)}")
    return [name for name in BENCHMARKS if not wanted or name in wanted or name.split()[0] in wanted]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
