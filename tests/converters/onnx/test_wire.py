"""Models without their large weights: what is read and written is what protobuf reads and writes."""

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from support.graphs import graph, read

from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.converters.onnx.wire import parse_light
from onnxreg.converters.passes import models
from onnxreg.schema.core.errors import InputError

INVALID = (DecodeError, LookupError, RuntimeError, ValueError)


def model() -> bytes:
    subject = graph("h = MatMul(x, w) y = Add(h, b)", w=(40, 40), b=(40,), other=(50, 30))
    return bytes(models.to_proto(read(subject)).SerializeToString(deterministic=True))


def restored(data: bytes) -> tuple[onnx.ModelProto, int]:
    light, places = parse_light(memoryview(data))
    for tensor in light.graph.initializer:
        if tensor.name in places and not tensor.raw_data:
            start = places[tensor.name]
            tensor.raw_data = data[start : start + 4 * int(np.prod(tensor.dims))]
    return light, len(places)


def test_a_light_model_has_the_places_of_its_large_weights(tmp_path):
    found, count = restored(model())
    assert (found, count) == (onnx.ModelProto.FromString(model()), 2)
    (tmp_path / "model.onnx").write_bytes(model())
    assert load_onnx(tmp_path / "model.onnx") == found
    models.save(models.load(tmp_path / "model.onnx"), tmp_path / "model.onnx")  # over the file that is mapped
    assert (tmp_path / "model.onnx").read_bytes() == model()


def test_no_damage_makes_another_model():
    """A cut or a changed byte: an error, or the model that protobuf reads."""
    draw, data = np.random.default_rng(0), model()
    starts = [at for at in range(len(data)) if at < 120 or at > len(data) - 200]
    for at in (*starts, *draw.integers(0, len(data), 300)):
        changed = bytearray(data)
        changed[at] = draw.integers(256)
        for damaged in (bytes(changed), data[:at]):
            try:
                found, _ = restored(damaged)
            except INVALID:
                continue
            assert found == onnx.ModelProto.FromString(damaged)


@pytest.mark.parametrize(
    "data", [b"\xff" * 20, b"\x3a\xff\xff\xff\xff\x0f\x00", b"\x3a\x02\x2a\x05", b"\x3b\x00"]
)
def test_what_is_not_onnx_is_refused(data, tmp_path):
    (tmp_path / "model.onnx").write_bytes(data)
    with pytest.raises(InputError):
        models.load(tmp_path / "model.onnx")


def test_a_weight_with_two_values_or_a_false_size_is_read_by_protobuf():
    subject = onnx.ModelProto.FromString(model())
    weight = subject.graph.initializer[0]
    second = onnx.GraphProto(initializer=[weight]).SerializeToString()
    for tail in (
        second,
        onnx.GraphProto(
            initializer=[onnx.TensorProto(name="w", dims=[2000], data_type=1, raw_data=b"12")]
        ).SerializeToString(),
    ):
        data = model() + b"\x3a" + bytes([len(tail) & 127 | 128, len(tail) >> 7]) + tail
        assert restored(data)[0] == onnx.ModelProto.FromString(data)
