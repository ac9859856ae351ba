"""Sessions of ONNX Runtime: one thread, no word of its own, and errors without codes, source lines and paths."""

import logging
import os
import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto
from support.graphs import graph

from onnxreg.converters.passes.graph_passes import OrtTransformersOptimization
from onnxreg.converters.passes.pass_contract import run_and_compare
from onnxreg.converters.passes.quantization import OnnxDynamicQuantization, OnnxStaticQuantization
from onnxreg.converters.passes.tools import model_file, samples
from onnxreg.converters.runtime.sessions import MAX_MESSAGE_CHARS, load_session, with_reason
from onnxreg.schema.core.errors import ConversionError


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
        model_file.session(graph("y = q.Foo(x)", "float[n] x", "float[n] y"))
    reshape = graph("y = Reshape(x, s)", "float[n] x, int64[1] s", "float[m] y")
    with pytest.raises(ConversionError):
        samples.all_outputs(reshape, [{"x": np.ones(3), "s": np.array([7])}], "the graph")
    assert capfd.readouterr() == ("", "")
