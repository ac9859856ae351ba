"""Canonical ORT-format bytes, on conversions of small graphs."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnxreg.converters.onnx import ort_file
from onnxreg.converters.passes import ort_format
from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.ort_format import OrtFormat
from onnxreg.schema.core.errors import ConversionError, HostError

GRAPH = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[batch, 8] x) => (float[batch, width] y, int64[three] s) {
    a = MatMul(x, weight)
    b = Softmax(a)
    c = Add(b, a)
    d = Mul(c, c)
    s = Shape(d)
    y = Concat<axis = 1>(d, c)
}
"""
FEED = {"x": np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path, 5)


def write_model(directory: Path, width: int) -> Path:
    graph = onnx.parser.parse_model(GRAPH)
    weight = np.arange(8 * width, dtype=np.float32).reshape(8, width)
    graph.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    path = directory / "model.onnx"
    onnx.save(graph, path)
    return path


def convert(source: Path) -> Path:
    """ONNX Runtime's own file, which is never the same twice."""
    target = source.with_name("raw.ort")
    OrtFormat(FEED)._convert(source, target)
    return target


def outputs(path: Path) -> list[bytes]:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [value.tobytes() for value in session.run(None, FEED)]


@pytest.mark.parametrize("width", [1, 3, 5, 7, 16])
def test_same_model_same_content_same_outputs(tmp_path: Path, width: int) -> None:
    raw = convert(write_model(tmp_path, width))
    canonical = tmp_path / "canonical.ort"
    ort_file.canonicalize(raw, canonical)
    old, new = raw.read_bytes(), canonical.read_bytes()
    before, after = ort_file.read_head(old), ort_file.read_head(new)
    assert (before.version, before.resolver) == (after.version, after.resolver)
    assert old[before.tail :] == new[after.tail :]
    assert len(new) % ort_file.ALIGNMENT_BYTES == 0
    assert outputs(raw) == outputs(canonical)


def test_two_conversions_differ_and_their_canonical_forms_do_not(source: Path, tmp_path: Path) -> None:
    raw, canonical = set(), set()
    for _ in range(6):
        file = convert(source)
        raw.add(file.read_bytes())
        ort_file.canonicalize(file, tmp_path / "canonical.ort")
        canonical.add((tmp_path / "canonical.ort").read_bytes())
    assert len(raw) > 1
    assert len(canonical) == 1


def test_canonical_is_a_fixed_point(source: Path, tmp_path: Path) -> None:
    ort_file.canonicalize(convert(source), tmp_path / "once.ort")
    ort_file.canonicalize(tmp_path / "once.ort", tmp_path / "twice.ort")
    assert (tmp_path / "once.ort").read_bytes() == (tmp_path / "twice.ort").read_bytes()


def test_a_head_that_does_not_parse_back_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = convert(source)
    write_head = ort_file.write_head

    def other(head: ort_file.OrtHeader, tail_size: int) -> bytes:
        return write_head(
            ort_file.OrtHeader(head.version, head.resolver[1:], head.model, head.tail), tail_size
        )

    monkeypatch.setattr(ort_file, "write_head", other)
    with pytest.raises(ConversionError, match="does not parse to the same content"):
        ort_file.canonicalize(raw, tmp_path / "canonical.ort")
    assert not (tmp_path / "canonical.ort").exists()


def test_pass_writes_a_canonical_file_and_a_config_without_paths(source: Path) -> None:
    files, step = run("ort", OrtFormat(FEED), source, "fp32")
    assert step.result == {"canonical": True}
    assert sorted(path.name for path in source.parent.iterdir()) == [
        "model.onnx",
        "model.ort",
        "model.required_operators_and_types.config",
    ]
    config = files.config.read_text()
    assert "#" not in config and str(source.parent) not in config
    assert config.startswith("ai.onnx;")
    assert str(source.parent).encode() not in files.path.read_bytes()


def test_an_unproven_version_keeps_the_file_and_says_so(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort_file, "PROVEN_RUNTIMES", frozenset({"0.0.1"}))
    files, step = run("ort", OrtFormat(FEED), source, "fp32")
    assert files.reproducible is False
    assert step.result == {"canonical": False}
    assert files.path.is_file()


def test_outputs_that_differ_are_refused(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([[b"1"], [b"2"], [b"3"]])
    monkeypatch.setattr(ort_format, "_outputs", lambda session, feed: next(answers))
    with pytest.raises(ConversionError, match="other outputs than the original"):
        run("ort", OrtFormat(FEED), source, "fp32")
    assert not list(source.parent.glob("*.canonical.ort"))


@pytest.mark.parametrize("answers", [["graph", "graph"], ["graph", "file", "file"]])
def test_outputs_of_the_graph_or_of_the_original_file_are_taken(
    source: Path, monkeypatch: pytest.MonkeyPatch, answers: list[str]
) -> None:
    given = iter(answers)
    monkeypatch.setattr(ort_format, "_outputs", lambda session, feed: [next(given).encode()])
    files, _ = run("ort", OrtFormat(FEED), source, "fp32")
    assert files.reproducible
    assert next(given, None) is None


def test_a_conversion_that_fails_leaves_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "model.onnx"
    broken.write_bytes(b"not a model")
    with pytest.raises(ConversionError) as caught:
        run("ort", OrtFormat(FEED), broken, "fp32")
    assert str(tmp_path) not in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_missing_tools_are_named_and_nothing_else(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with pytest.raises(HostError, match=r"^missing dependency: flatbuffers$"):
        OrtFormat(FEED).requires(source)


@pytest.mark.more
def test_another_process_writes_the_same_bytes(source: Path, tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np; from pathlib import Path;"
        "from onnxreg.converters.passes.base import run;"
        "from onnxreg.converters.passes.ort_format import OrtFormat;"
        "feed = {'x': np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)};"
        "run('ort', OrtFormat(feed), Path(sys.argv[1]), 'fp32')"
    )
    written: list[Any] = []
    for place in ("here", "elsewhere"):
        directory = tmp_path / place
        directory.mkdir()
        model = directory / "model.onnx"
        model.write_bytes(source.read_bytes())
        if place == "here":
            run("ort", OrtFormat(FEED), model, "fp32")
        else:
            command = [sys.executable, "-c", code, str(model)]
            subprocess.run(command, check=True, env={"PYTHONHASHSEED": "1"})
        written.append({path.name: path.read_bytes() for path in directory.iterdir()})
    assert written[0] == written[1]
