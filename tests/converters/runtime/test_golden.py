"""Golden vectors and arrays: what is written is read back, small differences pass, others do not."""

import json
import logging
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto
from support.graphs import all_outputs, graph, read, run_and_compare

from onnxreg.converters.passes import models
from onnxreg.converters.passes.base import GoldenVectors, Outputs, run
from onnxreg.converters.passes.graph_passes import OrtTransformersOptimization
from onnxreg.converters.passes.quantization import OnnxDynamicQuantization, OnnxStaticQuantization
from onnxreg.converters.runtime import golden
from onnxreg.converters.runtime.golden import (
    GoldenCase,
    Runnable,
    Tolerance,
    check_finite,
    read_rows,
    self_test,
)
from onnxreg.converters.runtime.sessions import MAX_MESSAGE_CHARS, load_session, with_reason
from onnxreg.schema.core.errors import ConversionError, HostError, InputError

LABELS = 5
TABLE = np.random.default_rng(0).normal(scale=3, size=(64, LABELS)).astype(np.float32)


def write_graph(path: Path, table: Any = TABLE) -> Path:
    """Logits are rows of a table; the mask is taken, and does nothing."""
    inputs = ", ".join(f"int64[batch, sequence] {name}" for name in ("input_ids", "attention_mask"))
    body, output = "logits = Gather(table, input_ids)", "float[batch, sequence, 5] logits"
    onnx.save(graph(body, inputs, output, table=table), path)
    return path


def sample(width: int = 48) -> list[golden.Tensors]:
    draw = np.random.default_rng(1)
    rows = [draw.integers(0, 64, (1, 13)), draw.integers(0, 64, (3, width)), draw.integers(0, 64, (1, 99))]
    return [{"input_ids": ids, "attention_mask": np.ones_like(ids)} for ids in rows]


def write_vectors(model: Path, tolerance: float = 1e-3) -> Path:
    feeds = golden.feeds_of(sample(), LABELS)
    outputs = {case: Runnable(model).run(feed) for case, feed in feeds.items()}
    return run("golden", GoldenVectors(tolerance=tolerance), Outputs(model, feeds, outputs))[0]


@pytest.mark.parametrize("labels", [2, 17, 130, 1000])
@pytest.mark.parametrize("width", [1, 9, 48])
def test_a_file_stays_below_64_kb(labels, width):
    feeds = golden.feeds_of(sample(width), labels)
    assert [feed["input_ids"].shape[0] for feed in feeds.values()] == [1, 2]
    draw = np.random.default_rng(2)
    cases = []
    for name, feed in feeds.items():
        logits = draw.normal(scale=5, size=(*feed["input_ids"].shape, labels)).astype(np.float32)
        tolerance = golden.tolerance_of([logits], 1e-3)
        cases.append(GoldenCase(name, feed, {"logits": logits}, {"logits": tolerance}))
    assert len(golden.encode(cases)) < 64_000


def test_a_written_file_is_read_back(tmp_path):
    model = write_graph(tmp_path / "model.onnx")
    path = write_vectors(model)
    assert path.name == "model.onnx.golden.json"
    row, padded = golden.decode(path.read_bytes(), path.name)
    assert row.name == "row" and padded.inputs["input_ids"].shape == (2, 16)
    assert row.inputs["input_ids"].dtype == np.int64 and row.outputs["logits"].dtype == np.float32
    assert np.abs(row.outputs["logits"] - TABLE[row.inputs["input_ids"]]).max() < 1e-4
    assert padded.tolerances["logits"] == Tolerance(float(f"{1e-3 * np.abs(TABLE).max():.2g}"), 1e-3)
    before = path.read_bytes()
    assert write_vectors(model).read_bytes() == before


@pytest.mark.parametrize(("error", "passed"), [(0.0, True), (5e-4, True), (0.02, False), (math.nan, False)])
def test_a_runtime_that_computes_something_else(tmp_path, error, passed):
    vectors = write_vectors(write_graph(tmp_path / "model.onnx")).read_bytes()
    other = write_graph(tmp_path / "other.onnx", (TABLE + np.float32(error)).astype(np.float32))
    compared = self_test(other, vectors, "vectors")
    assert [each.case for each in compared] == ["row", "padded"]
    assert all(each.passed is passed for each in compared)
    assert all((each.beyond > 0) is not passed for each in compared)
    if math.isnan(error):
        assert compared[0].max_abs_error == math.inf
        assert compared[0].to_json()["max_abs_error"] is None


