"""`OnnxIODataTypeConverter`: the public types change, the values do not."""

from typing import Any

import numpy as np
import onnx
import pytest

from onnxreg.converters.passes.base import public_types, run
from onnxreg.converters.passes.graph_passes import OnnxIODataTypeConverter
from onnxreg.converters.passes.pass_contract import PassContract, run_and_compare
from onnxreg.schema.core.errors import ConversionError, InputError

ROUNDING = 1e-2
"""ONNX Runtime has no float16 addition on the CPU; between two of its operators it leaves rounding out."""
FLOAT, INT32, INT64, FLOAT16, DOUBLE, BFLOAT16 = 1, 6, 7, 10, 11, 16


def model() -> Any:
    parsed = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (int64[n, m] ids, float16[n, m, 4] bias)'
        " => (float16[n, m, 4] logits, float16[n, m, 4] hidden)"
        " { rows = Gather(table, ids) hidden = Add(rows, bias) logits = Mul(hidden, hidden) }"
    )
    table = np.arange(40, dtype=np.float16).reshape(10, 4) / 40
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    return parsed


class TestContract(PassContract):
    def make(self) -> OnnxIODataTypeConverter:
        return OnnxIODataTypeConverter(name_pattern=".*")

    def subject(self) -> Any:
        return model()


def test_the_default_is_the_output_logits_and_half_to_float() -> None:
    after, step = run_and_compare("io", OnnxIODataTypeConverter(), model())
    assert step.result["converted"] == ["logits"]
    assert public_types(after) == {"ids": INT64, "bias": FLOAT16, "logits": FLOAT, "hidden": FLOAT16}
    assert step.result["parity"]["outputs"]["logits"]["max_abs_diff"] < ROUNDING


def test_everything_by_pattern_and_an_output_that_is_read_inside_too() -> None:
    after, step = run_and_compare("io", OnnxIODataTypeConverter(name_pattern=".*"), model())
    assert step.result["converted"] == ["bias", "logits", "hidden"]
    assert set(public_types(after).values()) == {INT64, FLOAT}
    assert all(node.name.startswith("Cast_") for node in after.graph.node if node.op_type == "Cast")
    assert all(entry["max_abs_diff"] < ROUNDING for entry in step.result["parity"]["outputs"].values())


@pytest.mark.parametrize(("source", "pattern"), [(FLOAT16, ".*"), (FLOAT16, "bias"), (FLOAT16, "logits")])
def test_bfloat16(source: int, pattern: str) -> None:
    work = OnnxIODataTypeConverter(name_pattern=pattern, source_dtype=source, target_dtype=BFLOAT16)
    after, step = run_and_compare("io", work, model())
    assert {public_types(after)[name] for name in step.result["converted"]} == {BFLOAT16}
    assert all(each["cosine"] > 0.9999 for each in step.result["parity"]["outputs"].values())
    back, _ = run_and_compare(
        "back", OnnxIODataTypeConverter(name_pattern=".*", source_dtype=BFLOAT16), after
    )
    assert BFLOAT16 not in public_types(back).values()


def test_integers() -> None:
    work = OnnxIODataTypeConverter(name_pattern="ids", source_dtype=INT64, target_dtype=INT32)
    after, step = run_and_compare("io", work, model())
    assert public_types(after)["ids"] == INT32
    assert step.result["parity"]["outputs"]["logits"]["max_abs_diff"] == 0


def test_no_match_is_an_error_that_says_what_there_is() -> None:
    with pytest.raises(InputError, match="no input or output of type float64 matches 'logits'") as caught:
        run("io", OnnxIODataTypeConverter(source_dtype=DOUBLE), model())
    assert "ids (int64), bias (float16), logits (float16)" in caught.value.hint


@pytest.mark.parametrize(
    "params",
    [
        {"name_pattern": "("},
        {"target_dtype": 0},
        {"source_dtype": 99},
        {"target_dtype": 8},
        {"target_dtype": 10},
    ],
)
def test_a_parameter_that_means_nothing_is_an_input_error(params: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        run("io", OnnxIODataTypeConverter(**params), model())


def test_an_output_that_is_an_input_has_one_type_only() -> None:
    parsed = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float16[n] logits) => (float16[n] logits, float16[n] y)'
        " { y = Identity(logits) }"
    )
    with pytest.raises(ConversionError, match="has one type only"):
        run("io", OnnxIODataTypeConverter(), parsed)


def test_a_subgraph_reads_the_value_under_its_new_name() -> None:
    parsed = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (bool c, float16[n] x) => (float16[n] y) {'
        " y = If(c) <then_branch = t () => (float16[n] u) { u = Add(x, x) },"
        " else_branch = e () => (float16[n] v) { v = Identity(x) }> }"
    )
    after, step = run_and_compare("io", OnnxIODataTypeConverter(name_pattern="."), parsed)
    assert public_types(after) == {"c": 9, "x": FLOAT, "y": FLOAT}
    assert step.result["parity"]["outputs"]["y"]["max_abs_diff"] == 0
