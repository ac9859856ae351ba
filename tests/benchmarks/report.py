"""docs/benchmarks.md with its charts, out of docs/benchmarks.json, which holds the figures of the last run of each group."""

import fcntl
import json
import os
import platform
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import chart
from benchmarks.losses import why
from benchmarks.measure import BUDGET, LEAST, LIMIT, PAIRS, ROUGH_LIMIT, ROUNDS, Curve, GroupRun, Row, table

COLUMNS = 100
DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "benchmarks.json"
OWN = (
    "python -c",
    "the ",
    "reg",
    "fsync of each",
    "a loop",
    "judging one",
    "its ",
    "json.loads",
    "threads, ",
    "10 minutes",
)
"""Beginnings of what is no program that somebody would use instead."""

HEADING = """# Benchmarks

`make bench` measures all of this on one machine. Ours and the peer's program run in turn, as pairs of whole
processes. Figures are medians; the ratio is ours over the peer's (below 1: ours is faster or smaller). For rates (/s, MB/s)
above 1 is better; the charts invert these. Rows that we lose are shown like the others, and explained
[below](#where-we-lose). Figures: [benchmarks.json](benchmarks.json).

![Ratios to each peer on a logarithmic axis](images/benchmarks.svg)
"""
GROWTH = """
## Cost of growth

Counted: calls of functions (up to a size of 100), requests, bytes, opened files, syncs; and seconds of processor
time for costs that no count shows, taken while other groups ran, so good for the order of magnitude alone. The tables show the cost at the largest size, and the exponent of the last
step to it: 1 is linear (the grey band in the chart), 0 is flat. No step is worse than linear, and
`tests/registry/test_growth.py` checks that, with one exception: processes that push to one model at the same moment lose
races, wait and try again, n log n requests in all; and each also writes the lines of the others, until 64 of them are sealed.
The chart has the opened files, the requests of pushers, and the memory for a file. An index file has at most 64 lines, so the cost of reading it goes up and down with the number of versions: after every 64th
line a push also sends the list of all versions, 140 bytes each. The bucket of a mirror is in memory, and searches all its keys for each
listing; that is the processor time which grows faster there.

![What each step costs as its input grows](images/growth.svg)
"""
QUICK = ("startup", "durability", "resolve", "export", "remotes aws")
"""A group for each headline: how fast verbs start, publish, resolve, export, push and pull."""
RUNS = f"""
## Runs

A comparison takes as many pairs as its group asks for. While the spread of their ratios is above {LIMIT * 100:.0f} %, it takes as
many again, at most {ROUNDS} times as many in all; all pairs count. After {BUDGET} seconds it ends sooner: with {LEAST} pairs if the spread is narrow, else
with {PAIRS}. The spread is half of the 95 % interval of the median ratio, over that median (the notch of a box plot: 1.57
interquartile ranges by the root of the number of pairs); with two or three pairs it is only the rule for when to stop. The limit is
{ROUGH_LIMIT * 100:.0f} % if a side takes less than 0.1 s, or if the sides differ more than ten times. A group with a wider row is not
written; `make bench GROUPS="--force GROUP"` writes it, and the table counts such rows.

`make bench` first installs the peers and trains models. Then it runs the groups that only count (growth, memory, deltas sizes), several
at a time. Then it runs the others one by one, those with the oldest figures first, and stops before the first one that
does not fit in an hour. `make bench-quick` measures a group for each headline: {", ".join(QUICK)}. Load is the mean of one minute before and
after, and includes that of the group itself.

The days before 2026-11-28 are those of a machine with two cores on which a bare interpreter starts in 9 ms. On 2026-11-28 it took
25 ms, and Python's own work three times as long, while programs in C lost less, and the speed changed from second to second. There all
groups in one run took 57 minutes, and `make bench-quick` 7.2 minutes. One group failed in that run and was measured later, which
would have added a minute; 11 of the 42 groups were not written, because a row was too wide. A second run wrote 6 of them. Groups
whose benchmark did not change, and groups that no run wrote, keep the figures of the faster machine. Worse on the slower one: the first search over 10,000 models takes 5.6 to 6.7 s
(aim 2.5), `verify` of 4 GiB 1.32 to 1.36 of the threads' time, a pull of 1 GiB 0.72 to 1.02 of that of `aws s3 cp` (which does not wait
for the disk), a push 0.94 to 1.04, a push beside hf with Xet 1.14 to 1.22. About the same: the android export takes 0.56 to 0.58 of
OpenMed's time, an encoder 0.75 to 0.78 of Optimum's.
"""
GROWING = ("blobs of a version", "versions of a model", "models", "pushers at once", "MiB of a file")
"""What grows, in the order of the page."""
GROUPS = {
    "startup": """Measured with an installed wheel; every peer has its own environment. Each side has one model of 20 versions
(dvc: 20 files). The import of typer is most
of each: [ADR 14](adr/0014-one-parser.md).""",
    "ingest": "",
    "adding": """Three large and 300 small files from a directory into an empty store; then again with nothing changed; then with
one small file changed. Ours reads the graphs and ends durable, and recognises files that did not change for a minute. dvc
trusts the time stamps of files that it saw, MLflow hashes nothing. Both are followed by a sync.""",
    "memory": """A model with 1 GiB of external data in one file, against one with 64 MiB. Counted is anonymous memory of all processes of a
verb, every 20 ms. Mapped files are not counted, whose pages the kernel drops if it needs room: only `reg delta make` maps any, 2 GiB here. The same for 8 GiB: [scale](scale.md#what-grows-with-what).""",
    "durability": "",
    "verify": """Python with the modules that read manifests starts in 0.3 s on one core; then both hash at the same speed. The
processor time is 1.04 to 1.10 of that of the threads, with two, three or eight of ours. On 16 cores (Intel Xeon, 2026-11-27) ours takes
0.89 s for the 4 GiB, the threads 0.55 s (1.62).""",
    "prove": """Parent and child have their weights in files beside them. The peer divides and compares, and looks at nothing else.""",
    "scale": """Without an index a question reads every index file, checks each field and writes the index: about 0.5 ms of
processor time for a model. The peer of these rows only reads the files and parses their state lines. The files are on the disk before the
first question: while the kernel still writes them, it takes 3.2 to 3.7 s. On 16 cores (Intel Xeon, 2026-11-27) `filter` takes 1.15 s and `list` 1.23 s.""",
    "resolve": "",
    "export": """The same kinds of file as OpenMed's converter makes; ours also measures the parity of each. Of our processor time
four tenths are PyTorch and transformers themselves (imports; loading, running and exporting the module), which the peer needs too;
a fifth loads and runs each file in ONNX Runtime, to compare it with the checkpoint; the rest makes, reads, hashes and publishes files. The
goals of 0.65 of the peer's wall time, 0.8 of its processor time and of its memory are met.""",
    "fleet": """Every encoder is a BERT of two layers and the width 128 with random weights of its own (17.5 MB), exported to fp32,
compared with its checkpoint and pushed to one directory. The processor time is that of the scheduler, the four workers and `reg`; each
worker imports torch once. The second row leaves out the processor time that other programs took meanwhile. Measured once ([many exports](fleets.md#a-dask-cluster)).""",
    "certification": """The demo's model on suites of 600 texts, the search measured once. *Each text alone* is the judgement of one
INT8 file as it was before texts of equal length shared a run of a graph whose activations stay in floating point. The search makes,
judges and times all eight candidates; with the objective bytes it ends at the first that passes (in an earlier run after four of fourteen).""",
    "deltas": """The demo's model, retrained, exported by the android profile. Sizes of single files: the ratio is the delta's
share of the file, or its size over that of another tool's difference. *Head alone*, *LoRA* and *drawn anew* are changed weights,
the others are trainings: 220 steps with another seed, 40 of MobileNetV2, 6 of SmolLM2 (its int4 grid absorbs most of them). The update over a slow line is measured once. Making is parallel, applying and SHA-256 run on one thread.""",
    "javascript": """The package `@onnxreg/client` reads from nginx on the same machine. *First tagged sentence* is the time from a
page's navigation in a new profile of headless Chromium to the spans of a sentence, with the demo's INT8 model in ONNX Runtime Web;
the peer's page loads the same files with `fetch` and keeps nothing.""",
    "encoders": "",
    "remotes": """Server and client share the machine, so the wall time of a push or pull is mostly the server's; the
processor time is the client's own. `aws s3 cp` neither hashes what it pulls nor waits until it is on the disk; our pull does
both. The fair comparisons are the row with `sync` (of half a GiB), and for dvc the row in which it verifies. For a push of 1 GiB (an earlier run; the rows of dvc and hf have half of it, those of MLflow a quarter) SeaweedFS alone
takes 12 to 14 s of processor time on the two cores, our client 2.6 to 2.9 and dvc's 5.3. So no client can reach the target
of 1.5 times dvc's speed there (8.4 s would be the least, dvc takes 11.6 to 13.7 on the same machine). On 16 cores, of which no program
uses all (Intel Xeon, 2026-11-27, five pairs), a push of 1 GiB takes 2.44 s and `aws s3 cp` 2.70 s (0.90, 0.87 to 0.96; processor 0.64, memory 74 and 90 MiB),
a pull 2.47 s and 3.47 s (0.76, 0.68 to 0.81). Our push needs 0.8 s there before the first byte of a large file and after the last one: Python's start, and
the requests which prove that a new place keeps its promises. The emulator of the Hub is ours, in Python.""",
    "oci": """The command line `oras` is not on PyPI, Debian or npm, so its Python client is compared. Its server is the
distribution's own `docker-registry`, with plain files; ours pushes to SeaweedFS and pulls from `reg serve`. `reg publish` and
skopeo write to the same `docker-registry`, which hashes every byte on the same cores.""",
    "hub": """A file of 512 MiB. The peer
fetches the blob from nginx and hashes it, with coreutils' `sha256sum` or with OpenSSL, which is four times as fast; `hf` hashes
nothing. The rows of `http_get` compare the servers alone: it is the function by which `hf` downloads.""",
    "search": """A search for the first 20 matches (`--limit 20`) in a remote of 10,000 models of two versions: from the snapshot that
`reg index publish` made, and (with `--fresh`, in a bucket) from index files, of which 128 had 20 matches; all of them would be
10,011 requests. One pair each where the range is a point. DuckDB reads the Parquet file that the same server sends, in ranges.
It fetched all matches when these rows were measured; the benchmark now stops both at 20. The proxy that counts the requests, the server and the client share the cores.""",
    "serving": """`reg serve` is one process, MLflow's registry has four workers and SQLite, nginx one worker; the rows of small
files have one and two workers on both sides. All have the same 200 models of 5 versions, and 64 clients (wrk, one thread, on the
same cores: with two workers it is the third that wants a core).""",
}
"""The groups in their order, with an introduction."""


