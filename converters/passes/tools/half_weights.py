"""Weights to float16 in numpy: the numbers of ONNX Runtime's converter, in a tenth of its time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onnxreg.converters.onnx.weightless import MAX_SMALL_ELEMENTS

LARGEST, SMALLEST = 65504.0, 5.96e-08
"""The bounds of float16: the largest finite value, and the smallest above 0."""


def to_half(values: Any, smallest: float = SMALLEST, largest: float = LARGEST) -> Any:
    """float32 to float16 as `onnxruntime.transformers.float16.convert_np_to_float16` does, to the bit.

    What is finite stays finite and what is not zero stays so: values beyond the bounds become the largest or smallest
    of their sign.
    """
    import numpy as np

    with np.errstate(over="ignore", under="ignore"):
        half = values.astype(np.float16)
    low, high = np.array([smallest, largest], np.float16).view(np.uint16)
    magnitudes = half.view(np.uint16) & 0x7FFF
    (lost,) = np.nonzero((magnitudes <= low) | (magnitudes >= high))
    exact = values[lost]
    bounded = np.sign(exact) * np.clip(np.abs(exact), smallest, largest)
    half[lost] = np.where((exact == 0) | np.isinf(exact), exact, bounded).astype(np.float16)
    return half


@contextmanager
def emptied_weights(model: Any, smallest: float = SMALLEST, largest: float = LARGEST) -> Iterator[None]:
    """Inside, the large float32 initializers of a graph have no elements; after it, those of the type they then have.

    A converter inside changes their type to float16 or leaves it; the bounds are those of `to_half`.
    """
    import numpy as np

    emptied = []
    for tensor in model.graph.initializer:
        if tensor.data_type == tensor.FLOAT and len(tensor.raw_data) > 4 * MAX_SMALL_ELEMENTS:
            emptied.append((tensor, tuple(tensor.dims), tensor.raw_data))
            tensor.raw_data = b""
            tensor.dims[:] = [0]
    try:
        yield
    finally:
        while emptied:
            tensor, dims, data = emptied.pop()
            tensor.dims[:] = dims
            halved = tensor.data_type == tensor.FLOAT16
            tensor.raw_data = (
                to_half(np.frombuffer(data, "<f4"), smallest, largest).tobytes() if halved else data
            )
