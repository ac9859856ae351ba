"""Facts of ORT-format files, converted here from small graphs by onnxruntime."""

import gc
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser
from onnxruntime.tools.ort_format_model import create_config_from_models
from support.sampling import sampled

from onnxreg.converters.onnx import ort_file
from onnxreg.converters.onnx.facts import inspect_onnx, inspect_ort
from onnxreg.converters.onnx.graph_operators import read_operator_config
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.parts import Operator

BERT = Path(__file__).parents[1].parent / "fixtures/openmed-v1/bert"
CONFIG = "model.required_operators_and_types.config"


def convert(path: Path, text: str) -> Path:
    """The `.ort` of a graph written as text, without optimization."""
    onnx.save(parser.parse_model(text), path.with_suffix(".onnx"))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(path.with_suffix(".onnx"), options, providers=["CPUExecutionProvider"])
    return path


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
    return convert(tmp_path_factory.mktemp("ort") / "model.ort", CONDITIONAL)


@pytest.fixture(scope="module")
def config_text(conditional: Path) -> str:
    """The operator config of that file; onnxruntime's writer leaves the model file open."""
    path = conditional.with_name(CONFIG)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        create_config_from_models([conditional], path, True)
        gc.collect()
    return path.read_text()


def test_contract_operators_and_versions(conditional: Path) -> None:
    facts = inspect_ort(conditional, None)
    source = inspect_onnx(conditional.with_suffix(".onnx"))
    assert facts.inputs == source.inputs
    assert facts.outputs[1] == source.outputs[1]
    assert facts.outputs[1].axes == ("n", "labels")
    assert facts.operator_names == ("If", "Abs", "NonZero", "Reshape", "MatMul")
    assert facts.operators == source.operators
    assert facts.ort_format is not None and facts.ort_format >= 6
    assert facts.fields()["ort_format"] == facts.ort_format
    assert facts.opset_imports["ai.onnx"] == 18
    assert (facts.weights, facts.precision) == (source.weights, "float32")


@pytest.mark.parametrize("with_types", sampled([True, False], 2))
def test_the_config_is_that_of_onnxruntime_without_comments(
    conditional: Path, with_types: bool, tmp_path: Path
) -> None:
    theirs = tmp_path / CONFIG
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        create_config_from_models([conditional], theirs, with_types)
        gc.collect()
    lines = [line for line in theirs.read_text().splitlines(keepends=True) if not line.startswith("#")]
    assert ort_file.operator_config(conditional, with_types) == "".join(lines)


def test_operators_come_from_the_config(conditional: Path, config_text: str, tmp_path: Path) -> None:
    config = tmp_path / CONFIG
    config.write_text(config_text)
    facts = inspect_ort(conditional, config)
    assert_has(facts.operators, read_operator_config(config))
    matmul = next(entry for entry in facts.operators if entry.name == "MatMul")
    assert matmul.to_json() == {
        "domain": "ai.onnx",
        "name": "MatMul",
        "opset": 13,
        "inputs": {"0": ["float"], "1": ["float"]},
        "outputs": {"0": ["float"]},
    }


def assert_has(found: tuple[Operator, ...], config: tuple[Operator, ...]) -> None:
    """The same operators, with every type that the config states; positions that it leaves out may have more."""
    assert [(each.domain, each.name, each.opset) for each in found] == [
        (each.domain, each.name, each.opset) for each in config
    ]
    for each, stated in zip(found, config, strict=True):
        assert {**each.inputs, **stated.inputs} == each.inputs
        assert {**each.outputs, **stated.outputs} == each.outputs


def test_a_config_of_many_models_gives_only_what_this_one_uses(
    conditional: Path, config_text: str, tmp_path: Path
) -> None:
    config = tmp_path / CONFIG
    config.write_text(config_text + "ai.onnx;13;Erf\ncom.microsoft;1;FusedMatMul\n")
    assert "Erf" not in {entry.name for entry in inspect_ort(conditional, config).operators}


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("NonZero", "Floor", r"ai\.onnx:NonZero \(opset 13\) is missing"),
        (
            'Abs{"inputs": {"0": ["float"]}}',
            'Abs{"inputs": {"0": ["double"]}}',
            r"Abs \(opset 13\) with float is missing",
        ),
        ("ai.onnx;13;", "ai.onnx;11;", r"opset 13"),
    ],
)
def test_a_config_that_does_not_cover_the_file_is_refused(
    conditional: Path, config_text: str, tmp_path: Path, old: str, new: str, what: str
) -> None:
    config = tmp_path / CONFIG
    assert old in config_text
    config.write_text(config_text.replace(old, new))
    with pytest.raises(InputError, match=what):
        inspect_ort(conditional, config)


@pytest.mark.parametrize(
    "line", ["ai.onnx;13", "ai.onnx;x;Add", "ai.onnx;13;Add{", "ai.onnx;13;,", 'a;1;Add{"inputs": 3}']
)
def test_malformed_config_lines_are_named(conditional: Path, tmp_path: Path, line: str) -> None:
    config = tmp_path / CONFIG
    config.write_text(f"# comment\n{line}\n")
    with pytest.raises(InputError, match=rf"^{CONFIG} is not an operator config: line 2"):
        inspect_ort(conditional, config)


def test_an_empty_config_is_refused(conditional: Path, tmp_path: Path) -> None:
    config = tmp_path / CONFIG
    config.write_text("# nothing\n")
    with pytest.raises(InputError, match="lists no operators"):
        inspect_ort(conditional, config)


def test_custom_triples_are_read_as_input_types(tmp_path: Path) -> None:
    config = tmp_path / CONFIG
    config.write_text('ai.onnx;11;OneHot{"custom": [["float", "int64_t", "double"]]},Or\n')
    one_hot, other = read_operator_config(config)
    assert one_hot.inputs == {"0": ("float",), "1": ("double",), "2": ("int64_t",)}
    assert other.to_json() == {"domain": "ai.onnx", "name": "Or", "opset": 11}


def test_unreadable_files_are_named(conditional: Path, tmp_path: Path) -> None:
    whole = conditional.read_bytes()
    cases = {
        "empty": b"",
        "text": b"x" * 100,
        "head": whole[:8],
        "half": whole[: len(whole) // 2],
        "cut": whole[:-64],
    }
    for name, data in cases.items():
        path = tmp_path / f"{name}.ort"
        path.write_bytes(data)
        with pytest.raises(InputError, match=rf"^{name}\.ort is not an ORT-format file, or is cut short"):
            inspect_ort(path, None)


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
            inspect_ort(path, None)
        except InputError:
            refused += 1
    assert refused > 20


def test_a_real_conversion() -> None:
    facts = inspect_ort(BERT / "model.ort", BERT / CONFIG)
    source = inspect_onnx(BERT / "model.onnx")
    assert facts.inputs == source.inputs
    assert facts.outputs == source.outputs
    assert {"com.microsoft:BiasGelu", "com.microsoft:FusedMatMul"} <= set(facts.operator_names)
    assert not {"Erf", "Identity", "Constant"} & set(facts.operator_names)
    assert_has(facts.operators, read_operator_config(BERT / CONFIG))


def test_reading_loads_neither_torch_nor_the_runtime() -> None:
    """onnxruntime.tools imports torch; the bindings alone do not need it."""
    code = (
        "import sys; from pathlib import Path; from onnxreg.converters.onnx.facts import inspect_ort;"
        f"inspect_ort(Path({str(BERT / 'model.ort')!r}));"
        "sys.exit(bool({'torch', 'onnxruntime'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
