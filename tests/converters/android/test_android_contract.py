"""Each way to break the android contract, with its message."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.graphs import graph

from onnxreg.converters.onnx.facts import inspect_file
from onnxreg.converters.onnx.mobile_rules import check_contract
from onnxreg.schema.core.errors import ConversionError

INPUTS = "int64[batch, sequence] input_ids, int64[batch, sequence] attention_mask"
SWAPPED = "int64[batch, sequence] attention_mask, int64[batch, sequence] input_ids"
OUTPUT = "float[batch, sequence, 3] logits"

BODY = """
    ids = Cast<to = 1>(input_ids)
    last = Constant<value = int64[1] {2}>()
    scores = Constant<value = float[3] {1, 2, 3}>()
    rows = Unsqueeze(ids, last)
    logits = Mul(rows, scores)
"""


def check(tmp_path: Path, inputs: str = INPUTS, output: str = OUTPUT, labels: int = 3, **facts: Any) -> None:
    onnx.save(graph(BODY, inputs, output), tmp_path / "m.onnx")
    check_contract(replace(inspect_file(tmp_path / "m.onnx"), **facts), "m.onnx", labels)


def test_accepted_contracts(tmp_path: Path) -> None:
    check(tmp_path)
    check(tmp_path, INPUTS + ", int64[batch, sequence] token_type_ids")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"opset_imports": {"ai.onnx": 17}}, "opset 17"),
        ({"opset_imports": {"other": 1}}, "opset None"),
        ({"inputs": f"{INPUTS}, int64[batch, sequence] position_ids"}, "inputs are input_ids, attention_mask, position_ids"),
        ({"inputs": SWAPPED}, "inputs are attention_mask, input_ids"),
        ({"inputs": INPUTS.replace("int64", "int32", 1)}, "input_ids is int32[batch, sequence], expected int64[batch, sequence]"),
        ({"inputs": INPUTS.replace("sequence", "seq", 1)}, "input_ids is int64[batch, seq], expected"),
        ({"inputs": INPUTS.replace("batch", "1", 1)}, "input_ids is int64[1, sequence], expected"),
        ({"output": OUTPUT + ", int64[batch, sequence] input_ids"}, "the only output must be logits"),
        ({"labels": 4}, "logits is float32[batch, sequence, 3], expected float32[batch, sequence, 4]"),
    ],
)  # fmt: skip
def test_refused_contracts(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConversionError, match=r"m\.onnx: ") as caught:
        check(tmp_path, **change)
    assert message in caught.value.message
