"""The proof of 126 million INT8 weights against one bare pass of numpy over the same bytes."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from benchmarks.measure import Row, pairs, rows, run

SIZE = 2048
LAYERS = 30
"""Matrices of 2048 x 2048: 480 MiB in float32."""

PROVE = """
import sys
from pathlib import Path
from onnxreg.converters.prove.prove import prove
from onnxreg.schema.core.canonical import Digest
parent, child = (Path(sys.argv[1]) / f"{name}.onnx" for name in ("parent", "child"))
report = prove(parent, child, (Digest.of(b"parent"), Digest.of(b"child")))
assert (report.verdict, report.quantized) == ("proven", int(sys.argv[2]))
"""
BARE = """
import sys
import numpy as np
layers, size = int(sys.argv[3]), int(sys.argv[4])
weights = np.memmap(sys.argv[1] + "/parent.bin", "<f4", "r", shape=(layers, size, size))
codes = np.memmap(sys.argv[1] + "/codes.bin", "i1", "r", shape=(layers, size, size))
scales = np.load(sys.argv[1] + "/scales.npy")
for weight, code, scale in zip(weights, codes, scales):
    for start in range(0, size, 64):
        rows = weight[start : start + 64].astype(np.float64) / scale
        assert np.abs(rows - code[start : start + 64]).max() < 0.50001
"""


@contextmanager
def filled(layers: int) -> Iterator[Path]:
    """A chain of products, and the same with MatMulInteger, with their weights in files beside them."""
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        root = Path(directory)
        parent, child, steps = ([], []), ([], []), []
        with (root / "codes.bin").open("wb") as plain:
            for at in range(layers):
                weight = draw.standard_normal((SIZE, SIZE), dtype=np.float32)
                scale = (2 * np.abs(weight).max(axis=0).astype(np.float64) / 254).astype(np.float32)
                codes = np.clip(np.rint(weight / scale), -128, 127).astype(np.int8)
                plain.write(codes.tobytes())
                steps.append(scale)
                _layer(parent, child, at, {"w": weight, "q": codes, "s": scale})
        np.save(root / "scales.npy", np.array(steps))
        for name, (nodes, tensors) in (("parent", parent), ("child", child)):
            _save(root, name, nodes, tensors, layers)
        yield root


def _layer(
    parent: tuple[list, list], child: tuple[list, list], at: int, arrays: dict[str, np.ndarray]
) -> None:
    node = onnx.helper.make_node
    stored = {key: onnx.numpy_helper.from_array(array, f"{key}{at}") for key, array in arrays.items()}
    parent[0].append(node("MatMul", [f"h{at}", f"w{at}"], [f"h{at + 1}"]))
    parent[1].append(stored["w"])
    child[0].extend(
        [
            node("DynamicQuantizeLinear", [f"h{at}"], [f"a{at}", f"b{at}", f"c{at}"]),
            node("MatMulInteger", [f"a{at}", f"q{at}", f"c{at}"], [f"d{at}"]),
            node("Cast", [f"d{at}"], [f"e{at}"], to=1),
            node("Mul", [f"b{at}", f"s{at}"], [f"f{at}"]),
            node("Mul", [f"e{at}", f"f{at}"], [f"h{at + 1}"]),
        ]
    )
    child[1].extend([stored["q"], stored["s"]])


def _save(root: Path, name: str, nodes: list, tensors: list, layers: int) -> None:
    ends = [onnx.helper.make_tensor_value_info(end, 1, ["n", SIZE]) for end in ("h0", f"h{layers}")]
    graph = onnx.helper.make_graph(nodes, name, ends[:1], ends[1:], tensors)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    stored = {"save_as_external_data": True, "location": f"{name}.bin", "size_threshold": 0}
    onnx.save(model, root / f"{name}.onnx", **stored)


def benchmark(count: int = 5) -> list[Row]:
    """Whole processes, both with the files in the page cache."""
    with filled(LAYERS) as root:
        weights = str(LAYERS * SIZE * SIZE)
        ours = [sys.executable, "-c", PROVE, root, weights]
        bare = [sys.executable, "-c", BARE, root, weights, str(LAYERS), str(SIZE)]
        measured = pairs(partial(run, ours), partial(run, bare), count)
        return rows("proof of 126 million INT8 weights", "numpy, one pass", measured)
