"""Rows of arrays on disk: `.npz` files without Python objects in them."""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import InputError, NotFoundError

Rows = dict[str, Any]
"""numpy arrays by name, each with as many rows."""


def read_rows(path: Path, *needed: str) -> Rows:
    """The arrays of an `.npz` file. Raises NotFoundError where there is no file, and InputError, naming it, where it holds
    anything but plain arrays of equally many rows, NaN or infinity, or lacks one that is `needed`."""
    found = read_arrays(path, path.name)
    for name in needed:
        if name not in found:
            raise InputError(f"{path.name} has no array called {name}", f"it has {', '.join(sorted(found))}")
    if len({len(array) if array.ndim else None for array in found.values()}) != 1:
        raise InputError(f"{path.name}: its arrays do not have the same number of rows")
    for name, array in found.items():
        check_finite(array, f"{path.name}: {name}")
    return found


def read_arrays(path: Path, what: str) -> Rows:
    """The arrays of an `.npz` file, whatever their shapes; errors call it `what`."""
    import numpy as np

    if not path.is_file():
        raise NotFoundError(f"{what}: there is no file {path.name}")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (
        ValueError,
        OSError,
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        AttributeError,
        TypeError,
    ) as error:
        raise InputError(
            f"{what}: {path.name} is no .npz file of plain arrays", "a pickle is never read"
        ) from error


def check_finite(array: Any, what: str) -> None:
    """Raise InputError, naming `what`, where an array of floats holds NaN or infinity."""
    import numpy as np

    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        raise InputError(f"{what} holds NaN or infinity")


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


def shared_rows(rows: Any, others: Any) -> int:
    """How many rows also stand among others."""
    known = {row.tobytes() for row in others}
    return sum(row.tobytes() in known for row in rows)


def digest(rows: Rows) -> Digest:
    """The digest of names, types, shapes and values."""
    parts = [
        part
        for name, array in sorted(rows.items())
        for part in (f"{name} {array.dtype} {array.shape}\n".encode(), array.tobytes())
    ]
    return Digest.of(b"".join(parts))
