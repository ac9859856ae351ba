"""Sessions and thread counts."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxreg.converters.runtime.sessions import load_session
from onnxreg.schema.core.errors import ConversionError


@pytest.mark.parametrize("prepacking", [False, True])
def test_a_session_runs_on_one_thread(tmp_path: Path, prepacking: bool) -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n] a) => (float[n] y) { y = Add(a, a) }'
    )
    onnx.save(graph, tmp_path / "m.onnx")
    session = load_session(tmp_path / "m.onnx", prepacking=prepacking)
    assert session.run(["y"], {"a": np.array([1, 2], np.float32)})[0].tolist() == [2, 4]
    options = session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)
    assert options.use_deterministic_compute


def test_a_file_that_is_no_model_is_named_without_its_path(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"not a model")
    with pytest.raises(
        ConversionError, match=r"^ONNX Runtime cannot load m\.onnx: Protobuf parsing failed\.$"
    ):
        load_session(tmp_path / "m.onnx")


def test_onnx_runtime_keeps_nothing_for_its_makers(tmp_path: Path) -> None:
    code = "from onnxreg.converters.runtime.sessions import session_options; session_options()"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}
    subprocess.run([sys.executable, "-c", code], env=env | {"HOME": str(tmp_path)}, check=True)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
