"""docs/benchmarks.md: the headline rows of docs/benchmarks.json, which holds the figures of the last run of each group."""

import json
import os
import platform
import textwrap
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarks.measure import GroupRun, Row, table
from onnxreg.converters.source.toolchain import instruction_set

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "benchmarks.json"
QUICK = ("startup", "resolve", "export", "remotes aws")
"""A group for each headline: how fast verbs start, resolve, export, push and pull."""

PAGE = """# Benchmarks

Ours and the peer's program run in turn, as pairs of whole processes on one machine. Figures are medians; the ratio is ours over the
peer's, with the least and the most of the pairs. Below 1 ours is faster or smaller; for rates (/s, MB/s) above 1 is better. These
are the headline rows, lost ones too. [benchmarks.json](benchmarks.json) has all rows and the days; `tests/registry/test_growth.py` holds
the growth of every step to linear.

{machine}

{rows}

## Where we lose

{losses}

## Run it

`make bench` installs the peers and measures all groups in about an hour; run nothing else meanwhile. `make bench-quick`
measures one group for each headline ({quick}) in about eight minutes; `make bench GROUPS="'remotes aws'"` measures one group. A comparison repeats its
pairs while their spread is above 15 % (30 % below a tenth of a second, or if the sides differ more than ten times).

Server and client share the machine, so the wall time of a push is mostly the server's. `aws s3 cp` and `dvc` neither hash what they pull nor
wait for the disk. The Hub is an emulator in Python. Compare ratios, not seconds.
"""
HEADLINES = (
    ("android export", "openmed", ""),
    ("android export, p*", "openmed", ""),
    ("the same android export once more", "*", ""),
    ("export of an encoder, fp32", "*", ""),
    ("export of a Whisper, fp32", "*", "Traces take as long as the peer's; then each graph is compared with the model, and the graphs generate together."),
    ("a search over eight candidates", "*", "It makes and times files, and judges those that are as fast."),
    ("*: the certified file", "*", ""),
    ("*latency*: the certified file, x86_64+*", "*", ""),
    ("the demo's tagger: latency of 32*'s file", "*", ""),
    ("the demo's tagger: largest loss: *'s file", "*", "The faster file loses many times the limit."),
    ("all-MiniLM-L6-v2: largest loss: *'s file", "*", "One scale for each tensor is too coarse."),
    ("reg ls acme/model", "hf cache ls", ""),
    ("reg resolve acme/model:stable", "hf download, cached", ""),
    ("list over 10,000 models, no index yet", "*", "The peer parses one line of each file; ours reads each file, checks each field and writes the catalog."),
    ("Registry.resolve, an index file of 20 kB", "*", "The peer parses the same bytes and asks nothing."),
    ("reg add of 517 MiB, first", "dvc add + sync", "Each byte is hashed twice, for its file and for its piece."),
    ("ingest of 1 GiB", "*", ""),
    ("verify of 4 GiB", "*", "Python with the modules that read manifests starts in 0.3 s; then both hash at the same speed."),
    ("push of 1 GiB, reg, seaweedfs", "aws s3 cp", ""),
    ("pull of 1 GiB, reg, seaweedfs", "aws s3 cp", ""),
    ("push of 517 MiB, reg, seaweedfs", "dvc", ""),
    ("pull of 517 MiB, reg, seaweedfs", "dvc*", ""),
    ("push of 300 small files, reg, seaweedfs", "*", "Half is the start of the modules; then eleven requests, one after another."),
    ("push of 517 MiB, reg, Hub emulator", "hf", "The registry's modules and requests beside those for the files."),
    ("push of 1 GiB, reg, Hub emulator", "hf, Xet", "Bytes are hashed as they leave the store, then by hf_xet."),
    ("pull of 517 MiB, reg, Hub emulator", "hf", ""),
    ("push of 263 MiB, reg publish", "skopeo", ""),
    ("update, fp32", "the whole file", ""),
    ("update, INT8 with INT8 embeddings", "the whole file", ""),
    ("making a delta, fp32", "*", "Most of the time is zlib, which looks for runs only."),
    ("applying a delta, fp32", "*", "Inflating; a line of 1 Gbit/s brings less than half of it."),
    ("proof of 126 million INT8 weights", "*", "Python's start, and the extremes of each channel."),
    ("Node: download and verify 100 MB", "*", "A quarter is the start of Node; bytes are synced as a part that can be resumed, and again as a verified piece."),
    ("Chromium: first tagged sentence, cold cache, 59 MB", "*", "IndexedDB; the peer keeps nothing and downloads again at the next visit."),
    ("40 exports of encoders, 4 Dask workers", "its processor*", "One worker imports torch once."),
    ("resolve a model's newest", "MLflow", ""),
    ("GET of a blob of 512 MiB, 1 client", "nginx", "Ours is Python; put nginx in front (`docs/serve.md`)."),
    ("GET of an index file, 2 workers", "nginx", "A request costs uvicorn 0.03 ms and the application as much; put nginx in front (`docs/serve.md`)."),
)  # fmt: skip
"""Patterns of a row's two names, and the reason if we lose it."""
BY_PROCESSOR = "certification"
"""The group whose last figures from each other class of processor are kept, as `elsewhere`: INT8 is as fast as its instructions."""


