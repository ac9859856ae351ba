"""Deltas of real files: each pair is made, applied, and compared with a bound that likeness explains."""

import hashlib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from safetensors.numpy import save_file
from support.registries import retrained

from onnxreg.converters.delta.make import ModelFile, make_delta, read_extents
from onnxreg.registry.delta import apply
from onnxreg.schema.core.digest import Descriptor, Digest
from onnxreg.schema.delta.delta_format import BLOCK_BYTES, COPY, DIFFERENCE, DeltaHeader, Span, read_spans


def model_file(path: Path, *beside: Path) -> ModelFile:
    """A file with its tensors; those `beside` it may be its external data or describe it."""
    extents = read_extents({item.name: item for item in (path, *beside)})
    digest = Digest(hashlib.sha256(path.read_bytes()).hexdigest())
    return ModelFile(path, Descriptor(digest, path.stat().st_size), extents[path.name])


def share(old: ModelFile, new: ModelFile, target: Path) -> float | None:
    """The delta's share of the new file, after a check that it gives the new file; None if there is no delta."""
    with target.open("wb") as sink:
        size = make_delta(old, new, sink)
    if size is None:
        return None
    assert size == target.stat().st_size
    with target.open("rb") as delta, old.path.open("rb") as before:
        header = DeltaHeader.read_from(delta)
        made = b"".join(bytes(part) for part in apply(delta, header, [before]))
    assert made == new.path.read_bytes()
    return size / max(1, new.descriptor.size)


def spans(target: Path) -> list[Span]:
    with target.open("rb") as delta:
        return list(read_spans(delta, DeltaHeader.read_from(delta)))


def write_onnx(path: Path, model: onnx.ModelProto, **options: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    onnx.save(model, path, **options)
    return path


def pair(root: Path, *dtypes: type, **options: Any) -> list[ModelFile]:
    """A model before and after a training."""
    models = [retrained.model(step, *dtypes) for step in range(2)]
    return [
        model_file(write_onnx(root / str(step) / "m.onnx", model, **options))
        for step, model in enumerate(models)
    ]


@pytest.mark.parametrize(
    ("dtype", "limit"), [(np.float32, 0.5), (np.float16, 0.36), (np.int8, 0.07)], ids=lambda item: str(item)
)
def test_a_fine_tune(tmp_path: Path, dtype: type, limit: float) -> None:
    value = share(*pair(tmp_path, dtype), tmp_path / "delta")
    assert value is not None and value < limit
    assert any(span.op == DIFFERENCE for span in spans(tmp_path / "delta"))
    share(*pair(tmp_path, dtype), tmp_path / "again")
    assert (tmp_path / "delta").read_bytes() == (tmp_path / "again").read_bytes()


def test_safetensors(tmp_path: Path) -> None:
    for step in range(2):
        save_file(
            {"weight": retrained.weights(step), "steps": np.full(10, step)}, tmp_path / f"{step}.safetensors"
        )
    files = [model_file(tmp_path / f"{step}.safetensors") for step in range(2)]
    value = share(*files, tmp_path / "delta")
    assert value is not None and value < 0.5


def test_external_data_is_matched_by_the_model_beside_it(tmp_path: Path) -> None:
    files = []
    for step in range(2):
        path = tmp_path / str(step) / "m.onnx"
        write_onnx(path, retrained.model(step), save_as_external_data=True, location="m.data")
        files.append(model_file(path.parent / "m.data", path))
    value = share(*files, tmp_path / "delta")
    assert value is not None and value < 0.5


def test_ort_from_onnx_and_from_another_ort(tmp_path: Path) -> None:
    from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions

    files = []
    for step in range(2):
        source = write_onnx(tmp_path / str(step) / "m.onnx", retrained.model(step))
        options = SessionOptions()
        options.optimized_model_filepath = str(source.with_suffix(".ort"))
        options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.add_session_config_entry("session.save_model_format", "ORT")
        InferenceSession(source, options)
        files.append((model_file(source), model_file(source.with_suffix(".ort"))))
    within = share(*files[1], tmp_path / "within")
    between = share(files[0][1], files[1][1], tmp_path / "between")
    assert within is not None and within < 0.01
    assert between is not None and between < 0.5


def test_names_and_order_of_another_producer(tmp_path: Path) -> None:
    renamed = retrained.model(1, weight="onnx::MatMul_1", bias="b2")
    reordered = list(reversed(renamed.graph.initializer))
    del renamed.graph.initializer[:]
    renamed.graph.initializer.extend(reordered)
    old = model_file(write_onnx(tmp_path / "old.onnx", retrained.model(0)))
    value = share(old, model_file(write_onnx(tmp_path / "new.onnx", renamed)), tmp_path / "delta")
    assert value is not None and value < 0.5


def test_equal_tensors_under_other_names_are_copied(tmp_path: Path) -> None:
    old = model_file(write_onnx(tmp_path / "old.onnx", retrained.model(1)))
    new = model_file(write_onnx(tmp_path / "new.onnx", retrained.model(1, weight="other")))
    value = share(old, new, tmp_path / "delta")
    assert value is not None and value < 0.005
    assert max(spans(tmp_path / "delta"), key=lambda span: span.length).op == COPY


def test_a_training_from_scratch_gets_no_delta(tmp_path: Path) -> None:
    other = retrained.model(0)
    values = np.random.default_rng(99).normal(0, 0.05, (500, 600)).astype(np.float32)
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "weight"))
    old = model_file(write_onnx(tmp_path / "old.onnx", retrained.model(0)))
    assert share(old, model_file(write_onnx(tmp_path / "new.onnx", other)), tmp_path / "delta") is None


