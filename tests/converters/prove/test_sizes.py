"""Sizes that one graph computes and the other stores, or computes otherwise, are compared for all sizes of inputs."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import quantize_dynamic
from onnxruntime.quantization.shape_inference import quant_pre_process
from support.processor import no_quadratic_time
from support.prove.children import feeds, verdict_of
from support.prove.edits import change_sizes, outputs
from support.tasks.architectures import TEXT, save_text_model

from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.onnx.quiet import quiet
from onnxreg.converters.profiles.profile_catalog import task_recipe

HEAD = "(float[n, m, 12] x, float[n, m, 12] z) => (float y)"
COMPUTED = """
  s = Shape (x) b = Gather (s, i0) l = Gather (s, i1) ub = Unsqueeze (b, i0v) ul = Unsqueeze (l, i0v)
  sizes = Concat <axis = 0> (ub, ul, three, four) h = Reshape (x, sizes) r = Relu (h) y = ReduceMax <keepdims = 0> (r)
"""
NUMBERS = {"i0": 0, "i1": 1, "i0v": [0], "one": [1], "two": [2], "three": [3], "four": [4], "rest": [-1]}


def build(body: str, *sizes: int, head: str = HEAD) -> Any:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> g {head} {{ {body} }}')
    arrays = {**NUMBERS, "stored": list(sizes)}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.array(array, np.int64), name) for name, array in arrays.items()
    )
    return model


def verdict(tmp_path: Path, parent: Any, child: Any) -> str:
    for name, model in (("parent", parent), ("child", child)):
        onnx.save(model, tmp_path / f"{name}.onnx")
    return verdict_of(tmp_path / "parent.onnx", tmp_path / "child.onnx").verdict


def reshape(sizes: str, before: str = "") -> str:
    return f"{before} h = Reshape (x, {sizes}) r = Relu (h) y = ReduceMax <keepdims = 0> (r)"


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((0, 0, 3, 4), True), ((0, -1, 3, 4), True), ((-1, 0, 3, 4), True), ((0, 0, 3, -1), True), ((0, 0, -1, 4), True),
        ((0, 0, 4, 3), False), ((0, 0, 2, 6), False), ((0, 0, 12), False), ((1, -1, 3, 4), False), ((-1, 1, 3, 4), False),
        ((0, 5, 3, 4), False), ((0, -1, 6, 2), False), ((0, 0, 3, 4, 1), False),
    ],
)  # fmt: skip
def test_stored_sizes_are_those_that_the_parent_computes(
    tmp_path: Path, sizes: tuple[int, ...], expected: bool
) -> None:
    child = build(reshape("stored"), *sizes)
    assert (verdict(tmp_path, build(COMPUTED), child) == "proven") == expected


@pytest.mark.parametrize(
    ("before", "sizes", "expected"),
    [
        ("s = Shape (x) f = Slice (s, i0v, two) q = Concat <axis = 0> (f, three, four)", "q", True),
        ("s = Shape <end = 2> (x) q = Concat <axis = 0> (s, three, four)", "q", True),
        ("s = Shape <end = 2> (z) q = Concat <axis = 0> (s, three, four)", "q", True),
        ("s = Shape <end = 2> (x) t = Mul (s, two) u = Div (t, two) q = Concat <axis = 0> (u, three, four)", "q", True),
        ("s = Shape <end = 2> (x) t = Add (s, two) u = Sub (t, two) q = Concat <axis = 0> (u, three, four)", "q", True),
        ("s = Shape <end = 2> (x) q = Concat <axis = 0> (s, four, three)", "q", False),
        ("s = Shape <start = 1> (x) q = Concat <axis = 0> (s, three, four)", "q", False),
        ("s = Shape <end = 2> (x) u = Div (s, two) q = Concat <axis = 0> (u, three, four)", "q", False),
        ("s = Shape <end = 2> (x) t = Mul (s, s) q = Concat <axis = 0> (t, three, four)", "q", False),
        ("s = Shape <end = 2> (x) e = Equal (s, one) t = Where (e, two, s) q = Concat <axis = 0> (t, three, four)", "q", False),
    ],
)  # fmt: skip
def test_sizes_are_computed_in_another_way(tmp_path: Path, before: str, sizes: str, expected: bool) -> None:
    child = build(reshape(sizes, before))
    assert (verdict(tmp_path, build(COMPUTED), child) == "proven") == expected


def test_a_size_of_another_name_is_another_size(tmp_path: Path) -> None:
    head = HEAD.replace("float[n, m, 12] z", "float[k, l, 12] z")
    other = "s = Shape <end = 2> (z) q = Concat <axis = 0> (s, three, four)"
    parent, child = build(COMPUTED, head=head), build(reshape("q", other), head=head)
    assert verdict(tmp_path, parent, child) == "not-provable"


def test_a_size_that_the_child_alone_states_is_not_taken_for_true(tmp_path: Path) -> None:
    child = build(reshape("stored"), 2, 5, 3, 4, head=HEAD.replace("n, m", "2, 5"))
    assert verdict(tmp_path, build(COMPUTED), child) == "not-provable"


def test_an_input_of_no_stated_rank_has_no_sizes(tmp_path: Path) -> None:
    head = "(float x) => (float y)"
    parent, child = (build(COMPUTED, head=head), build(reshape("stored"), 0, 0, 3, 4, head=head))
    for model in (parent, child):
        model.graph.input[0].type.tensor_type.ClearField("shape")
    assert verdict(tmp_path, parent, child) == "not-provable"


def test_values_that_grow_without_end_cost_no_more(tmp_path: Path) -> None:
    steps = [f"v{at} = Mul (v{at - 1}, v{at - 1})" for at in range(1, 60)]
    steps += [f"w{at} = Div (w{at - 1}, v1)" for at in range(1, 60)]
    before = " ".join(["v0 = Shape (x) w0 = Identity (v0)", *steps, "q = Add (v59, w59)"])
    model = build(reshape("q", before))
    assert verdict(tmp_path, model, model) == "proven"
    assert verdict(tmp_path, model, build(reshape("q", before.replace("(v59", "(v58")))) == "not-provable"


def test_the_smallest_of_many_sizes_costs_no_more(tmp_path: Path) -> None:
    names, body = range(1, 50), "x0 = Identity (x)"
    for at in names:
        body += f" s{at} = Shape (z{at}) a{at} = Slice (s{at}, i0v, one) b{at} = Slice (s{at}, one, two)"
        body += f" e{at} = Add (a{at}, b{at}) x{at} = Slice (x{at - 1}, i0v, e{at}, i0v)"
    inputs = ", ".join(f"float[n{at}, m{at}] z{at}" for at in names)
    model = build(f"{body} y = Shape (x49)", head=f"(float[n] x, {inputs}) => (int64[1] y)")
    with no_quadratic_time():
        assert verdict(tmp_path, model, model) == "proven"


def test_other_sizes_of_a_reshape_are_proven_only_if_they_are_the_same(
    family: dict[str, Path], tmp_path: Path
) -> None:
    """ONNX Runtime says if the outputs change, for batches of several sizes."""
    draw, inputs = np.random.default_rng(0), list(feeds(2))
    inputs += [{name: value[:1, :5] for name, value in inputs[0].items()}]
    before, proven = outputs(onnx.load(family["sizes stored"]), inputs), 0
    assert before is not None
    for _ in range(60):
        model = onnx.load(family["sizes stored"])
        edit = change_sizes(model, draw)
        onnx.save(model, tmp_path / "edited.onnx")
        if verdict_of(family[""], tmp_path / "edited.onnx").verdict == "proven":
            after = outputs(model, inputs)
            assert after is not None, edit
            assert all(map(np.array_equal, before, after)), edit
            proven += 1
    assert proven > 5


SCALED = "(float[b, h, n, 8] q, float[b, h, 8, n] k) => (float[b, h, n, n] y)"


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
def test_factors_that_optimizers_join_are_those_of_the_parent(tmp_path: Path, body: str) -> None:
    parent = build(body, head=SCALED)
    parent.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0.5946), "r"))
    onnx.save(parent, tmp_path / "p.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "c.onnx"), 4
    onnxruntime.InferenceSession(str(tmp_path / "p.onnx"), options, providers=["CPUExecutionProvider"])
    child = onnx.load(tmp_path / "c.onnx")
    (node,) = child.graph.node
    assert node.op_type == "FusedMatMul" and verdict(tmp_path, parent, child) == "proven"
    (alpha,) = (item for item in node.attribute if item.name == "alpha")
    alpha.f *= 1.0001
    assert verdict(tmp_path, parent, child) == "not-provable"


@pytest.mark.more
@pytest.mark.parametrize("name", ["BERT", "RoBERTa", "DeBERTa", "ModernBERT"])
def test_what_optimizers_make_of_an_export_is_proven(name: str, tmp_path: Path) -> None:
    architecture = next(one for one in TEXT if one.name == name)
    save_text_model(architecture, "ForTokenClassification", tmp_path / "model")
    (tmp_path / "work").mkdir()
    draft = execute(
        plan_export(task_recipe("token-classification"), str(tmp_path / "model"), "acme/x"), tmp_path / "work"
    )
    parent, children = draft.root / "model.onnx", []
    for level in ("BASIC", "EXTENDED"):
        for form in ("onnx", "ort"):
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = getattr(
                onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}"
            )
            options.optimized_model_filepath = str(tmp_path / f"{level}.{form}")
            if form == "ort":
                options.add_session_config_entry("session.save_model_format", "ORT")
            onnxruntime.InferenceSession(str(parent), options, providers=["CPUExecutionProvider"])
            children.append(tmp_path / f"{level}.{form}")
    with quiet():
        for symbolic in (False, True):
            first, child = (tmp_path / f"{step}{symbolic}.onnx" for step in ("first", "child"))
            quant_pre_process(parent, first, skip_symbolic_shape=not symbolic, auto_merge=True)
            quantize_dynamic(first, child)
            children.append(child)
    for child in children:
        report = verdict_of(parent, child)
        assert (report.verdict, report.reasons) == ("proven", ()), child.name


def test_many_long_sizes_cost_no_more(tmp_path: Path) -> None:
    """A budget for all of them: beyond it a size is unknown."""
    names = range(40)
    body = "".join(f" s{at} = Shape (z{at})" for at in names) + " t0 = Add (s0, s1)"
    body += "".join(f" t{at} = Add (t{at - 1}, s{at + 1})" for at in range(1, 39))
    body += " u0 = Identity (t38)" + "".join(f" u{at} = Add (u{at - 1}, one)" for at in range(1, 20_000))
    inputs = ", ".join(f"float[n{at}] z{at}" for at in names)
    model = build(f"{body} y = Add (u19999, one)", head=f"({inputs}) => (int64[1] y)")
    with no_quadratic_time():
        assert verdict(tmp_path, model, model) == "proven"
