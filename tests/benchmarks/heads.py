"""320 heads as separate files against one fused graph: the table in docs/families.md.

python tests/benchmarks/heads.py

Each design is loaded and run in a process of its own, five times in turn; figures are medians. Heads are linear, 768 to 5 to 12.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HEADS, WIDTH, ROWS, ROUNDS = 320, 768, 64, 5
DESIGNS = {
    "320 files, float32, default options": ("separate-fp32", 0),
    "320 files, float32, one thread each": ("separate-fp32", 1),
    "320 files, int8, one thread each": ("separate-int8", 1),
    "fused, float32": ("fused-fp32", 1),
    "fused, int8": ("fused-int8", 1),
}


def build(root: Path) -> float:
    """Write every design; the seconds that the 320 heads took in float32, float16 and int8, checked and measured."""
    from onnxreg.converters.families.build_members import make_head
    from onnxreg.converters.families.head_checkpoints import HeadCheckpoint, Layer
    from onnxreg.converters.families.head_graphs import fused_graph
    from onnxreg.converters.passes.tools import model_file
    from onnxreg.schema.inputs.family_file import FamilyFile

    draw = np.random.default_rng(0)
    heads = {}
    for number in range(HEADS):
        classes = tuple(f"c{index}" for index in range(5 + number % 8))
        weight = (WIDTH**-0.5 * draw.normal(size=(len(classes), WIDTH))).astype(np.float32)
        layer = Layer(weight, np.zeros(len(classes), np.float32))
        heads[f"{number:03}"] = HeadCheckpoint(f"head:{number:03}", (layer,), classes, (1,) * len(classes))
    asked = FamilyFile.from_json(
        {"family": 1, "name": "a/b", "backbone": {"checkpoint": "-"}, "heads": {"folder": "-"}}
    )
    embeddings = draw.normal(size=(ROWS, WIDTH)).astype(np.float32)
    begin = time.perf_counter()
    feeds = [{"embedding": embeddings}]
    made = [file for name, head in heads.items() for file in make_head(asked, name, head, root, feeds)]
    took = time.perf_counter() - begin
    for design, precision in (("separate-fp32", "float32"), ("separate-int8", "int8")):
        (root / design).mkdir()
        for each in made:
            if each.precision == precision:
                (root / each.path).rename(root / design / f"{each.member[5:]}.onnx")
    for design, quantized in (("fused-fp32", False), ("fused-int8", True)):
        (root / design).mkdir()
        model_file.save(
            fused_graph(list(heads.values()), "Relu", 18, quantized=quantized), root / design / "all.onnx"
        )
    return took


def resident() -> float:
    """MB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def tasks() -> int:
    """Threads of this process."""
    return len(list(Path("/proc/self/task").iterdir()))


def measure(folder: Path, threads: int) -> dict[str, float]:
    """Load a design and answer one row, then 64 rows of 64 heads."""
    import onnxruntime as ort

    def load(path: Path) -> Any:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    paths = sorted(folder.glob("*.onnx"))
    load(paths[0])
    before, running, begin = resident(), tasks(), time.perf_counter()
    sessions = [load(path) for path in paths]
    loaded = time.perf_counter() - begin
    grown, started = resident() - before, tasks() - running
    rows = np.random.default_rng(1).normal(size=(ROWS, WIDTH)).astype(np.float32)
    index = np.random.default_rng(2).integers(0, HEADS, ROWS)

    def one() -> None:
        answer(sessions, rows[:1], index[:1])

    def many() -> None:
        answer(sessions, rows, index)

    return {
        "MB": sum(path.stat().st_size for path in paths) / 1e6,
        "load s": loaded,
        "RSS MB": grown,
        "threads": started,
        "1 row us": 1e6 * best(one),
        "64 rows us": 1e6 * best(many),
    }


def answer(sessions: list[Any], rows: Any, index: Any) -> None:
    if len(sessions) == 1:
        sessions[0].run(None, {"embedding": rows, "head": index})
        return
    for row, head in enumerate(index):
        sessions[head].run(None, {"embedding": rows[row : row + 1]})


def best(work: Callable[[], None], count: int = 200) -> float:
    """The median seconds of a call."""
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        took = build(Path(directory))
        found: dict[str, list[dict[str, float]]] = {name: [] for name in DESIGNS}
        for _ in range(ROUNDS):
            for name, (folder, threads) in DESIGNS.items():
                command = [sys.executable, __file__, str(Path(directory) / folder), str(threads)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                found[name].append(json.loads(done.stdout))
    print(f"{HEADS} heads in three precisions, each checked and measured: {took:.1f} s\n")
    keys = list(next(iter(found.values()))[0])
    print(f"| design | {' | '.join(keys)} |\n|{'---|' * (len(keys) + 1)}")
    for name, runs in found.items():
        cells = [f"{statistics.median(run[key] for run in runs):.3g}" for key in keys]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(Path(sys.argv[1]), int(sys.argv[2]))))
    else:
        main()