def load() -> dict[str, Any]:
    if RESULTS.exists():
        return dict(json.loads(RESULTS.read_text()))
    return {"machine": {}, "peers": {}, "groups": {}, "growth": {}}


def save(part: str, name: str, items: list[dict[str, Any]], run: GroupRun, peers: dict[str, str]) -> None:
    """Put a group's figures and its run beside those of the others, and the versions of its peers beside theirs."""
    machine = {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }
    with _locked():
        results = load()
        results[part][name] = items
        results["runs"] = dict(sorted({**results.get("runs", {}), name: asdict(run)}.items()))
        versions = dict(sorted({**results["peers"], **peers}.items()))
        text = json.dumps({**results, "peers": versions, "machine": machine}, indent=1) + "\n"
        written = RESULTS.with_suffix(".new")
        written.write_text(text)
        written.replace(RESULTS)


@contextmanager
def _locked() -> Iterator[None]:
    """Keep other processes from saving at the same time."""
    folder = os.open(RESULTS.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def write(results: dict[str, Any]) -> None:
    """The page and its charts."""
    groups = {name: rows for name in GROUPS if (rows := _rows_of(results, name))}
    growth = [Curve(**curve) for curves in results["growth"].values() for curve in curves]
    growth.sort(key=lambda curve: GROWING.index(curve.size))
    peers = {name: [row for row in rows if _of_others(row)] for name, rows in groups.items()}
    shown = {name: rows for name, rows in peers.items() if rows}
    (DOCS / "images" / "benchmarks.svg").write_text(chart.ratios(shown))
    parts = [_pages_text(HEADING), _machine(results)]
    for name, rows in groups.items():
        parts.append(f"\n## {name}\n\n{_filled(GROUPS[name])}\n\n{table(rows)}\n".replace("\n\n\n", "\n"))
    parts.append(_losses([row for rows in peers.values() for row in rows]))
    if growth:
        (DOCS / "images" / "growth.svg").write_text(chart.curves(growth))
        parts += [_pages_text(GROWTH), "\n" + _growth(growth) + "\n"]
    parts += [_pages_text(RUNS), "\n" + _runs(results) + "\n"]
    (DOCS / "benchmarks.md").write_text("".join(parts))


def _filled(paragraph: str, first: str = "") -> str:
    """A paragraph, or a list item that begins with `first`, in lines of `COLUMNS`."""
    text = " ".join(paragraph.split())
    return textwrap.fill(
        text,
        COLUMNS,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _pages_text(text: str) -> str:
    """Some paragraphs, each filled."""
    return "\n\n".join(_filled(paragraph) for paragraph in text.strip("\n").split("\n\n")).join(
        ("\n" * text.startswith("\n"), "\n")
    )


def _rows_of(results: dict[str, Any], group: str) -> list[Row]:
    """The rows of all parts of a group, in the order in which they were first measured."""
    parts = [rows for name, rows in results["groups"].items() if name.split()[0] == group]
    return [Row(**row) for rows in parts for row in rows]


def _of_others(row: Row) -> bool:
    return not row.peer.startswith(OWN) and not row.what.endswith(", processor")


def _machine(results: dict[str, Any]) -> str:
    machine = results["machine"]
    peers = ", ".join(f"{name} {version}" for name, version in sorted(results["peers"].items()))
    text = (
        f"{machine['cores']} cores ({machine['architecture']}), Python {machine['python']}. Peers: {peers}."
    )
    return f"\n{_filled(text)}\n"


def _losses(rows: Sequence[Row]) -> str:
    """Those whose every pair we lost, with the reason; those that go both ways are named alone."""
    lost = [row for row in rows if row.cost()[1] > 1]
    level = [row for row in rows if row.cost()[0] > 1 >= row.cost()[1]]
    lines = [
        _filled(f"**{row.what}** against {row.peer}: {row.ratio:.2f}. {why(row.what, row.peer)}", "- ")
        for row in lost
    ]
    lines += [
        _filled(f"{row.what} against {row.peer}: {row.ratio:.2f}, the pairs go both ways.", "- ")
        for row in level
    ]
    return "\n## Where we lose\n\n" + ("\n".join(lines) or "Nowhere.") + "\n"


def _runs(results: dict[str, Any]) -> str:
    """A line for each group: when it was measured, in how many seconds, and at which load."""
    runs = {name: GroupRun(**run) for name, run in results.get("runs", {}).items()}
    lines = ["| group | day | seconds | load | rows too wide |", "|---|---|---|---|---|"]
    for name, run in sorted(runs.items()):
        load = " to ".join(map(str, run.load))
        lines.append(f"| {name} | {run.date[:10]} | {run.seconds} | {load} | {len(run.wide)} |")
    total = sum(run.seconds for run in runs.values())
    lines.append(f"| together, if each ran alone | | {total:,} | | |")
    return "\n".join(lines)


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
