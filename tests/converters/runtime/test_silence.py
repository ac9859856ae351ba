"""ONNX Runtime prints nothing of its own: what it raises is said by us, and what succeeds is silent."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from onnxreg.converters.passes.graph_passes import OrtTransformersOptimization
from onnxreg.converters.passes.pass_contract import run_and_compare
from onnxreg.converters.passes.quantization import OnnxDynamicQuantization, OnnxStaticQuantization
from onnxreg.converters.passes.tools import model_file, samples
from onnxreg.schema.core.errors import ConversionError

FEEDS = [{"x": np.random.default_rng(1).normal(size=(4, 16)).astype(np.float32)}]


def model() -> Any:
    """One weight with two readers, which the exact kernels of ONNX Runtime 1.31 refuse, and weights without one."""
    parsed = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n, 16] x) => (float[n, 16] y) {'
        " zero = Constant<value_float = 0.0>() h = MatMul(x, w) r = Relu(h) y = MatMul(r, w) }"
    )
    weight = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    parsed.graph.initializer.extend(onnx.numpy_helper.from_array(weight, name) for name in ("w", "unread"))
    return parsed


@pytest.mark.parametrize(
    "work",
    [
        OnnxDynamicQuantization(),
        OnnxStaticQuantization(FEEDS),
        OrtTransformersOptimization(only_onnxruntime=True, opt_level=1),
    ],
    ids=["dynamic", "QDQ", "fusions"],
)
def test_a_pass_that_succeeds_prints_nothing(
    work: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])  # other tests import the quantizer, which adds its own
    run_and_compare("step", work, model(), feeds=FEEDS)
    assert capfd.readouterr() == ("", "")


def not_loaded() -> Any:
    return model_file.session(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 18, "q" : 1]> g (float[n] x) => (float[n] y) { y = q.Foo(x) }'
        )
    )


def not_run() -> Any:
    reshape = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n] x, int64[1] s) => (float[m] y) { y = Reshape(x, s) }'
    )
    return samples.all_outputs(reshape, [{"x": np.ones(3), "s": np.array([7])}], "the graph")


@pytest.mark.parametrize("fail", [not_loaded, not_run])
def test_a_failure_is_raised_and_not_printed(
    fail: Callable[[], Any], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConversionError):
        fail()
    assert capfd.readouterr() == ("", "")
