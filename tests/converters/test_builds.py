"""Our reading of operator configs and releases against ONNX Runtime itself: its parser, its converter, its loader."""

import gc
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from onnxruntime.tools.ort_format_model import create_config_from_models
from onnxruntime.tools.reduced_build_config_parser import parse_config
from support.graphs import graph, write_ort

from onnxreg.converters.onnx.facts import inspect_file
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.operators import Build, Need, Restriction, read_build, read_operator_set
from onnxreg.schema.query.runtimes import OLDEST_FORMAT, Runtime, runtime

BERT = Path(__file__).parent.parent / "fixtures/openmed-v1/bert"
CONFIG = "model.required_operators_and_types.config"

MIXED = """four = Constant<value_int = 4>() y = OneHot(i, four, on) e = Gather(x, i) f = Exp(e)
    k = Unsqueeze(f, zero) z = MatMul(k, k2) c = Cast<to = 6>(f)"""
TEXTS = (
    "ai.onnx;13;Add,MatMul\ncom.microsoft;1;BiasGelu\n",
    "ai.onnx;11,12,13;Add,  MatMul\n# end",
    'ai.onnx;12;Add,Cast{"inputs": {"0": ["float", "int32_t"]}, "outputs": {"0": ["float"]}},Concat',
    'ai.onnx;12;Cast{"inputs": {"0": ["float"]}}\nai.onnx;13;Cast{"inputs": {"0": ["double"]}}',
    'ai.onnx;13;Cast{"inputs": {"0": ["float"]}}\nai.onnx;13;Cast',
    'ai.onnx;11;OneHot{"custom": [["float", "int64_t", "int64_t"], ["int64_t", "std::string", "int64_t"]]}',
    "!globally_allowed_types;float,int64_t\nai.onnx;13;Add",
    "!no_ops_specified_means_all_ops_are_required",
    "!no_ops_specified_means_all_ops_are_required\nai.onnx;13;Add",
    "",
)
BAD = (
    "ai.onnx;13",
    "ai.onnx;13;Add;Mul",
    "ai.onnx;x;Add",
    'ai.onnx;13;Add{"inputs": {"0": ["float"]}',
    "!globally_allowed_types;float\n!globally_allowed_types;float",
    '!globally_allowed_types;float\nai.onnx;13;Add{"inputs": {"0": ["float"]}}',
)


def check_same(build: Build, path: Path) -> None:
    """ONNX Runtime's parser reads the same operators and types from a config."""
    operators, types = parse_config(str(path), enable_type_reduction=True)
    theirs = (
        None
        if operators is None
        else {
            (domain, opset, name)
            for domain, by_opset in operators.items()
            for opset, names in by_opset.items()
            for name in names
        }
    )
    assert build.operators == theirs
    if build.everywhere is not None:
        assert build.everywhere == types.global_type_list()
        return
    manager: Any = getattr(types, "_manager", None)
    processors = manager._operator_processors if manager else {}
    restricted: dict[str, Any] = {
        f"{domain}:{name}": _sides(found) for (domain, name), found in build.types.items()
    }
    assert restricted == {key: json.loads(found.to_config_entry()) for key, found in processors.items()}


def _sides(found: Restriction) -> dict[str, Any]:
    if found.custom is not None:
        return {"custom": sorted(map(list, found.custom))}
    sides = (("inputs", found.inputs), ("outputs", found.outputs))
    return {side: {at: sorted(names) for at, names in types.items()} for side, types in sides if types}


@pytest.mark.parametrize("text", [*TEXTS, *BAD])
def test_configs_mean_what_they_mean_to_onnxruntime(text, tmp_path):
    path = tmp_path / CONFIG
    path.write_text(text)
    if text in TEXTS:
        check_same(read_build(text), path)
        return
    with pytest.raises((ValueError, RuntimeError)):
        parse_config(str(path), enable_type_reduction=True)
    with pytest.raises(InputError):
        read_build(text)


def converted(directory: Path) -> tuple[Path, Path]:
    """An .ort file of several kinds of operators, OneHot among them, with the config that ONNX Runtime writes for it."""
    sides = "float[n] x, int64[n] i", "float[n, 4] y, float[n, d] z, int32[n] c"
    weights = {
        "on": np.array([0, 1], np.float32),
        "zero": np.array([1]),
        "k2": np.array([[1, 2, 3]], np.float32),
    }
    onnx.save(graph(MIXED, *sides, **weights), directory / "model.onnx")
    target, config = write_ort(directory / "model.onnx"), directory / CONFIG
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        create_config_from_models([target], config, True)
        gc.collect()
    return target, config


def needs_of(path: Path) -> tuple[Need, ...]:
    """What an artifact's operator-set blob says."""
    operators = [operator.to_json() for operator in inspect_file(path).operators]
    return read_operator_set(canonical.encode(operators))


def test_a_build_made_for_an_artifact_contains_it(tmp_path):
    for path, config in (converted(tmp_path), (BERT / "model.ort", BERT / CONFIG)):
        build = read_build(config.read_text())
        check_same(build, config)
        needs = needs_of(path)
        assert len(needs) >= 5
        assert build.shortfall(needs) is None


def test_a_build_made_for_another_artifact_does_not(tmp_path):
    path, config = converted(tmp_path)
    other = read_build((BERT / CONFIG).read_text())
    found = other.shortfall(needs_of(path))
    assert found is not None and found[0] == "operators" and "OneHot" in found[1]
    narrow = config.read_text().replace('Exp{"inputs": {"0": ["float"]}}', 'Exp{"inputs": {"0": ["double"]}}')
    found = read_build(narrow).shortfall(needs_of(path))
    assert found is not None and (found[0], "Exp" in found[1]) == ("types", True)


@pytest.mark.more
def test_an_artifact_with_a_config_of_its_own_is_judged_by_a_stricter_build_too(tmp_path):
    """Its own config says nothing of the outputs of Exp; the graph does."""
    path, config = converted(tmp_path)
    narrow = config.read_text().replace('Exp{"inputs"', 'Exp{"outputs": {"0": ["float"]}, "inputs"')
    assert narrow != config.read_text()
    assert read_build(narrow).shortfall(needs_of(path)) is None
    globally = "!globally_allowed_types;float,int64_t,int32_t\n!no_ops_specified_means_all_ops_are_required"
    assert read_build(globally).shortfall(needs_of(path)) is None


def loads(model: bytes) -> bool:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Fail:
        return False
    return True


def test_the_table_of_releases_holds_for_the_one_that_is_installed(tmp_path):
    known: Runtime = runtime(".".join(onnxruntime.__version__.split(".")[:2]))
    for opset, ir, expected in (
        (known.opset, 8, True),
        (known.opset + 1, 8, False),
        (15, known.ir, True),
        (15, known.ir + 1, False),
    ):
        assert loads(graph("y = Relu(x)", opset=opset, ir=ir).SerializeToString()) is expected
    path, _ = converted(tmp_path)
    assert inspect_file(path).ort_format == known.ort_format >= OLDEST_FORMAT
