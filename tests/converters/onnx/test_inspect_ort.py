"""Facts of ORT-format files, converted here from small graphs by onnxruntime."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from onnxreg.converters.onnx.facts import inspect_file
from onnxreg.schema.core.errors import InputError

BERT = Path(__file__).parents[1].parent / "fixtures/openmed-v1/bert"
CONDITIONAL = """<ir_version: 10, opset_import: ["" : 18]>
g (bool c, float[n] x) => (int64[r, m] y, float[n, 3] logits)
<float[1, 3] w = {1.0, 2.0, 3.0}, int64[2] s = {-1, 1}> {
  y = If (c) <
    then_branch = a () => (int64[r, m] p) { p = NonZero(x) },
    else_branch = b () => (int64[r, m] p) { q = Abs(x) p = NonZero(q) }
  >
  h = Reshape(x, s)
  logits = MatMul(h, w)
}"""


@pytest.fixture(scope="module")
def conditional(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `.ort` of that graph, without optimization."""
    path = tmp_path_factory.mktemp("ort") / "model.ort"
    onnx.save(parser.parse_model(CONDITIONAL), path.with_suffix(".onnx"))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(path.with_suffix(".onnx"), options, providers=["CPUExecutionProvider"])
    return path


def test_contract_operators_and_versions(conditional: Path) -> None:
    facts, source = inspect_file(conditional), inspect_file(conditional.with_suffix(".onnx"))
    assert (facts.inputs, facts.outputs[1]) == (source.inputs, source.outputs[1])
    assert facts.outputs[1].axes == ("n", "labels")
    assert facts.operator_names == ("If", "Abs", "NonZero", "Reshape", "MatMul")
    assert facts.operators == source.operators
    assert facts.ort_format is not None and facts.ort_format >= 6
    assert facts.fields()["ort_format"] == facts.ort_format
    assert facts.opset_imports["ai.onnx"] == 18
    assert (facts.weights, facts.precision) == (source.weights, "float32")


def test_unreadable_files_are_named(conditional: Path, tmp_path: Path) -> None:
    whole = conditional.read_bytes()
    half, cut = whole[: len(whole) // 2], whole[:-64]
    for name, data in {
        "empty": b"",
        "text": b"x" * 100,
        "head": whole[:8],
        "half": half,
        "cut": cut,
    }.items():
        path = tmp_path / f"{name}.ort"
        path.write_bytes(data)
        with pytest.raises(InputError, match=rf"^{name}\.ort is not an ORT-format file, or is cut short"):
            inspect_file(path)


def test_damaged_bytes_never_raise_anything_else(conditional: Path, tmp_path: Path) -> None:
    whole = conditional.read_bytes()
    random = np.random.default_rng(7)
    path = tmp_path / "damaged.ort"
    refused = 0
    for _ in range(150):
        data = bytearray(whole)
        for position in random.integers(8, len(data), 4):
            data[position] = random.integers(256)
        path.write_bytes(data)
        try:
            inspect_file(path)
        except InputError:
            refused += 1
    assert refused > 20


def test_a_real_conversion() -> None:
    facts, source = inspect_file(BERT / "model.ort"), inspect_file(BERT / "model.onnx")
    assert (facts.inputs, facts.outputs) == (source.inputs, source.outputs)
    assert {"com.microsoft:BiasGelu", "com.microsoft:FusedMatMul"} <= set(facts.operator_names)
    assert not {"Erf", "Identity", "Constant"} & set(facts.operator_names)


def test_reading_loads_neither_torch_nor_the_runtime() -> None:
    """onnxruntime.tools imports torch; the bindings alone do not need it."""
    code = (
        "import sys; from pathlib import Path; from onnxreg.converters.onnx.facts import inspect_file;"
        f"inspect_file(Path({str(BERT / 'model.ort')!r}));"
        "sys.exit(bool({'torch', 'onnxruntime'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
