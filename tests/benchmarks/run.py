"""Run the benchmarks: ratios to docs/benchmarks.json, and from there to docs/benchmarks.md with its charts.

make bench [GROUP ...]

Without a group: all of them. `page` alone writes the page anew from the figures that are there.
"""

import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks import (
    adding,
    certification,
    deltas,
    durability,
    encoders,
    export,
    growth,
    hub,
    javascript,
    oci,
    peers,
    proving,
    remotes,
    report,
    resolving,
    scale,
    serving,
    startup,
    transfer,
    verify,
)
from benchmarks.measure import Row, table

CACHE = Path(__file__).parents[2] / ".cache"


def _export() -> list[Row]:
    checkpoint = CACHE / "pii" / "0.2.0"
    if not checkpoint.exists():
        raise SystemExit("the checkpoint is missing: run `make demo` first")
    return export.benchmark(checkpoint, CACHE)


def _certification() -> list[Row]:
    trained = CACHE / "pii"
    if not (trained / "confirm.jsonl").exists():
        raise SystemExit("the checkpoint is missing: run `make demo` first")
    return certification.benchmark(trained)


def _javascript() -> list[Row]:
    trained = CACHE / "pii"
    if not (trained / "0.2.0").exists():
        raise SystemExit("the checkpoint is missing: run `make demo` first")
    return javascript.benchmark(trained)


def _deltas() -> list[Row]:
    trained = CACHE / "pii"
    if not (trained / "0.2.0").exists():
        raise SystemExit("the checkpoints are missing: run `make demo` first")
    return deltas.benchmark(trained, CACHE)


BENCHMARKS: dict[str, Callable[[], list[Row]]] = {
    "startup": lambda: startup.benchmark(CACHE),
    "ingest": transfer.ingest,
    **{f"adding {peer}": partial(adding.benchmark, CACHE, peer) for peer in ("dvc", "mlflow")},
    "memory": transfer.memory,
    "durability": durability.benchmark,
    "verify": verify.benchmark,
    "prove": proving.benchmark,
    "scale": lambda: scale.benchmark(CACHE),
    "resolve": resolving.benchmark,
    "export": _export,
    "certification": _certification,
    "deltas": _deltas,
    "javascript": _javascript,
    "encoders": lambda: encoders.benchmark(CACHE),
    **{f"remotes {part}": partial(remotes.benchmark, CACHE, part) for part in remotes.PARTS},
    **{f"oci {part}": partial(oci.benchmark, CACHE, part) for part in ("oras", "skopeo", "publish")},
    "hub": lambda: hub.benchmark(CACHE),
    **{f"serving {part}": partial(serving.benchmark, CACHE, part) for part in ("mlflow", "nginx", "size")},
}

GROWTH = {f"growth {part}": curves for part, curves in growth.PARTS.items()}


def main(wanted: list[str]) -> None:
    CACHE.mkdir(exist_ok=True)
    for name in _chosen(wanted):
        print(f"{name} ...", file=sys.stderr, flush=True)
        if name in GROWTH:
            curves = GROWTH[name]()
            report.save("growth", name, [asdict(curve) for curve in curves], peers.versions(CACHE))
        else:
            found = BENCHMARKS[name]()
            print(table(found), flush=True)
            report.save("groups", name, [asdict(row) for row in found], peers.versions(CACHE))
    report.write(report.load())


def _chosen(wanted: list[str]) -> list[str]:
    """A group is wanted by its whole name or by the first word of it."""
    known = [*BENCHMARKS, *GROWTH]
    if wanted == ["page"]:
        return []
    return [name for name in known if not wanted or name in wanted or name.split()[0] in wanted]


if __name__ == "__main__":
    main(sys.argv[1:])
