"""Canonical bytes for ORT-format files.

An ORT-format file is a flatbuffer (onnxruntime/core/flatbuffers/schema/ort.fbs). ONNX Runtime writes the model
first, at the end of the file, and before it a table that tells a minimal build which argument types pick a kernel.
That table's entries come out in the order of a hash table with a random seed, so that no two conversions are equal,
while the model's bytes are. `canonicalize` writes that head again with sorted entries and keeps the model's bytes.
"""

import mmap
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.internals import table_position
from onnxreg.converters.onnx.ort.ort_graph import register_bindings
from onnxreg.schema.core.errors import ConversionError

PROVEN = frozenset({"1.31.1"})
"""ONNX Runtime versions whose canonical files were shown to parse to equal content and to give bit-equal outputs."""

ALIGNMENT_BYTES = 16
"""At least the alignment of every vector in the model, so that moving the model's end never misaligns it."""

Argument = tuple[int, int]
"""(0 for an input or 1 for an output, position)."""

Resolver = tuple[tuple[str, tuple[tuple[str, tuple[Argument, ...]], ...]], ...]
"""Per operator id, per type parameter, the arguments that have that type. Sorted by id and by parameter."""


@dataclass(frozen=True)
class OrtHeader:
    """The part of an ORT-format file before the model. `model` and `tail` are byte offsets in the file."""

    version: str
    resolver: Resolver
    model: int
    tail: int


def read_head(data: Any) -> OrtHeader:
    """Read the head of an ORT-format file, held in any bytes-like buffer."""
    register_bindings()
    from ort_flatbuffers_py.fbs.InferenceSession import InferenceSession

    session = InferenceSession.GetRootAs(data, 0)
    position = table_position(session.Model())
    vtable = position - int.from_bytes(data[position : position + 4], "little", signed=True)
    resolver = session.KernelTypeStrResolver()
    entries = (resolver.OpKernelTypeStrArgs(i) for i in range(resolver.OpKernelTypeStrArgsLength()))
    operators = tuple(sorted((entry.OpId().decode(), _parameters(entry)) for entry in entries))
    return OrtHeader(session.OrtVersion().decode(), operators, position, min(position, vtable))


def _parameters(entry: Any) -> tuple[tuple[str, tuple[Argument, ...]], ...]:
    parameters = []
    for i in range(entry.KernelTypeStrArgsLength()):
        item = entry.KernelTypeStrArgs(i)
        arguments = (item.Args(j) for j in range(item.ArgsLength()))
        parameters.append(
            (item.KernelTypeStr().decode(), tuple((arg.ArgType(), arg.Index()) for arg in arguments))
        )
    return tuple(sorted(parameters))


def write_head(head: OrtHeader, tail_size: int) -> bytes:
    """The bytes before a model of `tail_size` bytes; the same head and size give the same bytes.

    Offsets in a flatbuffer are relative, so the head is built on a short substitute for the model whose size is
    congruent to the model's: the references to the model and every alignment come out right.
    """
    import flatbuffers
    from ort_flatbuffers_py.fbs import InferenceSession, KernelTypeStrResolver

    stand_in = head.model - head.tail + ALIGNMENT_BYTES
    stand_in += (tail_size - stand_in) % ALIGNMENT_BYTES
    builder = flatbuffers.Builder(4 * stand_in)
    builder.Pad(stand_in)
    builder.minalign = ALIGNMENT_BYTES
    version = builder.CreateString(head.version)
    table = _vector(builder, [_operator(builder, *entry) for entry in head.resolver])
    KernelTypeStrResolver.Start(builder)
    KernelTypeStrResolver.AddOpKernelTypeStrArgs(builder, table)
    resolver = KernelTypeStrResolver.End(builder)
    InferenceSession.Start(builder)
    InferenceSession.AddOrtVersion(builder, version)
    InferenceSession.AddModel(builder, stand_in - (head.model - head.tail))
    InferenceSession.AddKernelTypeStrResolver(builder, resolver)
    builder.Finish(InferenceSession.End(builder), b"ORTM")
    return bytes(builder.Output()[:-stand_in])


def _operator(builder: Any, name: str, parameters: tuple[tuple[str, tuple[Argument, ...]], ...]) -> int:
    from ort_flatbuffers_py.fbs import ArgTypeAndIndex, KernelTypeStrArgsEntry, OpIdKernelTypeStrArgsEntry

    entries = []
    for parameter, arguments in parameters:
        offsets = []
        for kind, index in arguments:
            ArgTypeAndIndex.Start(builder)
            ArgTypeAndIndex.AddArgType(builder, kind)
            ArgTypeAndIndex.AddIndex(builder, index)
            offsets.append(ArgTypeAndIndex.End(builder))
        label, vector = builder.CreateString(parameter), _vector(builder, offsets)
        KernelTypeStrArgsEntry.Start(builder)
        KernelTypeStrArgsEntry.AddKernelTypeStr(builder, label)
        KernelTypeStrArgsEntry.AddArgs(builder, vector)
        entries.append(KernelTypeStrArgsEntry.End(builder))
    label, vector = builder.CreateString(name), _vector(builder, entries)
    OpIdKernelTypeStrArgsEntry.Start(builder)
    OpIdKernelTypeStrArgsEntry.AddOpId(builder, label)
    OpIdKernelTypeStrArgsEntry.AddKernelTypeStrArgs(builder, vector)
    return int(OpIdKernelTypeStrArgsEntry.End(builder))


def _vector(builder: Any, offsets: list[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def canonicalize(source: Path, target: Path) -> None:
    """Write the canonical form of an ORT-format file to `target`, another path.

    Raises ConversionError if the result does not parse to the same content; then `target` is not left behind.
    """
    with _mapped(source) as data:
        head = read_head(data)
        tail_size = len(data) - head.tail
        front = write_head(head, tail_size)
        with target.open("wb") as file, source.open("rb") as original:
            file.write(front)
            original.seek(head.tail)
            shutil.copyfileobj(original, file, 2**20)
    with _mapped(target) as data:
        written = read_head(data)
    same = (written.version, written.resolver) == (head.version, head.resolver)
    moved = len(front) - head.tail
    if not same or (written.model, written.tail) != (head.model + moved, head.tail + moved):
        target.unlink()
        raise ConversionError(f"the canonical form of {source.name} does not parse to the same content")


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data
