"""Run the benchmarks: ratios to a table on the terminal, to JSON and to docs/benchmarks.md.

python tests/benchmarks/run.py [startup] [ingest] [memory] [durability] [verify] [scale] [resolve] [export] [encoders] [remotes] [serving]
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import durability
import encoders
import export
import remotes
import resolving
import scale
import serving
import startup
import transfer
import verify
from measure import Row, table

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache"
HEADING = """# Benchmarks

Made by `make bench` on one machine in one run. Whole processes in pairs, ours and the peer's in turn; figures are medians,
the ratio is ours over the peer's (below 1: ours is faster or smaller). Losing rows stand here like the others.

Start-up is that of an installed wheel; `reg show` reads a manifest with pydantic, behind typer, and has no aim. The
export makes the same kinds of file as OpenMed's converter, and measures the parity of each besides; a third of its
time is the import of torch and transformers, which both sides pay.

A remote's server shares the machine with its client, so that the wall time of a push or pull is largely the server's;
the processor time is the client's own. `aws s3 cp` neither hashes what it pulls nor waits until it is on the disk, and
a pull of ours does both: the row with `sync` is the fair one. The emulator of the Hub is ours, in Python.

Of rates (/s, MB/s) the ratio is better above 1. `reg serve` is one process, MLflow's registry has its four workers and SQLite,
nginx one worker; all have the same 200 models of 5 versions, and 64 clients (wrk, on the same cores).

"""


def _export() -> list[Row]:
    checkpoint = CACHE / "pii" / "0.2.0"
    if not checkpoint.exists():
        raise SystemExit("the checkpoint is missing: run `make demo` first")
    return export.benchmark(checkpoint, CACHE)


BENCHMARKS: dict[str, Callable[[], list[Row]]] = {
    "startup": lambda: startup.benchmark(CACHE),
    "ingest": transfer.ingest,
    "memory": transfer.memory,
    "durability": durability.benchmark,
    "verify": verify.benchmark,
    "scale": lambda: scale.benchmark(CACHE),
    "resolve": resolving.benchmark,
    "export": _export,
    "encoders": lambda: encoders.benchmark(CACHE),
    "remotes": lambda: remotes.benchmark(CACHE),
    "serving": lambda: serving.benchmark(CACHE),
}


def main(wanted: list[str]) -> None:
    CACHE.mkdir(exist_ok=True)
    results = CACHE / "benchmarks.json"
    known = json.loads(results.read_text()) if results.exists() else {}
    for name in wanted or BENCHMARKS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        known[name] = [row.to_json() for row in BENCHMARKS[name]()]
        results.write_text(json.dumps(known, indent=2) + "\n")
    text = table([Row(**row) for name in BENCHMARKS for row in known.get(name, [])])
    print(text)
    (ROOT / "docs" / "benchmarks.md").write_text(HEADING + text + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
