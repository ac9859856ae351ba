"""The verdict of ONNX's checker on a file of any size, with weights inside or outside of it."""

from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.elements import tensor_bytes
from onnxreg.converters.onnx.external_data import external_files, tensors
from onnxreg.converters.onnx.weightless import without_weights
from onnxreg.schema.core.errors import InputError, first_line


def check_model(model: Any, path: Path) -> None:
    """Raise InputError if a loaded file (`onnx_graph.load_onnx`) or its external data is not what ONNX asks
    for.

    The checker itself never sees external data: it refuses files with more than one name, which those of a
    registry have. That the data is there, in its folder and long enough, is checked here. `model` is left as
    it is.
    """
    import onnx

    external_files(model, path)
    light = without_weights(model)
    for tensor in tensors(light):
        if tensor.data_location == tensor.EXTERNAL:
            _bring_zeros(tensor)
    try:
        onnx.checker.check_model(light)
    except onnx.checker.ValidationError as error:
        raise InputError(f"{path.name} is not valid ONNX: {first_line(error)}") from error


def _bring_zeros(tensor: Any) -> None:
    tensor.raw_data = bytes(tensor_bytes(tensor))
    tensor.ClearField("data_location")
    del tensor.external_data[:]
