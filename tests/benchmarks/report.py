"""docs/benchmarks.md with its charts, out of docs/benchmarks.json, which holds the figures of the last run of each group."""

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import chart
from benchmarks.losses import why
from benchmarks.measure import Curve, Row, table

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "benchmarks.json"
OWN = ("python -c", "the ", "reg", "fsync of each", "a loop", "json.loads", "threads, ")
"""Beginnings of what is no program that somebody would use instead."""

HEADING = """# Benchmarks

Made by `make bench` on one machine. Whole processes in pairs, ours and the peer's in turn; figures are medians, the ratio is
ours over the peer's (below 1: ours is faster or smaller). Of rates (/s, MB/s) it is better above 1; the charts turn these
round. Losing rows stand here like the others, and below the tables with the reason. Figures: [benchmarks.json](benchmarks.json).

![Ratios to each peer on a logarithmic axis](images/benchmarks.svg)
"""
GROWTH = """
## Cost of growth

Counted: calls of functions (up to a size of 1,000), requests, bytes, files opened, syncs; seconds of processor time are beside
them for what no count shows. The tables have the cost at the largest size, and the exponent of the last step to it: 1 is
linear (in the chart the grey band), 0 is flat. No step is worse than linear, and `tests/registry/test_growth.py` holds them to it,
but for one: who pushes to one model at the same moment as others loses races, waits and tries again, n log n requests in all; and each
writes the lines of the others too, until 64 of them are sealed. An index file has at most 64 lines, so that what
reads it alone goes up and down with the number of versions.

![What each step costs as its input grows](images/growth.svg)
"""
GROWING = ("blobs of a version", "versions of a model", "models", "pushers at once", "MiB of a file")
"""What grows, in the order of the page."""
GROUPS = {
    "startup": """Of an installed wheel; every peer in an environment of its own. Each side has one model of 20 versions (dvc: 20 files).
`reg show` reads a manifest with pydantic, behind typer, and has no aim.""",
    "ingest": "",
    "adding": """Three large and 300 small files from a directory into an empty store; then again with nothing changed; then one small file
changed. Ours reads a graph and ends durable, and knows files again that lay still for a minute; dvc believes the time stamps of files that it saw, MLflow hashes
nothing. Both are followed by a sync.""",
    "memory": "",
    "durability": "",
    "verify": "",
    "scale": "",
    "resolve": "",
    "export": """The same kinds of file as OpenMed's converter makes; ours measures the parity of each besides. A third of the time is
the import of torch and transformers, which both sides pay.""",
    "encoders": "",
    "remotes": """The server shares the machine with its client, so that the wall time of a push or pull is largely the server's; the
processor time is the client's own. `aws s3 cp` neither hashes what it pulls nor waits until it is on the disk, and a pull of ours
does both: the row with `sync` is the fair one, as against dvc the one where it verifies. Of a push of 1 GiB SeaweedFS alone takes 12 to 14 s of
processor time on the two cores, our client 2.6 to 2.9 and dvc's 5.3: there the aim of 1.5 times dvc's speed is out of reach of any client
(8.4 s would be the least, dvc takes 11.6 to 13.7 on the same machine). The emulator of the Hub is ours, in Python.""",
    "oci": """The command line `oras` is no package of PyPI, Debian or npm; its Python client is, and is what is compared. Its server is the
distribution's own `docker-registry`, which holds plain files; ours pushes to SeaweedFS and pulls from `reg serve`.""",
    "serving": """`reg serve` is one process, MLflow's registry has its four workers and SQLite, nginx one worker; all have the same 200 models of
5 versions, and 64 clients (wrk, on the same cores).""",
}
"""The groups in their order, and what is to be known of each."""


def load() -> dict[str, Any]:
    if RESULTS.exists():
        return dict(json.loads(RESULTS.read_text()))
    return {"machine": {}, "peers": {}, "groups": {}, "growth": {}}


def save(part: str, name: str, found: list[dict[str, Any]], peers: dict[str, str]) -> None:
    """Put a group's figures beside those of the others."""
    results = load()
    results[part][name] = found
    machine = {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }
    RESULTS.write_text(json.dumps({**results, "peers": peers, "machine": machine}, indent=1) + "\n")


def write(results: dict[str, Any]) -> None:
    """The page and its charts."""
    groups = {name: rows for name in GROUPS if (rows := _rows_of(results, name))}
    growth = [Curve(**curve) for curves in results["growth"].values() for curve in curves]
    growth.sort(key=lambda curve: GROWING.index(curve.size))
    peers = {name: [row for row in rows if _of_others(row)] for name, rows in groups.items()}
    shown = {name: rows for name, rows in peers.items() if rows}
    (DOCS / "images" / "benchmarks.svg").write_text(chart.ratios(shown))
    parts = [HEADING, _machine(results)]
    for name, rows in groups.items():
        parts.append(f"\n## {name}\n\n{GROUPS[name]}\n\n{table(rows)}\n".replace("\n\n\n", "\n"))
    parts.append(_losses([row for rows in peers.values() for row in rows]))
    if growth:
        (DOCS / "images" / "growth.svg").write_text(chart.curves(growth))
        parts += [GROWTH, "\n" + _growth(growth) + "\n"]
    (DOCS / "benchmarks.md").write_text("".join(parts))


def _rows_of(results: dict[str, Any], group: str) -> list[Row]:
    """The rows of all parts of a group, in the order in which they were first measured."""
    parts = [rows for name, rows in results["groups"].items() if name.split()[0] == group]
    return [Row(**row) for rows in parts for row in rows]


def _of_others(row: Row) -> bool:
    return not row.peer.startswith(OWN) and not row.what.endswith(", processor")


def _machine(results: dict[str, Any]) -> str:
    machine = results["machine"]
    peers = ", ".join(f"{name} {version}" for name, version in sorted(results["peers"].items()))
    return f"\n{machine['cores']} cores ({machine['architecture']}), Python {machine['python']}. Peers: {peers}.\n"


def _losses(rows: Sequence[Row]) -> str:
    """Those whose every pair we lost, with the reason; those that go both ways are named alone."""
    lost = [row for row in rows if row.cost()[1] > 1]
    level = [row for row in rows if row.cost()[0] > 1 >= row.cost()[1]]
    lines = [
        f"- **{row.what}** against {row.peer}: {row.ratio:.2f}. {why(row.what, row.peer)}" for row in lost
    ]
    lines += [f"- {row.what} against {row.peer}: {row.ratio:.2f}, the pairs go both ways." for row in level]
    return "\n## Where we lose\n\n" + ("\n".join(lines) or "Nowhere.") + "\n"


def _growth(growth: Sequence[Curve]) -> str:
    """A table for each kind of growth: of each step what it costs at the largest size, and the exponent of the last step."""
    tables = []
    for size in dict.fromkeys(curve.size for curve in growth):
        together = [curve for curve in growth if curve.size == size]
        counts = list(dict.fromkeys(curve.count for curve in together))
        lines = [f"| {size} | {' | '.join(counts)} |", "|---" * (len(counts) + 1) + "|"]
        for step in dict.fromkeys(curve.step for curve in together):
            cells = {curve.count: _cell(curve) for curve in together if curve.step == step}
            lines.append(f"| {step} | {' | '.join(cells.get(count, '') for count in counts)} |")
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def _cell(curve: Curve) -> str:
    unit = f" {curve.unit}" if curve.unit != curve.count else ""
    value = curve.values[-1]
    shown = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{shown}{unit} at {curve.sizes[-1]:,} ({curve.last_slope():.2f})"
