"""Rows of arrays on disk: `.npz` files without Python objects in them."""

import zipfile
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
    except (ValueError, OSError, zipfile.BadZipFile, EOFError, AttributeError) as error:
        raise InputError(
            f"{what}: {path.name} is no .npz file of plain arrays", "a pickle is never read"
        ) from error


def check_finite(array: Any, what: str) -> None:
    """Raise InputError, naming `what`, where an array of floats holds NaN or infinity."""
    import numpy as np

    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        raise InputError(f"{what} holds NaN or infinity")


def digest(rows: Rows) -> Digest:
    """The digest of names, types, shapes and values."""
    parts = [
        part
        for name, array in sorted(rows.items())
        for part in (f"{name} {array.dtype} {array.shape}\n".encode(), array.tobytes())
    ]
    return Digest.of(b"".join(parts))
