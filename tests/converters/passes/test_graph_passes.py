"""Passes that change a graph and not its numbers: fixed shapes, opset, public types, fusion."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.graphs import contract, draw, graph, public_types, read, run, run_and_compare
from support.sampling import sampled

from onnxreg.converters.passes.conversion import OnnxConversion, TorchModel
from onnxreg.converters.passes.float16 import OnnxFloatToFloat16
from onnxreg.converters.passes.graph_passes import (
    DynamicToFixedShape,
    OnnxIODataTypeConverter,
    OnnxOpVersionConversion,
    OrtTransformersOptimization,
)
from onnxreg.converters.passes.models import default_opset, to_proto
from onnxreg.converters.passes.quantization import OnnxBlockWiseRtnQuantization, OnnxDynamicQuantization
from onnxreg.schema.core.errors import ConversionError, InputError

FLOAT, INT32, INT64, BOOL, FLOAT16, DOUBLE, BFLOAT16 = 1, 6, 7, 9, 10, 11, 16
HALF_ROUNDING = 1e-2
"""ONNX Runtime has no float16 addition on the CPU; between two of its operators it leaves rounding out."""


def tokens() -> Any:
    """Its values' shapes hold an expression of an axis, as exporters leave them."""
    body = "rows = Gather(table, ids) y = Relu(rows) z = ReduceMax<keepdims = 0>(y, axes)"
    sides = (
        "int64[batch, sequence] ids, int64[batch, sequence] mask",
        "float[batch, sequence, 4] y, float[a, b] z",
    )
    made = graph(body, *sides, table=(10, 4), axes=np.array([1]))
    stale = onnx.helper.make_tensor_value_info("rows", 1, ["batch", "Min(512, sequence)", 4])
    made.graph.value_info.append(stale)
    return made


def largest(body: str = "y = ReduceMax(z, axes)", opset: int = 18) -> Any:
    weights: Any = {"weight": (40, 40)} | ({"axes": np.array([1])} if "axes" in body else {})
    return graph(f"z = MatMul(x, weight) {body}", outputs="float[p, q] y", opset=opset, **weights)


def half() -> Any:
    body = "rows = Gather(table, ids) hidden = Add(rows, bias) logits = Mul(hidden, hidden)"
    sides = "int64[n, m] ids, float16[n, m, 4] bias", "float16[n, m, 4] logits, float16[n, m, 4] hidden"
    return graph(body, *sides, table=np.arange(40, dtype=np.float16).reshape(10, 4) / 40)


def dense(body: str = "a = MatMul(x, weight) b = Add(a, bias) y = Gelu(b)") -> Any:
    shape = "float[n, s, 40]"
    return graph(body, f"{shape} x", f"{shape} y", opset=20, ir=9, weight=(40, 40), bias=(40,))


BOTH_AXES = {"dim_param": ["batch", "sequence"], "dim_value": [2, 8]}
TestFixedShape = contract(lambda: DynamicToFixedShape(**BOTH_AXES), tokens)
TestOpset = contract(lambda: OnnxOpVersionConversion(target_opset=20), largest)
TestTypes = contract(lambda: OnnxIODataTypeConverter(name_pattern=".*"), half)
TestFusion = contract(OrtTransformersOptimization, dense)


WAYS = (
    {"dim_param": ["batch", "sequence"], "dim_value": [3, 7]},
    {"input_dim": ["batch", "sequence"], "dim_value": [3, 7]},
    {"input_name": ["ids"], "input_shape": [[3, 7]]},
    {"input_name": ["mask", "ids"], "input_shape": [[3, 7], [3, 7]]},
)
FIXED = {"ids": [3, 7], "mask": [3, 7], "y": [3, 7, 4], "z": [3, 4]}


