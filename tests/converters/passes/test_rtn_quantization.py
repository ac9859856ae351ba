"""`OnnxBlockWiseRtnQuantization`: codes that mean the weights, and none of the old weights left."""

from typing import Any

import numpy as np
import onnx
import pytest

from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.pass_contract import PassContract, run_and_compare
from onnxreg.converters.passes.quantization import OnnxBlockWiseRtnQuantization
from onnxreg.converters.passes.tools import samples
from onnxreg.schema.core.errors import ConversionError, InputError


def model(body: str = "h = MatMul(x, first) y = MatMul(h, second)") -> Any:
    parsed = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g (float[n, 72] x) => (float[n, 72] y) {{ {body} }}'
    )
    for index, node in enumerate(parsed.graph.node):
        node.name = f"node{index}"
    draw = np.random.default_rng(0)
    for name in ("first", "second"):
        value = draw.normal(size=(72, 72)).astype(np.float32)
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return parsed


class TestContract(PassContract):
    def make(self) -> OnnxBlockWiseRtnQuantization:
        return OnnxBlockWiseRtnQuantization(block_size=32)

    def subject(self) -> Any:
        return model()


LIMITS = {(4, True): 0.16, (4, False): 0.12, (8, True): 0.01, (8, False): 0.008}


@pytest.mark.parametrize("block_size", [16, 32, 128])
@pytest.mark.parametrize(("bits", "symmetric"), LIMITS)
def test_the_error_of_the_products_is_small(bits: int, symmetric: bool, block_size: int) -> None:
    work = OnnxBlockWiseRtnQuantization(
        bits=bits, is_symmetric=symmetric, block_size=block_size, accuracy_level=1
    )
    after, _ = run_and_compare(
        "int4", work, model("y = MatMul(x, first)"), feeds=[{"x": np.eye(72, dtype=np.float32)}]
    )
    weight = onnx.numpy_helper.to_array(model().graph.initializer[0])
    session = samples.model_file.session(after)
    got = session.run(None, {"x": np.eye(72, dtype=np.float32)})[0]
    error = float(np.linalg.norm(got - weight) / np.linalg.norm(weight))
    assert 0 < error < LIMITS[bits, symmetric]


def test_nodes_and_attributes_of_the_file() -> None:
    after, step = run_and_compare("int4", OnnxBlockWiseRtnQuantization(accuracy_level=4), model())
    (first, _) = after.graph.node
    attributes = {entry.name: entry.i for entry in first.attribute}
    assert (first.op_type, first.domain) == ("MatMulNBits", "com.microsoft")
    assert attributes["accuracy_level"] == 4
    assert (attributes["bits"], attributes["block_size"]) == (4, 128)
    assert {tensor.data_type for tensor in after.graph.initializer} == {1, 2}
    assert not {"first", "second"} & {tensor.name for tensor in after.graph.initializer}
    assert step.result["weights"] == 2
    weights = step.result["weight_bytes"]
    assert weights["before"] == step.result["quantized_bytes"] == 2 * 4 * 72 * 72
    assert weights["after"] < weights["before"] / 4


def test_a_weight_that_two_nodes_share_is_stored_once() -> None:
    after, _ = run_and_compare(
        "int4", OnnxBlockWiseRtnQuantization(), model("h = MatMul(x, first) y = MatMul(h, first)")
    )
    names = [tensor.name for tensor in after.graph.initializer]
    assert len(names) == len(set(names)) == 2


def test_excluded_nodes_stay() -> None:
    after, step = run_and_compare("int4", OnnxBlockWiseRtnQuantization(nodes_to_exclude=["node0"]), model())
    assert step.result["weights"] == 1
    assert "first" in {tensor.name for tensor in after.graph.initializer}


@pytest.mark.parametrize(
    ("body", "gemm", "hint"),
    [
        ("y = Gemm(x, first)", False, "no MatMul with constant weights"),
        ("y = Add(x, x)", True, "no Gemm or MatMul"),
    ],
)
def test_no_weight_to_quantize_is_an_error(body: str, gemm: bool, hint: str) -> None:
    with pytest.raises(ConversionError, match="none of the weights") as caught:
        run("int4", OnnxBlockWiseRtnQuantization(gemm=gemm), model(body))
    assert hint in caught.value.hint


GEMMS = {
    "plain": ("y = Gemm(x, first)", 1),
    "across": ("y = Gemm <transB = 1> (x, first)", 1),
    "with a bias": (
        "b = Constant <value_float = 2.0> () y = Gemm <transB = 1, alpha = 1.0> (x, first, b)",
        1,
    ),
    "both ways": ("h = Gemm <transB = 1> (x, first) y = Gemm (h, first)", 2),
    "beside a product": ("h = Gemm <transB = 1> (x, first) y = MatMul(h, second)", 2),
}


@pytest.mark.parametrize(("body", "count"), GEMMS.values(), ids=GEMMS)
def test_a_gemm_is_a_product_too(body: str, count: int) -> None:
    work = OnnxBlockWiseRtnQuantization(bits=8, block_size=16, gemm=True)
    after, step = run_and_compare("int8", work, model(body))
    kinds = [node.op_type for node in after.graph.node]
    assert (kinds.count("Gemm"), kinds.count("MatMulNBits")) == (0, count)
    assert step.result["weights"] == count
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.9999
    assert {tensor.data_type for tensor in after.graph.initializer} == {1, 2}
    assert not {"first", "second"} & {tensor.name for tensor in after.graph.initializer}


def test_a_gemm_is_left_alone_where_it_is_excluded_or_not_asked_for() -> None:
    body = "h = Gemm <transB = 1> (x, first) y = MatMul(h, second)"
    for params in ({}, {"gemm": True, "nodes_to_exclude": ["node0"]}):
        after, step = run_and_compare("int4", OnnxBlockWiseRtnQuantization(**params), model(body))
        assert [node.op_type for node in after.graph.node] == ["Gemm", "MatMulNBits"]
        assert step.result["weights"] == 1


def test_a_gemm_that_is_no_plain_product_is_an_error() -> None:
    for told in ("alpha = 2.0", "beta = 0.5", "transA = 1"):
        with pytest.raises(ConversionError, match="left weights in floating point: first"):
            run(
                "int4",
                OnnxBlockWiseRtnQuantization(gemm=True),
                model(f"y = Gemm <{told}> (x, first, second)"),
            )


@pytest.mark.parametrize(
    "params", [{"bits": 3}, {"block_size": 48}, {"accuracy_level": 5}, {"nodes_to_exclude": ["nod"]}]
)
def test_invalid_parameters_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        run("int4", OnnxBlockWiseRtnQuantization(**params), model())