def test_no_test_is_stricter_than_the_artifact_is_right():
    arrays = [np.array([2.0, -15.0])]
    assert golden.tolerance_of(arrays, 0.05) == Tolerance(0.75, 0.05)
    assert golden.tolerance_of(arrays, 0.05, least=0.5) == Tolerance(0.75, 0.05)
    assert golden.tolerance_of(arrays, 0.05, least=3.879) == Tolerance(3.9, 0.05)
    for mask in (-3e38, -65504.0, np.inf):
        assert golden.tolerance_of([np.array([2.0, -15.0, mask])], 0.05) == Tolerance(0.75, 0.05)
    for values in ([0.01], []):
        assert golden.tolerance_of([np.array(values)], 1e-3) == Tolerance(1e-3, 1e-3)


def test_an_output_has_the_distance_of_no_other_one(tmp_path):
    outputs = {"x": {"logits": np.full(2, 90.0), "probabilities": np.full(2, 0.5)}}
    work = GoldenVectors(tolerance=0.05, least={"logits": 9.0, "probabilities": 0.1})
    (case,) = golden.decode(
        work.apply(Outputs(tmp_path / "m.onnx", {"x": {}}, outputs)).read_bytes(), "vectors"
    )
    assert {name: one.atol for name, one in case.tolerances.items()} == {"logits": 9.0, "probabilities": 0.1}


@pytest.mark.parametrize(
    ("got", "beyond", "error"),
    [
        ({"y": np.array([[0, 0, 0], [0, 0, 0.2]], np.float32)}, 1, 0.2),
        ({}, None, math.inf),
        ({"y": np.zeros((3, 2))}, None, math.inf),
        ({"z": np.zeros((2, 3))}, None, math.inf),
    ],
    ids=["one wrong value is enough", "nothing", "another shape", "another output"],
)
def test_outputs_that_are_not_the_expected_ones(got, beyond, error):
    case = GoldenCase("x", {}, {"y": np.zeros((2, 3), np.float32)}, {"y": Tolerance(0.1, 0.0)})
    (each,) = golden.compare(case, got)
    assert (each.passed, each.max_abs_error) == (False, pytest.approx(error))
    assert beyond is None or each.beyond == beyond


def test_rounding_takes_nothing_from_a_test():
    array = np.array([1234.56789, -0.000123456, 0.0], np.float32)
    tolerance = golden.tolerance_of([array], 1e-3)
    case = GoldenCase("x", {}, {"y": array}, {"y": tolerance})
    (read,) = golden.decode(golden.encode([case]), "vectors")
    assert np.abs(read.outputs["y"].astype(np.float64) - array).max() < tolerance.atol / 100


@pytest.mark.parametrize(
    ("path", "to", "message"),
    [
        (["format"], "other", "holds no golden vectors"),
        (["format_version"], 2, "unknown format_version"),
        (["cases"], [], "nothing to compare"),
        (["cases", 0, "outputs"], {}, "nothing to compare"),
        (["cases", 0, "name"], ..., "`name` is missing"),
        (["cases", 0, "inputs", "a", "dtype"], "object", "not a type of tensors"),
        (["cases", 0, "inputs", "a", "shape"], [3], "as many values"),
        (["cases", 0, "inputs", "a", "shape"], [-1], "expected a whole number >= 0"),
        (["cases", 0, "inputs", "a", "data"], ["x", "y"], "a value that is not of type int64"),
        (["cases", 0, "inputs", "a", "data"], [[1], 2], "a value that is not of type int64"),
        (["cases", 0, "outputs", "y", "atol"], -1, "expected a number >= 0"),
    ],
)
def test_malformed_vectors(path, to, message):
    case = GoldenCase("x", {"a": np.array([1, 2])}, {"y": np.array([0.5])}, {"y": Tolerance(0.1, 0.1)})
    value = holder = json.loads(golden.encode([case]))
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = to
    if to is ...:
        del holder[path[-1]]
    with pytest.raises(InputError, match=message) as caught:
        golden.decode(json.dumps(value).encode(), "the vectors")
    assert "the vectors" in caught.value.message


