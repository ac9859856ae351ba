"""The faults of libraries that the converters work around (docs/dev/decisions.md). If one is gone, its test fails: remove both."""

import inspect
import subprocess
import sys
from collections import Counter
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
import torch
from onnxruntime.transformers.float16 import convert_float_to_float16
from support.graphs import graph, read, run, run_and_compare
from transformers.models.modernbert import modeling_modernbert

from onnxreg.converters.passes import merge_decoders, models
from onnxreg.converters.passes.merge_decoders import SWITCH, MergeDecoders
from onnxreg.converters.passes.quantization import OnnxDynamicQuantization, OnnxStaticQuantization
from onnxreg.converters.runtime import sessions
from onnxreg.converters.runtime.sessions import quiet

TWICE = "h = MatMul(x, w) y = MatMul(h, w)"
SATURATES = pytest.mark.skipif(not sessions._saturates(), reason="for x86 processors without VNNI")


class Eigenvalues(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.eigvals(x).real


class Length(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.new_ones(len(x))


def test_torch_prints_the_graph_that_it_cannot_export(tmp_path, capfd):
    """`OnnxConversion` replaces the function that prints."""
    with quiet(), pytest.raises(Exception, match="eigvals"):
        torch.onnx.export(Eigenvalues(), (torch.eye(3),), tmp_path / "model.onnx", dynamo=False)
    assert "graph(" in capfd.readouterr().out


def test_torch_infers_the_shapes_of_a_whole_graph_from_its_weights(tmp_path):
    """`TorchScriptExport` leaves this out: it copies all weights, and the sizes of outputs are known."""
    name = "_jit_pass_onnx_graph_shape_type_inference"
    with quiet(), patch.object(torch._C, name, wraps=getattr(torch._C, name)) as inference:
        torch.onnx.export(torch.nn.Linear(2, 3), (torch.ones(1, 2),), tmp_path / "model.onnx", dynamo=False)
    assert any("weight" in call.args[1] for call in inference.call_args_list)


def test_a_trace_keeps_the_length_of_its_example():
    """`conversion.first_size`."""
    with quiet():
        traced = torch.jit.trace(Length(), torch.ones(2, 3), check_trace=False)
    assert len(traced(torch.ones(5, 3))) == 2


def test_a_model_runs_a_part_for_each_element_of_a_set():
    """`conversion.SortedSet`."""
    assert "in set(self.config.layer_types)" in inspect.getsource(modeling_modernbert)


def test_a_file_with_two_names_is_no_external_data_of_onnx_and_onnx_ir(tmp_path):
    """`onnx_graph.read_graph` reads it."""
    path = tmp_path / "model.onnx"
    onnx.save(graph(TWICE, w=(40, 40)), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "second.bin").hardlink_to(tmp_path / "w.bin")
    with pytest.raises(Exception, match="link"):
        onnx.load(path)
    with pytest.raises(Exception, match="link"):
        onnx_ir.load(path).graph.initializers["w"].const_value.numpy()


@pytest.mark.parametrize("name", ["SimplifiedLayerNormalization"])
def test_the_checker_does_not_know_an_operator_of_onnx_runtime(name):
    """`onnx_graph.check_light`."""
    with pytest.raises(onnx.checker.ValidationError, match=name):
        onnx.checker.check_model(graph(f"y = {name}(x, w)", w=(40,)))


def test_the_float16_converter_makes_a_value_twice():
    """`float16.to_float16` drops the second node."""
    subject = graph("h = MatMul(x, w) a = Add(h, w) b = Mul(h, h) c = Add(h, b) y = Add(a, c)", w=(40, 40))
    half = convert_float_to_float16(subject, op_block_list=["Add"])
    assert max(Counter(name for node in half.graph.node for name in node.output).values()) > 1


def test_all_readers_of_a_matrix_get_the_channels_of_the_first(monkeypatch):
    """`OnnxStaticQuantization` unfolds a Gemm with a shared matrix."""
    rows = [{"x": np.random.default_rng(0).normal(size=(3, 40)).astype(np.float32)}]
    weights = np.random.default_rng(0).normal(size=(40, 40)) * 2.0 ** (np.arange(40) % 8)[:, None]

    def cosine() -> Any:
        subject = graph("h = Gemm<transB=1>(x, w) y = MatMul(h, w)", w=weights.astype(np.float32))
        _, step = run_and_compare("int8", OnnxStaticQuantization(rows), subject, feeds=rows)
        return step.result["parity"]["outputs"]["y"]["cosine"]

    right = cosine()
    monkeypatch.setattr(models, "unfold_gemms", lambda *_, **__: None)
    assert cosine() < 0.9 < right


@SATURATES
def test_no_exact_kernel_takes_a_weight_with_two_readers():
    """`sessions.load_session` tries both kernels."""
    data = run("int8", OnnxDynamicQuantization(), graph(TWICE, w=(40, 40)))[0].SerializeToString()
    onnxruntime.InferenceSession(data, sessions.session_options(exact=False))
    with pytest.raises(Exception, match="existing tensor"):
        onnxruntime.InferenceSession(data, sessions.session_options())


@SATURATES
def test_a_product_in_a_branch_saturates(monkeypatch):
    """`merge_decoders._make_unsigned`."""
    weights = np.array([[127], [127]], np.int8)
    subject = graph("logits = MatMulInteger(x, w)", "uint8[n, 2] x", "int32[n, 1] logits", w=weights)
    monkeypatch.setattr(merge_decoders, "_make_unsigned", lambda body: None)
    merging = MergeDecoders(second_graph=read(subject), with_past="later")
    merged = models.to_proto(merging.apply(read(subject))).SerializeToString()
    session = onnxruntime.InferenceSession(merged, sessions.session_options())
    (products,) = session.run(None, {"x": np.array([[255, 255]], np.uint8), SWITCH: np.array([True])})
    assert products.item() < 2 * 255 * 127


@pytest.mark.more
def test_the_tools_of_onnx_runtime_import_torch():
    """`ort_file.register_bindings` imports the bindings alone."""
    code = "import sys, onnxruntime.tools.ort_format_model; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 1
