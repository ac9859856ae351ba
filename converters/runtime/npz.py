"""`.npz` files without Python objects in them."""

from pathlib import Path
from typing import Any

from onnxreg.schema.core.errors import InputError, NotFoundError, unreadable
from onnxreg.schema.core.given_file import HEAD_BYTES, check_content

Arrays = dict[str, Any]
"""numpy arrays by name."""


def read_arrays(path: Path, label: str | None = None) -> Arrays:
    """The arrays of an `.npz` file, whatever their shapes; errors call it `label`, or by its name.

    Raises NotFoundError if there is no file, HostError if it cannot be read, InputError if it holds anything
    but plain arrays.
    """
    import numpy as np

    label = label or path.name
    if not path.is_file():
        raise NotFoundError(f"there is no file {label}")
    try:
        with path.open("rb") as file:
            check_content(file.read(HEAD_BYTES), label)
            file.seek(0)
            members = np.load(file, allow_pickle=False)
            return {name: _array(members[name]) for name in members.files}
    except MemoryError as error:
        raise InputError(f"{label} says that it holds more than there is memory for") from error
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno:
            raise unreadable(label, error) from error
        raise InputError(f"{label} is not an .npz file of plain arrays", "a pickle is never read") from error


def _array(member: Any) -> Any:
    """Refuse the bytes that numpy gives for a member that is not an array, and arrays of records."""
    if isinstance(member, bytes) or member.dtype.names is not None:
        raise TypeError("no array")
    return member


def read_rows(path: Path) -> Arrays:
    """The same, of arrays with equally many rows along the first axis; InputError if they are not."""
    arrays = read_arrays(path)
    if not all(array.ndim for array in arrays.values()) or len({*map(len, arrays.values())}) != 1:
        raise InputError(f"{path.name}: its arrays do not have the same number of rows")
    return arrays


def check_finite(array: Any, label: str) -> None:
    """Raise InputError, naming `label`, if an array of floats holds NaN or infinity."""
    import numpy as np

    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        raise InputError(f"{label} holds NaN or infinity")
