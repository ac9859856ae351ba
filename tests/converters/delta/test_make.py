"""Deltas of real files: each pair is made, applied, and compared with a bound that likeness explains."""

import hashlib
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from support.graphs import graph, store, write_ort
from support.registries import retrained

from onnxreg.converters.delta.make import ModelFile, make_delta, read_extents
from onnxreg.registry.transfer.exchange import apply_delta
from onnxreg.schema.core.canonical import Descriptor, Digest
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
        made = b"".join(bytes(part) for part in apply_delta(delta, header, [before]))
    assert made == new.path.read_bytes()
    return size / max(1, new.descriptor.size)


def spans(target: Path) -> list[Span]:
    with target.open("rb") as delta:
        return list(read_spans(delta, DeltaHeader.read_from(delta)))


def write_onnx(path: Path, model: onnx.ModelProto, **options: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    onnx.save(model, path, **options)
    return path


def likeness(old: Path, new: Path, target: Path) -> float:
    """The share of the delta; 1 if there is none."""
    return share(model_file(old), model_file(new), target) or 1


@pytest.mark.parametrize(
    ("dtype", "limit"), [(np.float32, 0.5), (np.float16, 0.36), (np.int8, 0.07)], ids=str
)
def test_a_fine_tune(tmp_path, dtype, limit):
    old, new = (write_onnx(tmp_path / f"{step}.onnx", retrained.model(step, dtype)) for step in range(2))
    assert likeness(old, new, tmp_path / "delta") < limit
    assert any(span.op == DIFFERENCE for span in spans(tmp_path / "delta"))
    likeness(old, new, tmp_path / "again")
    assert (tmp_path / "delta").read_bytes() == (tmp_path / "again").read_bytes()


def test_safetensors_and_a_tensor_of_many_blocks(tmp_path):
    """Blocks end inside of a tensor, and equal blocks become one copy."""
    old, new = tmp_path / "old.safetensors", tmp_path / "new.safetensors"
    for step, path in enumerate((old, new)):
        save_file({"weight": retrained.weights(step), "steps": np.full(10, step)}, path)
    assert likeness(old, new, tmp_path / "delta") < 0.5
    values = np.random.default_rng(1).normal(0, 1, 3 * BLOCK_BYTES // 4 + 1000).astype(np.float32)
    save_file({"weight": values}, old)
    values[-10:] *= 1.001
    save_file({"weight": values}, new)
    assert likeness(old, new, tmp_path / "delta") < 0.001
    assert [span.op for span in spans(tmp_path / "delta")].count(COPY) <= 2


def test_external_data_is_matched_by_the_model_beside_it(tmp_path):
    paths = [tmp_path / str(step) / "m.onnx" for step in range(2)]
    for step, path in enumerate(paths):
        write_onnx(path, retrained.model(step), save_as_external_data=True, location="m.data")
    files = (model_file(path.parent / "m.data", path) for path in paths)
    assert (share(*files, tmp_path / "delta") or 1) < 0.5


def test_ort_from_onnx_and_from_another_ort(tmp_path):
    sources = [write_onnx(tmp_path / str(step) / "m.onnx", retrained.model(step)) for step in range(2)]
    made = [write_ort(source, "BASIC") for source in sources]
    assert likeness(sources[1], made[1], tmp_path / "within") < 0.01
    assert likeness(*made, tmp_path / "between") < 0.5


def test_names_and_order_of_another_producer_and_equal_tensors_that_are_copied(tmp_path):
    renamed = retrained.model(1, weight="onnx::MatMul_1", bias="b2")
    renamed.graph.initializer.reverse()
    old, new = (tmp_path / f"{name}.onnx" for name in ("old", "new"))
    assert likeness(write_onnx(old, retrained.model(0)), write_onnx(new, renamed), tmp_path / "delta") < 0.5
    write_onnx(old, retrained.model(1))
    write_onnx(new, retrained.model(1, weight="other"))
    assert likeness(old, new, tmp_path / "delta") < 0.005
    assert max(spans(tmp_path / "delta"), key=lambda span: span.length).op == COPY


def test_a_training_from_scratch_gets_no_delta(tmp_path):
    other = retrained.model(0)
    store(other, "weight", np.random.default_rng(99).normal(0, 0.05, (500, 600)).astype(np.float32))
    old = model_file(write_onnx(tmp_path / "old.onnx", retrained.model(0)))
    assert share(old, model_file(write_onnx(tmp_path / "new.onnx", other)), tmp_path / "delta") is None


def test_a_text_file_is_copies_and_literals(tmp_path):
    words = "".join(f'"word{index}": {index},\n' for index in range(20_000))
    (tmp_path / "a.json").write_text(words)
    (tmp_path / "b.json").write_text(words.replace('"word777"', '"Word777"'))
    assert likeness(tmp_path / "a.json", tmp_path / "b.json", tmp_path / "delta") < 0.01


def test_modes_do_not_depend_on_the_build_of_zlib(tmp_path, monkeypatch):
    old, new = (write_onnx(tmp_path / f"{step}.onnx", retrained.model(step, np.float16)) for step in range(2))
    likeness(old, new, tmp_path / "first")
    real: Any = zlib.compressobj
    monkeypatch.setattr(zlib, "compressobj", lambda level, *rest: real(min(level, 1), *rest))
    likeness(old, new, tmp_path / "second")
    plans = [[span._replace(payload=b"") for span in spans(tmp_path / name)] for name in ("first", "second")]
    assert plans[0] == plans[1]


HEADERS = (
    "[]",
    '{"a":[]}',
    '{"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4000]}}',
    '{"a":{"dtype":"F32","shape":[1000],"data_offsets":[0.5,4000.5]}}',
    "[" * 100_000,
    '{"a": {"dtype":"F32","shape":[1000%s],"data_offsets":[0,4000]}}' % (",1" * 64),
)
ENDLESS = graph("y = Relu (x)", "float[1] x", "float[1] y", ir=9)
ENDLESS.graph.initializer.add(name="w", data_type=1, dims=[2**62] * 100_000, data_location=1)
UNPARSED = {
    "external data of 100,000 axes": ("m.onnx", ENDLESS.SerializeToString()),
    **{f"{data[:8]!r} as {name}": (name, data) for name in ("m.onnx", "m.ort", "m.safetensors")
       for data in (b"", b"nonsense" * 9000, b"\x00" * 9000, b"\xff" * 9000)},
    **{header[:40]: ("m.safetensors", len(header).to_bytes(8, "little") + header.encode() + bytes(5000)) for header in HEADERS},
}  # fmt: skip


@pytest.mark.parametrize("case", UNPARSED)
def test_a_file_that_cannot_be_parsed_has_no_tensors(tmp_path, case):
    name, data = UNPARSED[case]
    (tmp_path / name).write_bytes(data)
    assert read_extents({name: tmp_path / name}) == {name: []}


def test_tensors_that_begin_with_equal_bytes_are_told_apart(tmp_path):
    """The first bytes of each are in a node as well, before all of them, once with as many bytes."""
    sizes = {"long": 300, "same": 500, "a": 500, "b": 400, "c": 500}
    first, second, *stored = [
        onnx.numpy_helper.from_array(np.r_[np.zeros(100), np.full(size, at)].astype(np.float32), name)
        for at, (name, size) in enumerate(sizes.items(), 1)
    ]
    model = graph("y = Relu (x)", "float[1] x", "float[1] y", ir=9)
    for tensor in (second, first):
        model.graph.node.insert(0, onnx.helper.make_node("Constant", [], [tensor.name], value=tensor))
    model.graph.initializer.extend(stored)
    path = write_onnx(tmp_path / "m.onnx", model)
    data, extents = path.read_bytes(), read_extents({"m.onnx": path})["m.onnx"]
    found = {one.name: data[one.start : one.start + one.length] for one in extents}
    assert found == {tensor.name: tensor.raw_data for tensor in stored}


def test_a_tensor_that_ends_after_its_file_is_left_out(tmp_path):
    path = write_onnx(tmp_path / "m.onnx", retrained.model(0), save_as_external_data=True, location="m.data")
    data = tmp_path / "m.data"
    data.write_bytes(data.read_bytes()[:1000])
    assert read_extents({"m.onnx": path, "m.data": data})["m.data"] == []


@given(
    old=st.binary(max_size=3000),
    edits=st.lists(st.tuples(st.integers(0, 3000), st.binary(max_size=50)), max_size=5),
)
def test_any_two_files(tmp_path_factory, old, edits):
    root = tmp_path_factory.mktemp("pair")
    new = bytearray(old)
    for at, data in edits:
        new[at : at + len(data) // 2] = data
    (root / "old.bin").write_bytes(old)
    (root / "new.bin").write_bytes(new)
    share(model_file(root / "old.bin"), model_file(root / "new.bin"), root / "delta")