REFUSED = [
    (DynamicToFixedShape, tokens, params, told)
    for params, told in [
        ({}, "give either"),
        ({**WAYS[0], **WAYS[2]}, "give either"),
        ({"dim_param": ["batch"]}, "as many names"),
        ({"dim_param": ["batch"], "dim_value": [1, 2]}, "as many names"),
        ({"dim_param": ["batch", "batch"], "dim_value": [1, 2]}, "twice"),
        ({"dim_param": ["batch"], "dim_value": [0]}, "dim_value.0"),
        ({"input_name": ["ids"], "input_shape": [[0, 1]]}, "input_shape.0.0"),
        ({"dim_param": ["bacth"], "dim_value": [1]}, "'bacth'"),
        ({"input_name": ["idz"], "input_shape": [[1, 2]]}, "'idz'"),
        ({"input_name": ["ids"], "input_shape": [[1, 2, 3]]}, "'ids' has 3 axes"),
        ({"input_name": ["ids", "mask"], "input_shape": [[1, 2], [1, 3]]}, "be 3, it is 2"),
    ]
] + [
    (OnnxOpVersionConversion, largest, {"target_opset": 6}, "target_opset"),
    (OnnxOpVersionConversion, largest, {"target_opset": 27}, "target_opset"),
    (OnnxIODataTypeConverter, half, {"source_dtype": DOUBLE}, "float64 matches 'logits'"),
    (OnnxIODataTypeConverter, half, {"name_pattern": "("}, "name_pattern"),
    (OnnxIODataTypeConverter, half, {"target_dtype": 0}, "target_dtype"),
    (OnnxIODataTypeConverter, half, {"target_dtype": 8}, "target_dtype"),
    (OnnxIODataTypeConverter, half, {"target_dtype": FLOAT16}, ""),
    (OrtTransformersOptimization, dense, {"model_type": "brt"}, "brt"),
    (OrtTransformersOptimization, dense, {"opt_level": 3}, "opt_level"),
]


@pytest.mark.parametrize(("work", "subject", "params", "told"), REFUSED)
def test_a_parameter_that_means_nothing_is_an_input_error(work, subject, params, told):
    with pytest.raises(InputError) as caught:
        run("x", work(**params), subject())
    assert told in caught.value.message


def test_every_way_to_fix_shapes_gives_the_same_bytes_and_true_shapes():
    found = set()
    for way in WAYS:
        after, step = run_and_compare("fixed", DynamicToFixedShape(**way), tokens())
        assert step.result["shapes"] == FIXED
        assert step.result["parity"]["outputs"]["y"]["max_abs_diff"] == 0
        found.add(after.SerializeToString(deterministic=True))
    assert len(found) == 1
    assert b"sequence" not in found.pop()
    with pytest.raises(InputError, match="cannot be 4, it is 7"):
        run("fixed", DynamicToFixedShape(input_name=["ids"], input_shape=[[3, 4]]), after)


