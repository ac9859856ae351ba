"""A model in memory and on disk, whatever its size.

In memory a model is one `onnx.ModelProto` with every weight inside. On disk it is one file if protobuf can hold the weights,
else a file and its weights in `<file>.data` beside it, in order and aligned, so that equal models give equal bytes.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.external_data import external_files, tensors
from onnxreg.converters.onnx.graph_operators import attributes, containers
from onnxreg.converters.onnx.onnx_graph import graph_inputs, load_onnx
from onnxreg.converters.onnx.tensors import MAX_SMALL_ELEMENTS, copy_but, tensor_bytes
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.source_files import scrub

MAX_INLINE_WEIGHT_BYTES = 2**31 - 2**26
"""If all weights take more, they go into a separate file: protobuf's limit is 2**31 - 1 bytes, including the graph."""

ALIGNMENT_BYTES = 4096
"""Each tensor in a data file begins at a multiple of this, the size of a memory page."""

FIRST_IR_WITH_CONSTANTS = 4
"""In earlier IR versions each initializer must also be an input."""

SOURCE_KEYS = re.compile(r"namespace|pkg\..*")
"""Metadata in which an exporter describes its source: PyTorch writes classes, lines of code, and paths of files."""

_scratch: ContextVar[Path | None] = ContextVar("scratch", default=None)


def load(path: Path) -> Any:
    """Read an ONNX file with its external data (`onnx.ModelProto`).

    Initializers that are also inputs, as all are in IR version 3, become constants, since passes change weights.

    Raises InputError if the file is not ONNX or is cut short, or if its external data is missing, too short or outside
    its folder.
    """
    import onnx

    model = load_onnx(path)
    external_files(model, path)
    for tensor in tensors(model):
        if tensor.data_location == tensor.EXTERNAL:
            info = onnx.external_data_helper.ExternalDataInfo(tensor)
            with (path.parent / info.location).open("rb") as data:  # onnx itself refuses hard links
                data.seek(info.offset or 0)
                tensor.raw_data = data.read(tensor_bytes(tensor))
            del tensor.external_data[:]
            tensor.ClearField("data_location")
    inputs = graph_inputs(model.graph)
    if len(inputs) < len(model.graph.input):
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        model.ir_version = max(FIRST_IR_WITH_CONSTANTS, model.ir_version)
    return model


def save(model: Any, path: Path, limit: int = MAX_INLINE_WEIGHT_BYTES) -> tuple[str, ...]:
    """Write a model and return the names of its files. After an error no file is left; `model` does not change."""
    data = path.with_name(f"{path.name}.data")
    try:
        if weight_bytes(model) <= limit:
            path.write_bytes(model.SerializeToString())  # without maps, there is one order of fields
            return (path.name,)
        path.write_bytes(_move_out(model, data).SerializeToString(deterministic=True))
        return path.name, data.name
    except BaseException:
        for file in (path, data):
            file.unlink(missing_ok=True)
        raise


def weight_bytes(model: Any) -> int:
    """Return the bytes of all stored tensors of a model, including subgraphs and attributes."""
    return sum(map(tensor_bytes, tensors(model)))


def session(model: Any, label: str = "the model") -> Any:
    """Load a model in ONNX Runtime (`runtime.load_session`). Raises ConversionError, naming `label`, if loading fails."""
    if weight_bytes(model) <= MAX_INLINE_WEIGHT_BYTES:
        return load_session(model.SerializeToString(), name=label)
    with scratch() as directory:
        save(model, directory / "model.onnx")
        return load_session(directory / "model.onnx", name=label)


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a temporary directory for tools that need files, in the workspace that `scratch_in` sets, if any."""
    with tempfile.TemporaryDirectory(prefix=".scratch-", dir=_scratch.get()) as directory:
        yield Path(directory)


@contextmanager
def scratch_in(workspace: Path) -> Iterator[None]:
    """Put scratch directories into `workspace` inside the block, to use its disk."""
    token = _scratch.set(workspace)
    try:
        yield
    finally:
        _scratch.reset(token)


def _move_out(model: Any, data: Path) -> Any:
    """Write the large initializers to `data`, and return the model with references in place of these."""
    import onnx
    import onnx_ir as ir

    light = onnx.ModelProto()
    copy_but(model, light, "graph")
    copy_but(model.graph, light.graph, "initializer")
    large = [one for one in model.graph.initializer if len(one.raw_data) > MAX_SMALL_ELEMENTS]
    weights: list[Any] = list(map(ir.from_proto, large))
    stored = ir.external_data.convert_tensors_to_external(
        weights, data.parent, data.name, alignment=ALIGNMENT_BYTES, align_threshold=0
    )
    for tensor, one in zip(weights, stored, strict=True):
        one.doc_string = tensor.doc_string
        one.metadata_props.update(tensor.metadata_props)
    references = {tensor.name: ir.to_proto(tensor) for tensor in stored}
    light.graph.initializer.extend(references.get(one.name, one) for one in model.graph.initializer)
    return light


def clear_metadata(model: Any) -> None:
    """Remove doc strings and metadata properties from the model and all its parts, in place."""
    for message in _described(model):
        for field in ("doc_string", "metadata_props"):
            if field in message.DESCRIPTOR.fields_by_name:
                message.ClearField(field)


def scrub_metadata(model: Any, *directories: Path) -> list[str]:
    """Remove what an exporter wrote about its source, in place, and shorten absolute paths in other notes to the last part.

    Return the keys of the metadata that changed, and `doc_string` for each doc string.
    """
    keys, notes = list[str](), list[tuple[Any, str, str]]()
    for message in _described(model):
        entries = getattr(message, "metadata_props", [])
        for index in reversed(range(len(entries))):
            if SOURCE_KEYS.fullmatch(str(entries[index].key)):
                keys.append(entries.pop(index).key)
        notes += [(entry, "value", entry.key) for entry in entries]
        notes += [(message, "doc_string", "doc_string")] if getattr(message, "doc_string", "") else []
    values = (getattr(message, field) for message, field, _ in notes)  # bytes, if they are not UTF-8
    read = [value.decode(errors="replace") if isinstance(value, bytes) else value for value in values]
    texts, places = scrub(read, "", *directories)
    for number in map(int, places):
        message, field, key = notes[number]
        setattr(message, field, texts[number])
        keys.append(key)
    return keys


def _described(model: Any) -> Iterator[Any]:
    """Yield the parts of a model that may have a doc string or metadata, nodes first."""
    for body in containers(model):
        yield from (*body.node, *attributes(body), body, *body.value_info)
        if hasattr(body, "initializer"):
            yield from (*body.input, *body.output)
    yield from (model, *tensors(model))
