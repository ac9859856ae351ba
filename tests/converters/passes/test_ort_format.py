"""`OrtFormat`: equal bytes of equal graphs, and the operator config."""

import errno
import struct
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support.graphs import graph, write_optimized

from onnxreg.converters.passes import models, ort_format
from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.ort_format import OrtFormat, canonicalize
from onnxreg.schema.core.errors import ConversionError, HostError

BODY = """a = MatMul(x, weight) b = Softmax(a) c = Add(b, a) d = Mul(c, c) s = Shape(d)
    y = Concat<axis = 1>(d, c)"""
FEED = {"x": np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)}


def write_model(directory: Path, width: int = 5) -> Path:
    weight = np.arange(8 * width, dtype=np.float32).reshape(8, width)
    sides = "float[batch, 8] x", "float[batch, width] y, int64[three] s"
    onnx.save(graph(BODY, *sides, weight=weight), directory / "model.onnx")
    return directory / "model.onnx"


def convert(source: Path) -> Path:
    """ONNX Runtime's own file, which is never the same twice."""
    return write_optimized(source, "ALL", source.with_name("raw.ort"))


def outputs(path: Path) -> list[bytes]:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [value.tobytes() for value in session.run(None, FEED)]


@pytest.mark.parametrize("width", [1, 3, 5, 7, 16])
def test_two_conversions_differ_and_their_canonical_forms_do_not(tmp_path, width):
    source, canonical = write_model(tmp_path, width), tmp_path / "canonical.ort"
    before, after = set(), set()
    for _ in range(6):
        file = convert(source)
        before.add(file.read_bytes())
        assert canonicalize(file, canonical)
        after.add(canonical.read_bytes())
        assert outputs(file) == outputs(canonical)
    assert len(before) > 1
    assert len(after) == 1
    assert canonicalize(canonical, tmp_path / "twice.ort")
    assert (tmp_path / "twice.ort").read_bytes() == canonical.read_bytes()


def test_a_file_that_would_be_another_model_stays_as_it_was(tmp_path, monkeypatch):
    write = ort_format._write_head
    monkeypatch.setattr(
        ort_format, "_write_head", lambda version, table, *sizes: write(version, table[1:], *sizes)
    )
    assert not canonicalize(convert(write_model(tmp_path)), tmp_path / "canonical.ort")
    files, step = run("ort", OrtFormat(), write_model(tmp_path), "fp32")
    assert step.result == {"canonical": False}
    assert outputs(files.path)
    assert not list(tmp_path.glob("*.canonical.ort"))


def test_the_result_may_be_on_another_disk_than_temporary_files(tmp_path, monkeypatch):
    source = write_model(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    files, _ = run("ort", OrtFormat(), source, "fp32")
    assert outputs(files.path)


def test_a_full_disk_is_no_fault_of_a_tool():
    with pytest.raises(OSError, match="No space"), models.tool("x", "x could not export the model"):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("with_types", [True, False])
def test_the_files_and_the_config_are_those_of_onnxruntime(tmp_path, with_types):
    from onnxruntime.tools.ort_format_model import create_config_from_models

    source = write_model(tmp_path)
    files, step = run("ort", OrtFormat(enable_type_reduction=with_types), source, "fp32")
    assert step.result == {"canonical": True}
    config = f"model.required_operators{'_and_types' * with_types}.config"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "model.ort", config]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        create_config_from_models([files.path], tmp_path / "theirs", with_types)
    lines = (tmp_path / "theirs").read_text().splitlines(keepends=True)
    assert files.config.read_text() == "".join(line for line in lines if not line.startswith("#"))
    assert str(tmp_path).encode() not in files.path.read_bytes()


def test_a_conversion_that_fails_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(ConversionError) as caught:
        run("ort", OrtFormat(), tmp_path / "model.onnx", "fp32")
    assert str(tmp_path) not in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]

    def broken(source: Path, target: Path) -> bool:
        target.write_bytes(b"half")
        raise struct.error("another layout")

    monkeypatch.setattr(ort_format, "canonicalize", broken)
    with pytest.raises(ConversionError, match="could not write ORT format: error"):
        run("ort", OrtFormat(), write_model(tmp_path), "fp32")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("module", ["flatbuffers", "onnxruntime.tools.ort_format_model"])
def test_missing_tools_are_named_and_nothing_else(tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(HostError, match=f"^missing dependency: {module.partition('.')[0]}$"):
        OrtFormat().requires(write_model(tmp_path))
