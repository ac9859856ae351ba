"""Inferred shapes and values are those of ONNX Runtime, for random graphs and inputs of several sizes."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import sympy  # type: ignore[import-untyped]
from support.graphs import graph
from support.prove.edits import session

from onnxreg.converters.prove.read_formulas import read_formulas
from onnxreg.converters.prove.shapes import SLICE

SIZES = [(1, 1), (1, 5), (2, 3), (4, 2), (3, 7)]
VECTORS = (
    "Gather ({u}, {index})", "Slice ({u}, {start}, {end})", "Concat <axis = 0> ({u}, {v})", "Add ({u}, {one})",
    "Sub ({u}, {one})", "Mul ({u}, {one})", "Div ({u}, {one})", "Add ({u}, {u})", "Mul ({u}, {u})", "Shape ({t})",
    "Shape <start = 1> ({t})", "Shape <start = -2, end = -1> ({t})", "Concat <axis = 0> ({one}, {u})",
)  # fmt: skip
TENSORS = (
    "Transpose ({t})", "Relu ({t})", "Add ({t}, {t})", "Add ({t}, {r})", "Mul ({t}, {number})", "Unsqueeze ({t}, {axis})",
    "Squeeze ({t}, {axis})", "Reshape ({t}, {u})", "Expand ({t}, {u})", "Slice ({t}, {start}, {end}, {axis})",
    "Slice ({t}, {axis}, {at}, {axis})", "ReduceMax <keepdims = 0> ({t}, {axis})", "ReduceSum ({t}, {axis})",
    "Concat <axis = -1> ({t}, {t})", "Concat <axis = 0> ({t}, {r})", "MatMul ({t}, {r})", "Gather <axis = 0> ({t}, {index})",
    "Tile ({t}, {u})", "Flatten ({t})", "Reshape ({t}, {rest})", "Reshape ({t}, {copies})", "ConstantOfShape ({u})",
    "com.microsoft.FusedMatMul <transB = 1> ({t}, {r})",
)  # fmt: skip
NUMBERS = {
    "one": [[1], [2], [3]],
    "number": [1, 2],
    "index": [[0], [1], [-1], [1, 0]],
    "start": [[0], [1], [-2]],
    "end": [[1], [2], [-1], [2**31]],
    "axis": [[0], [1], [-1]],
    "rest": [[-1], [-1, 3], [4, -1]],
    "copies": [[0, -1], [0, 0, -1], [-1, 0, 4]],
}


def random_graph(draw: np.random.Generator, steps: int) -> Any:
    """A graph whose outputs are all of its vectors, and the shapes of all of its tensors."""
    vectors, tensors, lines = ["s"], ["x", "z"], ["s = Shape (x)"]
    stored: dict[str, Any] = {}
    for step in range(steps):
        is_vector = draw.random() < 0.5
        kinds = VECTORS if is_vector else TENSORS
        names = {key: f"{key}{draw.integers(len(items))}" for key, items in NUMBERS.items()}
        names |= {key: str(draw.choice(vectors)) for key in ("u", "v")}
        names |= {key: str(draw.choice(tensors)) for key in ("t", "r")}
        unit = draw.choice(vectors)
        lines.append(f"at{step} = Slice ({unit}, start0, one0)")
        name = f"{'v' if is_vector else 't'}{step}"
        lines.append(f"{name} = {kinds[draw.integers(len(kinds))].format(**names, at=f'at{step}')}")
        (vectors if is_vector else tensors).append(name)
    lines += [f"shape_{name} = Shape ({name})" for name in tensors[2:]]
    outputs = vectors + [f"shape_{name}" for name in tensors[2:]]
    for key, items in NUMBERS.items():
        kind = np.float32 if key == "number" else np.int64
        stored |= {f"{key}{at}": np.array(item, kind) for at, item in enumerate(items)}
    ends = ", ".join(f"int64[k{at}] {name}" for at, name in enumerate(outputs))
    body, inputs = " ".join(lines), "float[n, m, 12] x, float[n, m] z"
    return graph(body, inputs, ends, ir=9, **stored)


@contextmanager
def limited_memory() -> Iterator[None]:
    """Inside, the process may take 2 GiB more than it has: a product of sizes may be a tensor of many gigabytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**31, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def run(running: Any, feed: Any) -> Any:
    """The outputs; none if ONNX Runtime refuses the sizes of the inputs, or has no memory for them."""
    try:
        with limited_memory():
            return running.run(None, feed)
    except Exception:  # noqa: BLE001  onnxruntime raises a class for each of its statuses
        return []


def at(size: Any, n: int, m: int) -> int:
    """A size for inputs of a given size."""
    value = sympy.sympify(size).subs(
        {one: {'"n"': n, '"m"': m}[one.name] for one in sympy.sympify(size).free_symbols}
    )
    cut = lambda size, start, end: len(range(*slice(int(start), int(end)).indices(int(size))))
    return int(value.replace(SLICE, cut))


def check(seed: int, scratch: Path) -> int:
    """The number of sizes that were inferred, and compared."""
    draw = np.random.default_rng(seed)
    model = random_graph(draw, int(draw.integers(3, 10)))
    onnx.save(model, scratch)
    graph = read_formulas(scratch)
    shapes, compared = graph.rewriter.shapes, 0
    results = zip(graph.outputs, graph.formulas, strict=True)
    values = {spec.name: shapes.value(formula) for spec, formula in results}
    running = session(model)
    for n, m in SIZES if running else ():
        feed = {"x": np.ones((n, m, 12), np.float32), "z": np.ones((n, m), np.float32)}
        for (name, value), result in zip(values.items(), run(running, feed), strict=False):
            if value is None or not result.all():
                continue
            for size, actual in zip(value.reshape(-1).tolist(), result.reshape(-1).tolist(), strict=True):
                if "?" not in str(size):
                    assert at(size, n, m) == actual, (seed, name, str(size), n, m)
                    compared += 1
    return compared


def test_sizes_are_those_of_a_run(tmp_path):
    assert sum(check(seed, tmp_path / "model.onnx") for seed in range(150)) > 500


@pytest.mark.more
def test_sizes_of_many_graphs_are_those_of_a_run(tmp_path):
    assert sum(check(seed, tmp_path / "model.onnx") for seed in range(150, 5000)) > 10_000