def test_one_axis_stays_dynamic_and_a_size_of_minus_one_is_one():
    _, step = run_and_compare("fixed", DynamicToFixedShape(dim_param=["batch"], dim_value=[1]), tokens())
    assert step.result["shapes"]["y"] == [1, "sequence", 4]
    subject = tokens()
    for value in (*subject.graph.input, *subject.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = -1
    assert draw(subject)[0]["ids"].shape == (8, 8)
    assert run_and_compare("fixed", DynamicToFixedShape(**WAYS[3]), subject)[1].result["shapes"] == FIXED


def test_axes_of_outputs_that_have_the_name_of_another_or_that_only_a_run_can_tell():
    """PyTorch's exporter calls the height of a padded image `batch` too."""
    body = "pads = Constant<value_ints = [0, 0, 2, 1, 0, 0, 1, 1]>() y = Pad(x, pads)"
    subject = graph(body, "float[batch, 3, 4, 4] x", "float[batch, 3, batch, width] y", opset=17)
    _, step = run_and_compare("fixed", DynamicToFixedShape(dim_param=["batch"], dim_value=[2]), subject)
    assert step.result["shapes"] == {"x": [2, 3, 4, 4], "y": [2, 3, 7, 6]}
    subject = graph("y = Expand(x, size)", "float[batch, 3] x, int64[2] size", "float[batch, rows] y")
    feeds = [{"x": np.ones((1, 3), np.float32), "size": np.array([1, 3])}]
    work = DynamicToFixedShape(feeds, dim_param=["batch"], dim_value=[1])
    _, step = run_and_compare("fixed", work, subject, feeds=feeds)
    assert step.result["shapes"]["y"][0] == 1


@pytest.mark.parametrize(("target", "ir"), [(17, 8), (18, 8), (20, 9), (21, 10), (23, 11)])
def test_the_file_says_the_opset_and_its_ir_version(target, ir):
    after, step = run_and_compare("opset", OnnxOpVersionConversion(target_opset=target), largest())
    assert (default_opset(read(after)), after.ir_version) == (target, ir)
    found = step.result
    assert (found["opset_before"], found["opset"], found["ir_version"]) == (18, target, ir)
    assert found["parity"]["outputs"]["y"]["max_abs_diff"] < 1e-5
    assert [tensor.name for tensor in after.graph.initializer if len(tensor.raw_data) > 4096] == ["weight"]
    if target == 17:
        reduce = after.graph.node[1]
        assert (reduce.op_type, len(reduce.input), reduce.attribute[0].name) == ("ReduceMax", 1, "axes")
    if target == 18:
        same = (model.SerializeToString(deterministic=True) for model in (after, to_proto(read(largest()))))
        assert len(set(same)) == 1


def choice(then: str, other: str, kind: str = "float[p, q]") -> str:
    """A node that gives y by a branch of one node each."""
    sides = (
        f"then_branch = t () => ({kind} u) {{ u = {then} }}",
        f"else_branch = e () => ({kind} v) {{ v = {other} }}",
    )
    return f"y = If(c) <{', '.join(sides)}>"


def in_a_branch() -> Any:
    body = choice("ReduceMax(x, axes)", "Identity(x)")
    return graph(body, "bool c, float[n, m] x", "float[p, q] y", axes=np.array([1]))


@pytest.mark.parametrize(
    ("subject", "target"),
    [
        (largest("y = Gelu(z)", 20), 18),
        (largest("y = LayerNormalization(z, z)"), 13),
        (largest("y = GridSample(z, z)", 16), 15),
        (in_a_branch(), 17),
    ],
    ids=["Gelu", "LayerNormalization", "GridSample", "branch"],
)
def test_what_another_opset_cannot_say_is_refused(subject, target):
    with pytest.raises(ConversionError, match=f"cannot be converted to opset {target}"):
        run("opset", OnnxOpVersionConversion(target_opset=target), subject)


def test_local_functions_are_inlined():
    function = '<domain: "local", opset_import: ["" : 18]> f (x) => (y) { a = Constant<value = int64[1] {1}>() y = ReduceMax(x, a) }'
    subject = graph("y = local.f(x)", "float[n, m] x", "float[p, q] y", more=function)
    after, _ = run_and_compare("opset", OnnxOpVersionConversion(target_opset=17), subject)
    assert (len(after.functions), [entry.domain for entry in after.opset_import]) == (0, [""])


@pytest.mark.parametrize(
    ("params", "converted", "types"),
    [
        ({}, ["logits"], {"ids": INT64, "bias": FLOAT16, "logits": FLOAT, "hidden": FLOAT16}),
        ({"name_pattern": ".*"}, ["bias", "logits", "hidden"], {"ids": INT64, "bias": FLOAT, "logits": FLOAT, "hidden": FLOAT}),
        ({"name_pattern": "ids", "source_dtype": INT64, "target_dtype": INT32}, ["ids"],
         {"ids": INT32, "bias": FLOAT16, "logits": FLOAT16, "hidden": FLOAT16}),
    ],
)  # fmt: skip
def test_public_types_are_converted_by_name(params, converted, types):
    after, step = run_and_compare("io", OnnxIODataTypeConverter(**params), half())
    assert (step.result["converted"], public_types(after)) == (converted, types)
    assert all(node.name.startswith("Cast_") for node in after.graph.node if node.op_type == "Cast")
    most = 0 if converted == ["ids"] else HALF_ROUNDING
    assert all(entry["max_abs_diff"] <= most for entry in step.result["parity"]["outputs"].values())


@pytest.mark.parametrize("pattern", [".*", "bias", "logits"])
def test_bfloat16_and_back(pattern):
    work = OnnxIODataTypeConverter(name_pattern=pattern, source_dtype=FLOAT16, target_dtype=BFLOAT16)
    after, step = run_and_compare("io", work, half())
    assert {public_types(after)[name] for name in step.result["converted"]} == {BFLOAT16}
    assert all(each["cosine"] > 0.9999 for each in step.result["parity"]["outputs"].values())
    work = OnnxIODataTypeConverter(name_pattern=".*", source_dtype=BFLOAT16)
    assert BFLOAT16 not in public_types(run_and_compare("back", work, after)[0]).values()


def test_no_match_says_what_there_is_and_an_output_that_is_an_input_has_one_type():
    with pytest.raises(InputError) as caught:
        run("io", OnnxIODataTypeConverter(source_dtype=DOUBLE), half())
    assert "ids (int64), bias (float16), logits (float16)" in caught.value.hint
    subject = graph("y = Identity(logits)", "float16[n] logits", "float16[n] logits, float16[n] y")
    with pytest.raises(ConversionError, match="has one type only"):
        run("io", OnnxIODataTypeConverter(), subject)


def test_a_subgraph_reads_the_value_under_its_new_name():
    body = choice("Add(x, x)", "Identity(x)", "float16[n]")
    subject = graph(body, "bool c, float16[n] x", "float16[n] y")
    after, step = run_and_compare("io", OnnxIODataTypeConverter(name_pattern="."), subject)
    assert public_types(after) == {"c": BOOL, "x": FLOAT, "y": FLOAT}
    assert step.result["parity"]["outputs"]["y"]["max_abs_diff"] == 0


@pytest.fixture(scope="module")
def encoder(bert: Path) -> bytes:
    import torch
    from transformers import AutoModelForTokenClassification

    module = AutoModelForTokenClassification.from_pretrained(bert, attn_implementation="eager").eval()
    ids = torch.ones(2, 8, dtype=torch.int64)
    inputs = {"input_ids": ids, "attention_mask": ids, "token_type_ids": 0 * ids}
    converted, _ = run("fp32", OnnxConversion(), TorchModel(module, inputs))
    return bytes(converted.SerializeToString())


def test_no_fusion_is_a_result_and_onnx_runtime_alone_fuses_no_attention(encoder):
    work = OrtTransformersOptimization(opt_level=0)
    _, step = run_and_compare("fused", work, dense("y = MatMul(x, weight)"))
    assert (step.result["fused"], step.result["fusions"]) == ({}, 0)
    assert step.result["nodes"] == {"before": 1, "after": 1}
    work = OrtTransformersOptimization(only_onnxruntime=True, opt_level=1)
    _, step = run_and_compare("fused", work, onnx.ModelProto.FromString(encoder))
    assert step.result["fused"] == {}
    assert step.result["nodes"]["after"] < step.result["nodes"]["before"]


@pytest.mark.parametrize("level", sampled([2, 0, None, 1], 2))
def test_an_encoder_gets_one_attention_for_each_layer_and_the_next_passes_take_it(encoder, level):
    """The usual chain: fusion, float16, fixed axes, float32 outputs."""
    subject = onnx.ModelProto.FromString(encoder)
    work = OrtTransformersOptimization(opt_level=level, num_heads=4, hidden_size=32)
    subject, step = run_and_compare("fused", work, subject)
    assert step.result["fused"]["com.microsoft:Attention"] == 2
    assert step.result["nodes"]["after"] < step.result["nodes"]["before"] / 5
    assert step.result["parity"]["outputs"]["logits"]["max_abs_diff"] < 1e-3
    subject, _ = run_and_compare("half", OnnxFloatToFloat16(keep_io_types=False), subject)
    subject, _ = run_and_compare("fixed", DynamicToFixedShape(dim_param=["batch"], dim_value=[1]), subject)
    after, _ = run_and_compare("io", OnnxIODataTypeConverter(), subject)
    assert [value.type.tensor_type.elem_type for value in after.graph.output] == [FLOAT]


@pytest.mark.parametrize("quantize", [OnnxDynamicQuantization(), OnnxBlockWiseRtnQuantization(block_size=16)])
def test_a_graph_with_fused_operators_is_quantized(encoder, quantize):
    work = OrtTransformersOptimization(opt_level=0, num_heads=4, hidden_size=32)
    subject, step = run("fused", work, onnx.ModelProto.FromString(encoder))
    assert {entry.domain for entry in subject.opset_import} == {"", "com.microsoft"}
    _, step = run_and_compare("int8", quantize, subject)
    assert step.result["weights"] >= 5


def test_a_long_list_of_texts_stays_a_weight():
    subject = graph(
        "y = Gather(names, x)",
        "int64[n] x",
        "string[n] y",
        names=np.array([f"n{i}" for i in range(2000)], object),
    )
    after, _ = run("opset", OnnxOpVersionConversion(target_opset=21), subject)
    assert [value.name for value in after.graph.input] == ["x"]
    assert after.graph.initializer == subject.graph.initializer


@pytest.mark.parametrize("work", [OnnxOpVersionConversion(target_opset=21), OnnxFloatToFloat16()])
def test_a_function_may_take_a_tensor(work):
    function = """<domain: "local", opset_import: ["" : 18]>
        Shift <shift> (x) => (y) { c = Constant <value: tensor = @shift> () y = Add(x, c) }"""
    subject = graph(
        "h = MatMul(x, weight) y = local.Shift <shift = float[1] {1.0}> (h)", more=function, weight=(40, 40)
    )
    after, _ = run_and_compare("step", work, subject)
    assert not after.functions