def test_a_graph_that_does_not_load_or_run(tmp_path):
    vectors = write_vectors(write_graph(tmp_path / "model.onnx")).read_bytes()
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(HostError, match=r"cannot load broken\.onnx") as caught:
        self_test(tmp_path / "broken.onnx", vectors, "vectors")
    assert "ONNX Runtime here is" in caught.value.hint
    small = write_graph(tmp_path / "small.onnx", TABLE[:2])
    assert not any(each.passed for each in self_test(small, vectors, "vectors"))


def test_a_written_file_is_checked(tmp_path, monkeypatch):
    model = write_graph(tmp_path / "model.onnx")
    monkeypatch.setattr("builtins.round", lambda value, digits: 0.0)
    with pytest.raises(ConversionError, match="does not hold what the graph gave"):
        write_vectors(model)


def test_inputs_from_files(tmp_path):
    model = Runnable(write_graph(tmp_path / "model.onnx"))
    ids, mask = [[1, 2, 3]], [[1, 1, 1]]
    np.savez(tmp_path / "feeds.npz", input_ids=np.array(ids), attention_mask=np.array(mask, np.int32))
    tensor = {"dtype": "int64", "shape": [1, 3], "data": mask[0]}
    (tmp_path / "feeds.json").write_text(json.dumps({"input_ids": ids, "attention_mask": tensor}))
    for name in ("feeds.npz", "feeds.json"):
        np.testing.assert_array_equal(model.run(model.read(tmp_path / name))["logits"], TABLE[ids])
    with pytest.raises(InputError, match=r"model\.onnx does not run on these inputs"):
        model.run({"input_ids": np.array([1]), "attention_mask": np.array([1])})


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("feeds.json", "[]", "is not a JSON object"),
        ("feeds.json", "{", "not valid JSON"),
        ("feeds.json", '{"input_ids": [[1]]}', "takes input_ids, attention_mask; given were input_ids"),
        ("feeds.json", '{"input_ids": [["x"]], "attention_mask": [[1]]}', "input_ids is not an array of int64"),
        ("feeds.json", '{"input_ids": [[3.5]], "attention_mask": [[1]]}', "input_ids is not an array of int64"),
        ("feeds.json", '{"input_ids": [[1], [1, 2]], "attention_mask": [[1]]}', "input_ids is not an array of int64"),
        ("feeds.npz", "no zip", r"is not an \.npz file"),
    ],
)  # fmt: skip
def test_inputs_that_cannot_be_read(tmp_path, file, text, message):
    (tmp_path / file).write_text(text)
    with pytest.raises(InputError, match=message):
        Runnable(write_graph(tmp_path / "model.onnx")).read(tmp_path / file)


def test_rows_come_as_they_were_written(tmp_path):
    arrays = {"a": [[0, 1], [2, 3], [4.5, 5]], "b": ["x", "y", "z"]}
    np.savez(tmp_path / "rows.npz", **arrays)
    assert {name: array.tolist() for name, array in read_rows(tmp_path / "rows.npz").items()} == arrays


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused(value):
    check_finite(np.array([1.0]), "a")
    check_finite(np.array(["nan"]), "a")
    with pytest.raises(InputError, match="a holds NaN or infinity"):
        check_finite(np.array([1.0, value]), "a")


# Sessions of ONNX Runtime: one thread, no word of its own, and errors without codes, source lines and paths


@pytest.mark.parametrize("prepacking", [False, True])
def test_a_session_runs_on_one_thread(tmp_path, prepacking):
    onnx.save(graph("y = Add(x, x)", "float[n] x", "float[n] y"), tmp_path / "m.onnx")
    session = load_session(tmp_path / "m.onnx", prepacking=prepacking)
    assert session.run(["y"], {"x": np.array([1, 2], np.float32)})[0].tolist() == [2, 4]
    options = session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)
    assert options.use_deterministic_compute


