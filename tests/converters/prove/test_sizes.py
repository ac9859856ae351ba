"""Sizes that one graph computes and the other stores, or computes otherwise, are compared for all sizes of inputs."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import sympy  # type: ignore[import-untyped]
from onnxruntime.quantization import quantize_dynamic
from onnxruntime.quantization.shape_inference import quant_pre_process
from support.graphs import graph, write_optimized
from support.processor import no_quadratic_time
from support.prove.children import feeds, verdict_of
from support.prove.edits import change_sizes, outputs, session
from support.prove.graphs import build, verdict
from support.tasks.architectures import TEXT, save_text_model

from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.prove.read_formulas import read_formulas
from onnxreg.converters.prove.shapes import SLICE
from onnxreg.converters.runtime.sessions import quiet
from onnxreg.converters.tasks.task_catalog import task_recipe

HEAD = "float[n, m, 12] x, float[n, m, 12] z => float y"
COMPUTED = """
  s = Shape (x) b = Gather (s, i0) l = Gather (s, i1) ub = Unsqueeze (b, i0v) ul = Unsqueeze (l, i0v)
  sizes = Concat <axis = 0> (ub, ul, three, four) h = Reshape (x, sizes) r = Relu (h) y = ReduceMax <keepdims = 0> (r)
"""
BEFORE = {
    "f = Slice (s, i0v, twoi) q = Concat <axis = 0> (f, three, four)": True,
    "k = Shape <end = 2> (x) q = Concat <axis = 0> (k, three, four)": True,
    "k = Shape <end = 2> (z) q = Concat <axis = 0> (k, three, four)": True,
    "k = Shape <end = 2> (x) t = Mul (k, twoi) u = Div (t, twoi) q = Concat <axis = 0> (u, three, four)": True,
    "k = Shape <end = 2> (x) t = Add (k, twoi) u = Sub (t, twoi) q = Concat <axis = 0> (u, three, four)": True,
    "k = Shape <end = 2> (x) q = Concat <axis = 0> (k, four, three)": False,
    "k = Shape <start = 1> (x) q = Concat <axis = 0> (k, three, four)": False,
    "k = Shape <end = 2> (x) u = Div (k, twoi) q = Concat <axis = 0> (u, three, four)": False,
    "k = Shape <end = 2> (x) t = Mul (k, k) q = Concat <axis = 0> (t, three, four)": False,
    "k = Shape <end = 2> (x) e = Equal (k, onei) t = Where (e, twoi, k) q = Concat <axis = 0> (t, three, four)": False,
    "b = Gather (s, i0v) l = Gather (s, i1) g = Range (i0, l, i1) n = Shape (g) q = Concat <axis = 0> (b, n, three, four)": True,
    "b = Gather (s, i0v) l = Gather (s, i1) g = Range (i1, l, i1) n = Shape (g) q = Concat <axis = 0> (b, n, three, four)": False,
    "b = Gather (s, i0v) l = Gather (s, i1) t = Add (i1, i1) g = Range (i0, l, t) n = Shape (g) q = Concat <axis = 0> (b, n, three, four)": False,
}
"""Ways to compute the sizes q, and whether they are those of COMPUTED."""


def reshape(before: str = "", head: str = HEAD, sizes: list[int] | None = None) -> Any:
    body = f"s = Shape (x) {before} h = Reshape (x, q) r = Relu (h) y = ReduceMax <keepdims = 0> (r)"
    return build(body, head, **({} if sizes is None else {"q": np.array(sizes)}))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([0, 0, 3, 4], True), ([0, -1, 3, 4], True), ([-1, 0, 3, 4], True), ([0, 0, 3, -1], True), ([0, 0, -1, 4], True),
        ([0, 0, 4, 3], False), ([0, 0, 2, 6], False), ([0, 0, 12], False), ([1, -1, 3, 4], False), ([-1, 1, 3, 4], False),
        ([0, 5, 3, 4], False), ([0, -1, 6, 2], False), ([0, 0, 3, 4, 1], False), *BEFORE.items(),
    ],
)  # fmt: skip
def test_sizes_that_the_parent_computes(tmp_path, sizes, expected):
    """Stored ones, and others that are computed."""
    child = reshape(sizes) if isinstance(sizes, str) else reshape(sizes=sizes)
    assert (verdict(tmp_path, build(COMPUTED, HEAD), child)[0] == "proven") == expected


def test_a_size_counts_by_its_name_and_as_the_parent_states_it(tmp_path):
    other = HEAD.replace("float[n, m, 12] z", "float[k, l, 12] z")
    child = reshape("k = Shape <end = 2> (z) q = Concat <axis = 0> (k, three, four)", other)
    assert verdict(tmp_path, build(COMPUTED, other), child)[0] == "not-provable"
    child = reshape(head=HEAD.replace("n, m", "2, 5"), sizes=[2, 5, 3, 4])
    assert verdict(tmp_path, build(COMPUTED, HEAD), child)[0] == "not-provable"
    head = "float x => float y"
    parent, child = build(COMPUTED, head), reshape(head=head, sizes=[0, 0, 3, 4])
    for model in (parent, child):
        model.graph.input[0].type.tensor_type.ClearField("shape")
    assert verdict(tmp_path, parent, child)[0] == "not-provable"


def test_values_that_grow_without_end_cost_no_more(tmp_path):
    steps = [f"v{at} = Mul (v{at - 1}, v{at - 1})" for at in range(1, 60)]
    steps += [f"w{at} = Div (w{at - 1}, v1)" for at in range(1, 60)]
    before = " ".join(["v0 = Shape (x) w0 = Identity (v0)", *steps, "q = Add (v59, w59)"])
    model = reshape(before)
    assert verdict(tmp_path, model, model)[0] == "proven"
    assert verdict(tmp_path, model, reshape(before.replace("(v59", "(v58")))[0] == "not-provable"


def test_operands_have_one_order_however_their_sizes_are_computed(tmp_path):
    steps = "".join(f" r{at} = Relu (h{at}) h{at + 1} = Add (r{at}, f)" for at in range(8))
    body = f"s = Shape ({{}}) l = Gather (s, i1) f = Cast <to = 1> (l) h0 = Identity (x){steps}"
    models = (build(f"{body.format(name)} y = ReduceMax <keepdims = 0> (h8)", HEAD) for name in "xz")
    assert verdict(tmp_path, *models)[0] == "proven"


@pytest.mark.parametrize(("steps", "expected"), [(200, "proven"), (300, "not-provable")])
def test_the_elements_of_all_computed_values_are_bounded(tmp_path, steps, expected):
    head, size = "float[k] x => float[k] y", 2**16
    body = "v0 = ConstantOfShape (size)" + "".join(f" v{at + 1} = Add (v{at}, v{at})" for at in range(steps))
    parent = build(f"{body} y = Add (x, v{steps})", head, size=np.array([size]))
    child = build("y = Add (x, v)", head, v=np.zeros(size, np.float32))
    assert verdict(tmp_path, parent, child)[0] == expected


def test_the_smallest_of_many_sizes_costs_no_more(tmp_path):
    names, body = range(1, 50), "x0 = Identity (x)"
    for at in names:
        body += f" s{at} = Shape (z{at}) a{at} = Slice (s{at}, i0v, onei) b{at} = Slice (s{at}, onei, twoi)"
        body += f" e{at} = Add (a{at}, b{at}) x{at} = Slice (x{at - 1}, i0v, e{at}, i0v)"
    inputs = ", ".join(f"float[n{at}, m{at}] z{at}" for at in names)
    model = build(f"{body} y = Shape (x49)", f"float[n] x, {inputs} => int64[1] y")
    with no_quadratic_time():
        assert verdict(tmp_path, model, model)[0] == "proven"


def test_other_sizes_of_a_reshape_are_proven_only_if_they_are_the_same(family, tmp_path):
    """ONNX Runtime says if the outputs change, for batches of several sizes."""
    draw, inputs = np.random.default_rng(0), list(feeds(2))
    inputs += [{name: value[:1, :5] for name, value in inputs[0].items()}]
    before, proven = outputs(onnx.load(family["sizes stored"]), inputs), 0
    assert before is not None
    for _ in range(30):
        model = onnx.load(family["sizes stored"])
        edit = change_sizes(model, draw)
        onnx.save(model, tmp_path / "edited.onnx")
        if verdict_of(family[""], tmp_path / "edited.onnx").verdict == "proven":
            after = outputs(model, inputs)
            assert after is not None, edit
            assert all(map(np.array_equal, before, after)), edit
            proven += 1
    assert proven > 2


SCALED = "float[b, h, n, 8] q, float[b, h, 8, n] k => float[b, h, n, n] y"


@pytest.mark.parametrize(
    "body",
    [
        "s = Mul (q, r) t = Mul (k, r) y = MatMul (s, t)",
        "s = MatMul (q, k) y = Div (s, r)",
        "s = MatMul (q, k) y = Mul (s, r)",
        "s = Div (q, r) y = MatMul (s, k)",
        "s = Mul (r, q) t = MatMul (s, k) y = Mul (t, r)",
    ],
)
def test_factors_that_optimizers_join_are_those_of_the_parent(tmp_path, body):
    parent = build(body, SCALED, r=0.5946)
    onnx.save(parent, tmp_path / "p.onnx")
    write_optimized(tmp_path / "p.onnx", "EXTENDED", tmp_path / "c.onnx")
    child = onnx.load(tmp_path / "c.onnx")
    (node,) = child.graph.node
    assert node.op_type == "FusedMatMul" and verdict(tmp_path, parent, child)[0] == "proven"
    (alpha,) = (item for item in node.attribute if item.name == "alpha")
    alpha.f *= 1.0001
    assert verdict(tmp_path, parent, child)[0] == "not-provable"


@pytest.mark.more
@pytest.mark.parametrize(
    "name",
    ["BERT", *(pytest.param(name, marks=pytest.mark.large) for name in ("RoBERTa", "DeBERTa", "ModernBERT"))],
)
def test_what_optimizers_make_of_an_export_is_proven(name, tmp_path):
    architecture = next(one for one in TEXT if one.name == name)
    save_text_model(architecture, "ForTokenClassification", tmp_path / "model")
    (tmp_path / "work").mkdir()
    plan = plan_export(task_recipe("token-classification"), str(tmp_path / "model"), "acme/x")
    draft = execute(plan, tmp_path / "work")
    parent, children = draft.root / "model.onnx", []
    for level in ("BASIC", "EXTENDED"):
        for form in ("onnx", "ort"):
            children.append(write_optimized(parent, level, tmp_path / f"{level}.{form}"))
    with quiet():
        for symbolic in (False, True):
            first, child = (tmp_path / f"{step}{symbolic}.onnx" for step in ("first", "child"))
            quant_pre_process(parent, first, skip_symbolic_shape=not symbolic, auto_merge=True)
            quantize_dynamic(first, child)
            children.append(child)
    for child in children:
        report = verdict_of(parent, child)
        assert (report.verdict, report.reasons) == ("proven", ()), child.name


@pytest.mark.more
def test_many_long_sizes_cost_no_more(tmp_path):
    """A budget for all of them: beyond it a size is unknown."""
    names = range(40)
    body = "".join(f" s{at} = Shape (z{at})" for at in names) + " t0 = Add (s0, s1)"
    body += "".join(f" t{at} = Add (t{at - 1}, s{at + 1})" for at in range(1, 39))
    body += " u0 = Identity (t38)" + "".join(f" u{at} = Add (u{at - 1}, onei)" for at in range(1, 10_000))
    inputs = ", ".join(f"float[n{at}] z{at}" for at in names)
    model = build(f"{body} y = Add (u9999, onei)", f"{inputs} => int64[1] y")
    with no_quadratic_time():
        assert verdict(tmp_path, model, model)[0] == "proven"


# Inferred shapes and values are those of ONNX Runtime, for random graphs and inputs of several sizes

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


@pytest.mark.parametrize(
    ("seeds", "least"),
    [
        (range(60), 200),
        pytest.param(range(60, 300), 500, marks=pytest.mark.more),
        pytest.param(range(300, 1000), 1_400, marks=pytest.mark.large),
    ],
    ids=["some", "many", "most"],
)
def test_sizes_are_those_of_a_run(seeds, least, tmp_path):
    assert sum(check(seed, tmp_path / "model.onnx") for seed in seeds) > least
