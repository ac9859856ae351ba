"""No edit that changes what a child computes leaves its proof standing."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.prove.children import PROVEN, feeds, verdict_of
from support.prove.edits import changed_models
from support.sampling import sampled

EDITED = (
    "dynamic QInt8 channels", "dynamic QUInt8", "float16 io", "blocks 4 range", "blocks 8 symmetric", "blocks 4 pairs",
    "sizes stored",
)  # fmt: skip


def check_edits(family: dict[str, Path], name: str, seed: int, count: int, scratch: Path) -> None:
    inputs, rounding = list(feeds(3)), 2.0**-8 if name.startswith("float16") else 0.0
    for edited, what in changed_models(onnx.load(family[name]), inputs, seed, count, rounding):
        onnx.save(edited, scratch)
        assert verdict_of(family[""], scratch).verdict != "proven", what


@pytest.mark.parametrize("name", sampled(EDITED, 3))
def test_an_edit_that_changes_outputs_is_not_proven(family, name, tmp_path):
    check_edits(family, name, 1, 20, tmp_path / "edited.onnx")


@pytest.mark.more
@pytest.mark.parametrize("name", PROVEN)
def test_a_thousand_edits_are_not_proven(family, name, tmp_path):
    check_edits(family, name, 2, 1000 // len(PROVEN) + 1, tmp_path / "edited.onnx")


_CODES = {"MatMulInteger": (1,), "MatMulNBits": (1,), "Gather": (0,)}


def change_one_code(model: Any, draw: np.random.Generator) -> tuple[str, tuple[int, ...]]:
    """Move one code of one weight by one step; the tensor, and the place of the code in its matrix."""
    names = {node.input[at] for node in model.graph.node for at in _CODES.get(node.op_type, ())}
    codes = [item for item in model.graph.initializer if item.name in names and item.data_type in (2, 3)]
    tensor = codes[draw.integers(len(codes))]
    (node,) = (node for node in model.graph.node if tensor.name in node.input)
    settings = {"bits": 4} | {item.name: item.i for item in node.attribute}
    packed = node.op_type == "MatMulNBits" and settings["bits"] == 4
    array = onnx.numpy_helper.to_array(tensor).copy()
    index = tuple(int(draw.integers(size)) for size in array.shape)
    low, high = (0, 15) if packed else (np.iinfo(array.dtype).min, np.iinfo(array.dtype).max)
    shift, old = (4 * int(draw.integers(2)) if packed else 0), int(array[index])
    code = (old >> shift) & 15 if packed else old
    moved = code + (1 if code == low or (code < high and draw.integers(2)) else -1)
    array[index] = (old & ~(15 << shift)) | (moved << shift) if packed else moved
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    if len(index) < 3:
        return tensor.name, index
    column, block, at = index
    return tensor.name, (column, block * settings["block_size"] + (2 * at + shift // 4 if packed else at))


CODED = (
    "dynamic QInt8", "dynamic QInt8 channels reduced", "dynamic QUInt8 channels", "blocks 8 range", "blocks 4 range",
)  # fmt: skip


def check_codes(family: dict[str, Path], name: str, seed: int, count: int, scratch: Path) -> None:
    draw = np.random.default_rng(seed)
    for _ in range(count):
        model = onnx.load(family[name])
        place = change_one_code(model, draw)
        onnx.save(model, scratch)
        report = verdict_of(family[""], scratch)
        assert report.verdict == "bounded", place
        assert report.largest is not None
        assert (report.largest.tensor, report.largest.index) == place
        assert report.largest.steps > 0.5


@pytest.mark.parametrize("name", sampled(CODED, 3))
def test_a_weight_that_is_one_step_off_is_named(family, name, tmp_path):
    check_codes(family, name, 3, 15, tmp_path / "changed.onnx")


@pytest.mark.more
@pytest.mark.parametrize("name", CODED)
def test_a_thousand_weights_one_step_off_are_named(family, name, tmp_path):
    check_codes(family, name, 4, 200, tmp_path / "changed.onnx")


def test_a_float16_weight_that_is_one_unit_off_is_named(family, tmp_path):
    draw = np.random.default_rng(5)
    for _ in range(30):
        model = onnx.load(family["float16 io"])
        tensors = [item for item in model.graph.initializer if item.data_type == 10 and len(item.dims) == 2]
        tensor = tensors[draw.integers(len(tensors))]
        array = onnx.numpy_helper.to_array(tensor).copy()
        index = tuple(int(draw.integers(size)) for size in array.shape)
        array[index] = np.nextafter(array[index], np.float16(draw.choice([-1, 1])))
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
        onnx.save(model, tmp_path / "changed.onnx")
        report = verdict_of(family[""], tmp_path / "changed.onnx")
        assert report.verdict == "bounded"
        assert report.largest is not None
        assert (report.largest.tensor, report.largest.index) == (tensor.name, index)


def test_an_equal_tensor_that_is_one_unit_off_is_named(family, tmp_path):
    model = onnx.load(family["dynamic QInt8"])
    (tensor,) = [item for item in model.graph.initializer if item.name == "q_bias"]
    array = onnx.numpy_helper.to_array(tensor).copy()
    array[7] = np.nextafter(array[7], np.float32(1))
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, "q_bias"))
    onnx.save(model, tmp_path / "changed.onnx")
    report = verdict_of(family[""], tmp_path / "changed.onnx")
    assert report.verdict == "not-provable"
    assert report.reasons[0].startswith("q_bias differs from the parent's at [7]")