def load() -> dict[str, Any]:
    if RESULTS.exists():
        return dict(json.loads(RESULTS.read_text()))
    return {"machine": {}, "peers": {}, "groups": {}}


def save(name: str, items: list[dict[str, Any]], run: GroupRun, peers: dict[str, str]) -> None:
    """Put a group's figures and its run beside those of the others, and the versions of its peers beside theirs."""
    cores, python = os.cpu_count(), platform.python_version()
    results = load()
    about = asdict(run) | {"isa": instruction_set()}
    before = results.get("runs", {}).get(name, about).get("isa", about["isa"])
    if name == BY_PROCESSOR and before != about["isa"]:
        results.setdefault("elsewhere", {})[before] = results["groups"][name]
        results["elsewhere"].pop(about["isa"], None)
    results["groups"][name] = items
    results["runs"] = dict(sorted({**results.get("runs", {}), name: about}.items()))
    results["peers"] = dict(sorted({**results["peers"], **peers}.items()))
    results["machine"] = {
        "cores": cores,
        "architecture": platform.machine(),
        "python": python,
        "isa": about["isa"],
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def headlines(results: dict[str, Any]) -> list[tuple[Row, str]]:
    """The measured headline rows, each with the reason beside its pattern."""
    rows = [Row(**row) for group in results["groups"].values() for row in group]
    for isa, group in results.get("elsewhere", {}).items():
        rows += [
            replace(Row(**row), what=f"{row['what']}, {isa}") for row in group if "latency" in row["what"]
        ]
    return [
        (row, reason)
        for what, peer, reason in HEADLINES
        for row in rows
        if fnmatchcase(row.what, what) and fnmatchcase(row.peer, peer)
    ]


def write(results: dict[str, Any]) -> None:
    """Write the page."""
    shown = headlines(results)
    machine, peers = results["machine"], sorted(results["peers"].items())
    lost = [
        _filled(f"**{row.what}** ({row.peer}, {row.ratio:.2f}): {reason}", "- ")
        for row, reason in shown
        if row.cost()[1] > 1
    ]
    wide = [name for run in results.get("runs", {}).values() for name in run["wide"]]
    isa, runs = machine.get("isa"), results.get("runs", {})
    about = f"{machine['cores']} cores ({isa or machine['architecture']}), Python {machine['python']}"
    if others := [name for name, run in runs.items() if run.get("isa") != isa]:
        about += f"; on other machines: {', '.join(others)}"
    text = f"{about}. Peers: {', '.join(f'{name} {version}' for name, version in peers)}."
    if wide:
        text += f" Written although their spread is too wide: {'; '.join(wide)}."
    rows, losses = table([row for row, _ in shown]), "\n".join(lost) or "Nowhere."
    page = PAGE.format(machine=text, rows=rows, losses=losses, quick=", ".join(QUICK))
    parts = (part if part.startswith(("#", "|", "- ")) else _filled(part) for part in page.split("\n\n"))
    (DOCS / "benchmarks.md").write_text("\n\n".join(parts).strip() + "\n")


def _filled(paragraph: str, first: str = "") -> str:
    """A paragraph, or a list item that begins with `first`, in lines of 100 columns."""
    unbroken = {"break_long_words": False, "break_on_hyphens": False}
    indents = {"initial_indent": first, "subsequent_indent": " " * len(first)}
    return textwrap.fill(" ".join(paragraph.split()), 100, **indents, **unbroken)
