"""Rows that a family is fitted and measured on."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from onnxreg.converters.runtime import npz
from onnxreg.converters.runtime.npz import Arrays, check_finite
from onnxreg.schema.core.errors import InputError

RowKeys = tuple[bytes, ...]
"""A key for each row, in order; equal rows have equal keys."""


def read_rows(path: Path, *needed: str) -> Arrays:
    """Read the arrays of an `.npz` file, all with the same number of rows.

    Raises NotFoundError for a missing file, InputError, naming it, if it has anything else, NaN or infinity,
    or lacks an array that is `needed`.
    """
    arrays = npz.read_rows(path)
    for name in needed:
        if name not in arrays:
            raise InputError(f"{path.name} has no array called {name}", f"it has {', '.join(sorted(arrays))}")
    for name, array in arrays.items():
        check_finite(array, f"{path.name}: {name}")
    return arrays


def as_float32(array: Any, shape: Sequence[int], label: str) -> Any:
    """Convert floats `[n, *shape]`, n > 0, to float32; InputError, naming `label`, for any other array."""
    import numpy as np

    if not np.issubdtype(array.dtype, np.floating) or array.shape[1:] != tuple(shape) or not len(array):
        axes = ", ".join(["n", *map(str, shape)])
        raise InputError(
            f"{label} is {array.dtype} {list(array.shape)}", f"it must be floats [{axes}] with a row or more"
        )
    with np.errstate(over="ignore"):
        converted = array.astype(np.float32, copy=False)
    check_finite(converted, f"{label}, as float32,")
    return converted


def keys_of(rows: Any) -> RowKeys:
    """Hash each row."""
    return tuple(sha256(row.tobytes()).digest() for row in rows)


def shared(rows: RowKeys, others: RowKeys) -> int:
    """Count the rows that are also among others."""
    keys = {*others}
    return sum(key in keys for key in rows)
