"""Whether two model files hold the same weights, up to what a conversion changes."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onnxreg.converters.inspection import onnx_graph, ort_graph
from onnxreg.converters.inspection.elements import ELEMENTS, FLOATS
from onnxreg.schema.errors import InputError

FLOAT_TOLERANCE = 1e-6
"""Relative: what constant folding may change in a float32 tensor that keeps its name."""
HALF_TOLERANCE = 2.0**-10
"""Relative: two roundings to float16; beside it `HALF_TINY` absolute, and clipping at `HALF_MAX`."""
HALF_TINY = 1e-7
HALF_MAX = 65504.0
BLOCK = 2**20
"""Elements that are compared at once."""
STEPS = 1.001
"""A dequantized weight `(q - zero point) * scale` lies within so many scales of its parent: one, and rounding."""


def read_tensors(path: Path) -> Mapping[str, Any]:
    """The numeric initializers of an ONNX or ORT-format file's main graph, each a numpy array read on access."""
    return _OrtTensors(path) if path.suffix == ".ort" else _OnnxTensors(path)


def compare_weights(parent: Mapping[str, Any], other: Mapping[str, Any], path: str, parent_path: str) -> int:
    """Count the weights of `other` that have a counterpart in `parent`; all of them must agree.

    Counterparts have one name (`<name>_quantized` with its scale and zero point for a quantized one) and one shape.
    Raises InputError, naming the tensor, where one differs by more than the tolerances of this module.
    """
    compared = 0
    for name in other:
        stem = name.removesuffix("_quantized")
        if stem not in parent or (stem != name and f"{stem}_scale" not in other):
            continue
        reference, value = parent[stem], other[name]
        if reference.shape != value.shape or reference.dtype.name not in FLOATS or not value.size:
            continue
        if stem != name:
            scale, zero_point = other[f"{stem}_scale"], other.get(f"{stem}_zero_point")
            agree = _quantized_agree(reference, value, scale, zero_point)
        elif value.dtype.name in FLOATS:
            agree = _floats_agree(reference.reshape(-1), value.reshape(-1))
        else:
            continue
        if not agree:
            raise InputError(
                f"{path} is not a conversion of {parent_path}: their weights differ in {stem}",
                "the directory mixes files of two exports; export again into an empty directory",
            )
        compared += reference.ndim >= 2
    return compared


def _floats_agree(reference: Any, value: Any) -> bool:
    """Whether each element lies within the tolerance of the narrower type; flat arrays, read in blocks."""
    import numpy as np

    half = "float16" in (reference.dtype.name, value.dtype.name)
    wide = np.float64 if "float64" in (reference.dtype.name, value.dtype.name) else np.float32
    for start in range(0, reference.size, BLOCK):
        a = reference[start : start + BLOCK].astype(wide)
        b = value[start : start + BLOCK].astype(wide)
        if half:
            a, b = np.clip(a, -HALF_MAX, HALF_MAX), np.clip(b, -HALF_MAX, HALF_MAX)
        relative, absolute = (HALF_TOLERANCE, HALF_TINY) if half else (FLOAT_TOLERANCE, 0.0)
        if not np.allclose(b, a, relative, absolute, equal_nan=True):
            return False
    return True


def _quantized_agree(reference: Any, value: Any, scale: Any, zero_point: Any) -> bool:
    """Whether each dequantized element lies within `STEPS` scales, per tensor or along an axis of their number."""
    import numpy as np

    if zero_point is not None and zero_point.size != scale.size:
        return False
    axes = (
        [axis for axis in range(value.ndim) if scale.size == value.shape[axis]] if scale.size > 1 else [None]
    )
    for axis in axes:
        shape = [scale.size if at == axis else 1 for at in range(value.ndim)]
        steps = scale.astype(np.float32).reshape(shape)
        restored = value.astype(np.float32)
        if zero_point is not None:
            restored -= zero_point.astype(np.float32).reshape(shape)
        restored *= steps
        restored -= reference
        np.abs(restored, out=restored)
        if np.all(restored <= STEPS * np.abs(steps)):
            return True
    return False


class _OnnxTensors(Mapping[str, Any]):
    def __init__(self, path: Path) -> None:
        self._folder = path.parent
        model = onnx_graph.load_onnx(path)
        self._tensors = {t.name: t for t in model.graph.initializer if _numeric(t.data_type)}

    def __len__(self) -> int:
        return len(self._tensors)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __getitem__(self, name: str) -> Any:
        import onnx.numpy_helper

        tensor = type(self._tensors[name])()
        tensor.CopyFrom(self._tensors[name])
        return onnx.numpy_helper.to_array(tensor, str(self._folder))


class _OrtTensors(Mapping[str, Any]):
    def __init__(self, path: Path) -> None:
        with ort_graph.reading(path):
            graph = ort_graph.load_ort(path).Model().Graph()
            found = {tensor.Name().decode(): tensor for tensor in ort_graph.tensors(graph)}
        self._path = path
        self._tensors = {name: tensor for name, tensor in found.items() if _numeric(tensor.DataType())}

    def __len__(self) -> int:
        return len(self._tensors)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __getitem__(self, name: str) -> Any:
        tensor = self._tensors[name]
        with ort_graph.reading(self._path):
            data = tensor.RawDataAsNumpy().view(ELEMENTS[tensor.DataType()].name)
            return data.reshape([tensor.Dims(index) for index in range(tensor.DimsLength())])


def _numeric(number: int) -> bool:
    """Whether numpy alone can read an element type."""
    name = ELEMENTS[number].name if number in ELEMENTS else ""
    return name in {"int8", "uint8", "int32", "int64", "float16", "float32", "float64"}
