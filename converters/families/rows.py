"""Rows that a family is fitted and measured on."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from onnxreg.converters.runtime import npz
from onnxreg.converters.runtime.npz import Arrays, check_finite
from onnxreg.schema.core.errors import InputError

RowKeys = tuple[bytes, ...]
"""What equal rows have in common, in order."""


def read_rows(path: Path, *needed: str) -> Arrays:
    """The arrays of an `.npz` file, each with as many rows. Raises NotFoundError where there is no file, and InputError,
    naming it, where it holds anything else, NaN or infinity, or lacks an array that is `needed`."""
    found = npz.read_rows(path)
    for name in needed:
        if name not in found:
            raise InputError(f"{path.name} has no array called {name}", f"it has {', '.join(sorted(found))}")
    for name, array in found.items():
        check_finite(array, f"{path.name}: {name}")
    return found


def as_float32(array: Any, shape: Sequence[int], what: str) -> Any:
    """An array of floats `[n, *shape]` with a row or more, as float32; InputError, naming `what`, where it is none."""
    import numpy as np

    if not np.issubdtype(array.dtype, np.floating) or array.shape[1:] != tuple(shape) or not len(array):
        wanted = ", ".join(["n", *map(str, shape)])
        raise InputError(
            f"{what} is {array.dtype} {list(array.shape)}", f"it must be floats [{wanted}] with a row or more"
        )
    with np.errstate(over="ignore"):
        found = array.astype(np.float32, copy=False)
    check_finite(found, f"{what}, as float32,")
    return found


def keys_of(rows: Any) -> RowKeys:
    """What tells rows apart, small where these are images."""
    return tuple(sha256(row.tobytes()).digest() for row in rows)


def shared(rows: RowKeys, others: RowKeys) -> int:
    """How many rows also stand among others."""
    known = {*others}
    return sum(key in known for key in rows)