def test_a_text_file_is_copies_and_literals(tmp_path: Path) -> None:
    words = "".join(f'"word{index}": {index},\n' for index in range(20_000))
    (tmp_path / "a.json").write_text(words)
    (tmp_path / "b.json").write_text(words.replace('"word777"', '"Word777"'))
    value = share(model_file(tmp_path / "a.json"), model_file(tmp_path / "b.json"), tmp_path / "delta")
    assert value is not None and value < 0.01


def test_modes_do_not_depend_on_the_build_of_zlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = pair(tmp_path, np.float16)
    share(old, new, tmp_path / "first")
    compressobj: Callable[..., Any] = zlib.compressobj
    monkeypatch.setattr(zlib, "compressobj", lambda level, *rest: compressobj(min(level, 1), *rest))
    share(old, new, tmp_path / "second")
    plans = [[span._replace(payload=b"") for span in spans(tmp_path / name)] for name in ("first", "second")]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("name", ["m.onnx", "m.ort", "m.safetensors"])
@pytest.mark.parametrize("data", [b"", b"nonsense" * 9000, b"\x00" * 9000, b"\xff" * 9000])
def test_a_file_that_cannot_be_parsed_has_no_tensors(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    assert read_extents({name: tmp_path / name}) == {name: []}


@pytest.mark.parametrize(
    "header",
    [
        "[]",
        '{"a":[]}',
        '{"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4000]}}',
        '{"a":{"dtype":"F32","shape":[1000],"data_offsets":[0.5,4000.5]}}',
        "[" * 100_000,
    ],
)
def test_an_unexpected_header_of_safetensors_names_no_tensors(tmp_path: Path, header: str) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(5000))
    assert read_extents({path.name: path}) == {path.name: []}


def test_tensors_that_begin_with_equal_bytes_are_told_apart(tmp_path: Path) -> None:
    """The first bytes of each are in a node as well, before all of them, once with as many bytes."""
    sizes = {"long": 300, "same": 500, "a": 500, "b": 400, "c": 500}
    first, second, *stored = [
        onnx.numpy_helper.from_array(np.r_[np.zeros(100), np.full(size, at)].astype(np.float32), name)
        for at, (name, size) in enumerate(sizes.items(), 1)
    ]
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[1] x) => (float[1] y) { y = Relu (x) }'
    )
    for tensor in (second, first):
        model.graph.node.insert(0, onnx.helper.make_node("Constant", [], [tensor.name], value=tensor))
    model.graph.initializer.extend(stored)
    path = write_onnx(tmp_path / "m.onnx", model)
    data, extents = path.read_bytes(), read_extents({"m.onnx": path})["m.onnx"]
    found = {one.name: data[one.start : one.start + one.length] for one in extents}
    assert found == {tensor.name: tensor.raw_data for tensor in stored}


def test_a_tensor_that_ends_after_its_file_is_left_out(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "m.onnx", retrained.model(0), save_as_external_data=True, location="m.data")
    data = tmp_path / "m.data"
    data.write_bytes(data.read_bytes()[:1000])
    assert read_extents({"m.onnx": path, "m.data": data})["m.data"] == []


@given(
    old=st.binary(max_size=3000),
    edits=st.lists(st.tuples(st.integers(0, 3000), st.binary(max_size=50)), max_size=5),
)
def test_any_two_files(tmp_path_factory: pytest.TempPathFactory, old: bytes, edits: Any) -> None:
    root = tmp_path_factory.mktemp("pair")
    new = bytearray(old)
    for at, data in edits:
        new[at : at + len(data) // 2] = data
    (root / "old.bin").write_bytes(old)
    (root / "new.bin").write_bytes(new)
    share(model_file(root / "old.bin"), model_file(root / "new.bin"), root / "delta")


def test_a_tensor_of_many_blocks(tmp_path: Path) -> None:
    """Blocks end inside of a tensor, and equal blocks become one copy."""
    size = 3 * BLOCK_BYTES // 4 + 1000
    values = np.random.default_rng(1).normal(0, 1, size).astype(np.float32)
    changed = values.copy()
    changed[-10:] *= 1.001
    for name, array in (("old", values), ("new", changed)):
        save_file({"weight": array}, tmp_path / f"{name}.safetensors")
    old, new = (model_file(tmp_path / f"{name}.safetensors") for name in ("old", "new"))
    value = share(old, new, tmp_path / "delta")
    assert value is not None and value < 0.001
    assert [span.op for span in spans(tmp_path / "delta")].count(COPY) <= 2
