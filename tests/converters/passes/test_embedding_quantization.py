"""`EmbeddingQuantization`: rows in 8 bits, by standard operators alone."""

from typing import Any

import numpy as np
import onnx
import pytest

from onnxreg.converters.passes import base
from onnxreg.converters.passes.pass_contract import PassContract, run_and_compare
from onnxreg.converters.passes.quantization import EmbeddingQuantization
from onnxreg.converters.passes.tools import graph, samples
from onnxreg.schema.core.errors import ConversionError

ROWS, SIZE = 40, 16


def model(more: str = "", weights: str = "") -> Any:
    text = f"""<ir_version: 9, opset_import: ["" : 18]>
    agraph (int64[n] ids) => (float[n, {SIZE}] rows)
    <float[{ROWS}, {SIZE}] table = {{{", ".join("0" for _ in range(ROWS * SIZE))}}} {weights}>
    {{ picked = Gather(table, ids) {more} rows = Identity(picked) }}"""
    parsed = onnx.parser.parse_model(text)
    values = np.random.default_rng(0).normal(size=(ROWS, SIZE)).astype(np.float32)
    values *= np.logspace(-3, 3, ROWS, dtype=np.float32)[:, None]
    values[7] = 0.0
    parsed.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(values, "table"))
    return parsed


class TestContract(PassContract):
    def make(self) -> EmbeddingQuantization:
        return EmbeddingQuantization()

    def subject(self) -> Any:
        return model()


def test_every_row_keeps_its_own_scale() -> None:
    before = model()
    table = onnx.numpy_helper.to_array(before.graph.initializer[0])
    after, step = run_and_compare("rows", EmbeddingQuantization(), model())
    ids = np.arange(ROWS)
    (rows,) = (result["rows"] for result in samples.all_outputs(after, [{"ids": ids}], "rows"))
    largest = np.abs(table).max(axis=1, keepdims=True)
    assert (np.abs(rows - table) <= largest / 127 / 2 * 1.001).all()
    assert (rows[7] == 0).all()
    result = step.to_json()["result"]
    assert result["embeddings"] == {
        "tables": 1,
        "tables_quantized": 1,
        "min_row_cosine": pytest.approx(1, abs=1e-3),
    }
    assert result["quantized_bytes"] == ROWS * SIZE * 4
    assert result["weight_bytes"]["after"] == ROWS * SIZE + ROWS * 4


def test_only_standard_operators_are_used() -> None:
    after, _ = base.run("rows", EmbeddingQuantization(), model())
    assert graph.count_operators(after) == {"Cast": 1, "Gather": 2, "Identity": 1, "Mul": 1}


def test_a_table_that_something_else_reads_stays() -> None:
    more = "shape = Shape(table)  again = Add(table, table)"
    with pytest.raises(ConversionError, match="reached none of the embedding tables"):
        base.run("rows", EmbeddingQuantization(), model(more))


def test_a_graph_without_tables_is_an_error() -> None:
    text = '<ir_version: 9, opset_import: ["" : 18]> agraph (float[n] x) => (float[n] y) { y = Relu(x) }'
    with pytest.raises(ConversionError, match="reached none of the embedding tables"):
        base.run("rows", EmbeddingQuantization(), onnx.parser.parse_model(text))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_table_with_values_that_are_not_finite_is_refused(value: float) -> None:
    subject = model()
    table = onnx.numpy_helper.to_array(subject.graph.initializer[0]).copy()
    table[3, 5] = value
    subject.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(table, "table"))
    with pytest.raises(ConversionError, match="the table table holds NaN or infinity"):
        base.run("rows", EmbeddingQuantization(), subject)