def test_onnx_runtime_keeps_nothing_for_its_makers(tmp_path):
    code = "from onnxreg.converters.runtime.sessions import session_options; session_options()"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}
    subprocess.run([sys.executable, "-c", code], env=env | {"HOME": str(tmp_path)}, check=True)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def nameless_constant() -> Any:
    model = graph("y = Relu(x)", opset=17)
    model.graph.node[0].CopyFrom(onnx.helper.make_node("Constant", [], ["y"], name="/bert/Constant"))
    return model


def stored(**fields: Any) -> Any:
    model = graph("y = Add(x, w)", "float[1] x", "float[1] y", opset=17)
    model.graph.node[0].input[1] = "/bert/w"
    model.graph.initializer.add(name="/bert/w", data_type=TensorProto.FLOAT, dims=[4], **fields)
    return model


LOCATION = [onnx.StringStringEntryProto(key="location", value="gone.data")]


@pytest.mark.parametrize("as_bytes", [True, False])
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (nameless_constant(), "/bert/Constant"),
        (stored(raw_data=b"ab"), "/bert/w"),
        (stored(data_location=TensorProto.EXTERNAL, external_data=LOCATION), "gone.data"),
        (graph("y = Relu(x)", opset=999), "official support for domain ai.onnx is till"),
        (b"not a model", "rotobuf parsing failed."),
    ],
)
def test_a_graph_that_does_not_load(model, reason, as_bytes, tmp_path, monkeypatch):
    place = tmp_path / "the  models" / "x failed: y"
    place.mkdir(parents=True)
    monkeypatch.chdir(place)
    data = model if isinstance(model, bytes) else model.SerializeToString()
    (place / "m.onnx").write_bytes(data)
    with pytest.raises(ConversionError) as caught:
        load_session(data if as_bytes else place / "m.onnx")
    message = caught.value.message
    assert reason in message
    assert message.startswith(f"ONNX Runtime cannot load {'the model' if as_bytes else 'm.onnx'}: ")
    assert not any(part in message for part in ("ONNXRuntimeError", ".cc:", str(tmp_path), "x failed"))
    assert len(message) <= MAX_MESSAGE_CHARS + len(" ... ")


def test_paths_above_the_graph_and_long_reasons(tmp_path):
    home = tmp_path / "jane"
    error = ort.capi.onnxruntime_pybind11_state.Fail(f'at "{home / "up.data"}" {"so " * 300}the end')
    message = with_reason("it failed", error, home / "model" / "m.onnx")
    assert message.startswith('it failed: at "up.data" so so') and message.endswith("so so the end")


FEEDS = [{"x": np.random.default_rng(1).normal(size=(4, 16)).astype(np.float32)}]
SILENT = {
    "dynamic": OnnxDynamicQuantization(),
    "QDQ": OnnxStaticQuantization(FEEDS),
    "histograms": OnnxStaticQuantization(FEEDS, calibrate_method="Percentile"),
    "fusions": OrtTransformersOptimization(only_onnxruntime=True, opt_level=1),
}


@pytest.mark.parametrize("work", SILENT.values(), ids=SILENT)
def test_a_pass_that_succeeds_prints_nothing(work, capfd, monkeypatch):
    """One weight with two readers, which the exact kernels of ONNX Runtime 1.31 refuse, and weights without one."""
    monkeypatch.setattr(logging.root, "handlers", [])  # other tests import the quantizer, which adds its own
    body = "zero = Constant<value_float = 0.0>() h = MatMul(x, w) r = Relu(h) y = MatMul(r, w)"
    model = graph(body, "float[n, 16] x", "float[n, 16] y", w=(16, 16), unread=(16, 16))
    run_and_compare("step", work, model, feeds=FEEDS)
    assert capfd.readouterr() == ("", "")


def test_a_failure_is_raised_and_not_printed(capfd):
    with pytest.raises(ConversionError):
        models.session(read(graph("y = q.Foo(x)", "float[n] x", "float[n] y")))
    reshape = graph("y = Reshape(x, s)", "float[n] x, int64[1] s", "float[m] y")
    with pytest.raises(ConversionError):
        all_outputs(reshape, [{"x": np.ones(3), "s": np.array([7])}], "the graph")
    assert capfd.readouterr() == ("", "")
