"""The tensors of an ONNX file, and the files beside it that hold some of them (external data).

A listener gets the path of every file, the model included, before the file is read: it shows which file crashed the process.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.graph_operators import attributes, containers
from onnxreg.converters.onnx.tensors import tensor_bytes
from onnxreg.schema.core.errors import InputError, about
from onnxreg.schema.core.files import HEAD_BYTES, check_content
from onnxreg.schema.core.ref import check_path

MAX_DIGITS = 18
"""Limit on the decimal digits of an offset or length in bytes: numbers below 2**63."""
_listener: ContextVar[Callable[[Path], None] | None] = ContextVar("listener", default=None)


class MissingDataError(InputError):
    """External data of a model is missing. `files` are the paths of the missing files."""

    def __init__(self, message: str, hint: str, files: Sequence[str]) -> None:
        super().__init__(message, hint)
        self.files = tuple(files)


def external_files(model: Any, path: Path) -> tuple[str, ...]:
    """The external data files of a model (`onnx.ModelProto`) at `path`, relative to its folder, sorted.

    Raises InputError if a location leaves the folder, MissingDataError if a file is missing, InputError if one is too short.
    """
    ends: dict[str, int] = {}
    for tensor in tensors(model):
        if tensor.data_location != tensor.EXTERNAL:
            continue
        if any(dim < 0 for dim in tensor.dims):
            raise InputError(f"tensor {tensor.name[:80]!r} of {path.name} has a negative dimension")
        keys = {str(entry.key): str(entry.value) for entry in tensor.external_data}
        location, numbers = keys.get("location", ""), [keys.get(key) or "0" for key in ("offset", "length")]
        with about(
            f"{path.name} keeps tensors in {location[:80]!r}, which is not a file beside it",
            hint="save the model again with its external data in the same directory",
        ):
            location = check_path(location.removeprefix("./"))
        if not all(one.isascii() and one.isdecimal() and len(one) <= MAX_DIGITS for one in numbers):
            raise InputError(f"{path.name} has an external tensor whose offset or length is not a number")
        start, length = map(int, numbers)
        size = tensor_bytes(tensor)
        if size and length not in (0, size):
            raise InputError(
                f"tensor {tensor.name[:80]!r} of {path.name} needs {size} bytes of {location}, it names {length}"
            )
        ends[location] = max(ends.get(location, 0), start + max(length, size))
    homes = (path.parent.resolve(), path.resolve().parent)
    for location in ends:
        real = (path.parent / location).resolve()
        if not any(real.is_relative_to(home) for home in homes):
            message = f"{path.name} keeps tensors in {location}, a link that leads out of its folder"
            raise InputError(message, "put the external data file itself beside the model")
    if missing := sorted(location for location in ends if not (path.parent / location).is_file()):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise MissingDataError(
            f"{path.name} keeps tensors in {missing[0]}{more}, which is missing",
            "put the external data back beside the model; it belongs to the same export",
            [str(path.parent / location) for location in missing],
        )
    for location, end in ends.items():
        file = path.parent / location
        if (size := file.stat().st_size) < end:
            with file.open("rb") as data:
                check_content(data.read(HEAD_BYTES), location)
            raise InputError(
                f"{location} is cut short: {path.name} reads up to byte {end}, it has {size}",
                "copy the external data file again; it must come from the same export as the model",
            )
        opening(file)
    return tuple(sorted(ends))


def tensors(model: Any) -> Iterator[Any]:
    """Yield every dense tensor stored in a model: initializers and attributes, also in subgraphs and functions."""
    for body in containers(model):
        yield from getattr(body, "initializer", ())
        for attribute in attributes(body):
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


@contextmanager
def notify_listener(listener: Callable[[Path], None]) -> Iterator[None]:
    """Call `listener` inside the block with the path of every file, before the file is read."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def opening(path: Path) -> None:
    """Notify the listener that a model file, or its external data, is about to be read."""
    if listener := _listener.get():
        listener(path)
