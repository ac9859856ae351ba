"""ORT-format files: reading through the bindings of onnxruntime, writing canonically, and the operator config of one.

An ORT-format file is a flatbuffer (onnxruntime/core/flatbuffers/schema/ort.fbs). ONNX Runtime writes the model
first, at the end of the file, and before it a table that tells a minimal build which argument types pick a kernel.
That table's entries come out in the order of a hash table with a random seed, so that no two conversions are equal,
while the model's bytes are. `canonicalize` writes that head again with sorted entries and keeps the model's bytes.
"""

import mmap
import shutil
import struct
import sys
import warnings
from collections import ChainMap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from onnxreg.converters.onnx.elements import ELEMENTS
from onnxreg.converters.onnx.external_data import opening
from onnxreg.converters.onnx.internals import table_position
from onnxreg.converters.onnx.quiet import quiet
from onnxreg.converters.onnx.tensors import tensor_of
from onnxreg.schema.core.errors import ConversionError, InputError, missing_extra, unreadable
from onnxreg.schema.core.given_file import HEAD_BYTES, check_content

if TYPE_CHECKING:
    import onnx_ir as ir

MAX_NODES = 1_000_000
MAX_DEPTH = 32
MIN_ELEMENT_BYTES = 4
"""Bytes of the smallest element of the vectors that are counted."""
BINDINGS = "ort_flatbuffers_py"
PROVEN_RUNTIMES = frozenset({"1.31.1"})
"""ONNX Runtime versions whose canonical files were shown to parse to equal content and to give bit-equal outputs."""
ALIGNMENT_BYTES = 16
"""At least the alignment of every vector in the model, so that moving the model's end never misaligns it."""
Argument = tuple[int, int]
"""(0 for an input or 1 for an output, position)."""
Resolver = tuple[tuple[str, tuple[tuple[str, tuple[Argument, ...]], ...]], ...]
"""Per operator id, per type parameter, the arguments that have that type. Sorted by id and by parameter."""
_MALFORMED = (struct.error, IndexError, KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""The errors of the bindings on bytes that are not a flatbuffer: they check no offset."""


def load_ort(path: Path) -> Any:
    """The root table (`fbs.InferenceSession`) of an ORT-format file, mapped into memory.

    To read from it may raise any of `_MALFORMED`.
    """
    try:
        register_bindings()
        from ort_flatbuffers_py.fbs.InferenceSession import InferenceSession
    except ImportError as error:
        raise missing_extra("onnxruntime", "onnx", "reading an .ort file") from error
    opening(path)
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise unreadable(path.name, error) from error
    check_content(data[:HEAD_BYTES], path.name)
    if not InferenceSession.InferenceSessionBufferHasIdentifier(data, 0):
        raise ValueError("no ORTM identifier")
    return InferenceSession.GetRootAs(data)


def read_ort(path: Path) -> "ir.Model":
    """The model of an ORT-format file, its weights mapped; a node's `version` is the since-version of its operator.

    `meta["ort_format"]` is the number of the format, which the file has as a decimal string (`"6"` since onnxruntime 1.16).
    The converter lists every domain that its runtime registers as an import. There are no local functions.

    Raises InputError, naming the file, if it is not one, or is cut short.
    """
    try:
        return _Reader(path.stat().st_size).model(load_ort(path))
    except _MALFORMED as error:
        raise InputError(
            f"{path.name} is not an ORT-format file, or is cut short",
            "check its size against the source, or convert the .onnx file again",
        ) from error


class _Reader:
    """Builds `onnx_ir` graphs of the tables of a file of `size` bytes; ValueError for what no honest file has.

    Each element of an honest file has bytes of its own. Tables that are referred to again and again, or that
    contain themselves, would be read without end.
    """

    def __init__(self, size: int) -> None:
        self._left = size // MIN_ELEMENT_BYTES
        self._nodes = 0

    def model(self, session: Any) -> "ir.Model":
        """The model of a root table (`load_ort`)."""
        import onnx_ir as ir

        table = session.Model()
        graph = self._graph(table.Graph(), ChainMap(), 0)
        graph.opset_imports.update(
            {text(item.Domain()): item.Version() for item in self._all(table, "OpsetImport")}
        )
        model = ir.Model(graph, ir_version=table.IrVersion())
        model.meta["ort_format"] = int(session.OrtVersion().decode("ascii"))
        return model

    def _all(self, table: Any, name: str) -> list[Any]:
        """The elements of a vector of a table."""
        length = getattr(table, f"{name}Length")()
        self._left -= length
        if self._left < 0:
            raise ValueError("vectors are longer than the file")
        return list(map(getattr(table, name), range(length)))

    def _graph(self, table: Any, outer: "ChainMap[str, ir.Value]", depth: int) -> "ir.Graph":
        """A graph; `outer` are the values of those around it."""
        import onnx_ir as ir

        if depth > MAX_DEPTH:
            raise ValueError("subgraphs are nested too deep")
        self._nodes += table.NodesLength()
        if self._nodes > MAX_NODES:
            raise ValueError("too many nodes")
        types = {text(info.Name()): info.Type() for info in self._all(table, "NodeArgs")}
        values: dict[str, ir.Value] = {}
        scope = outer.new_child(values)

        def value(name: str) -> ir.Value:
            return values.get(name) or values.setdefault(name, self._value(name, types.get(name)))

        def operand(name: bytes) -> ir.Value | None:
            return scope.get(text(name)) or value(text(name)) if name else None

        inputs = [value(text(name)) for name in self._all(table, "Inputs")]
        stored = []
        for tensor in map(self._tensor, self._all(table, "Initializers")):
            stored.append(value(tensor.name))
            if stored[-1].const_value is not None:
                raise ValueError(f"two stored tensors have the name {tensor.name[:80]!r}")
            stored[-1].const_value = tensor
            stored[-1].dtype, stored[-1].shape = tensor.dtype, tensor.shape
        items = [(item, self._all(item, "Outputs")) for item in self._all(table, "Nodes")]
        results = [[value(text(name)) if name else ir.Value(name="") for name in names] for _, names in items]
        nodes = [
            ir.Node(
                text(item.Domain()),
                text(item.OpType()),
                list(map(operand, self._all(item, "Inputs"))),
                self._attributes(item, scope, depth),
                outputs=outputs,
                version=item.SinceVersion(),
                name=text(item.Name()),
            )
            for (item, _), outputs in zip(items, results, strict=True)
        ]
        outputs = map(operand, self._all(table, "Outputs"))
        return ir.Graph(inputs, [one for one in outputs if one], nodes=nodes, initializers=stored)

    def _attributes(self, node: Any, scope: "ChainMap[str, ir.Value]", depth: int) -> list["ir.Attr"]:
        """By name: the converter writes them in the order of a hash table."""
        import onnx_ir as ir

        def graph(table: Any) -> ir.Graph:
            return self._graph(table, scope, depth + 1)

        readers: dict[int, Callable[[Any], Any]] = {
            1: lambda item: float(item.F()),
            2: lambda item: int(item.I()),
            3: lambda item: item.S() or b"",
            4: lambda item: self._tensor(item.T()),
            5: lambda item: graph(item.G()),
            6: lambda item: list(map(float, self._all(item, "Floats"))),
            7: lambda item: list(map(int, self._all(item, "Ints"))),
            8: lambda item: self._all(item, "Strings"),
            9: lambda item: list(map(self._tensor, self._all(item, "Tensors"))),
            10: lambda item: list(map(graph, self._all(item, "Graphs"))),
        }
        items = {text(item.Name()): item for item in self._all(node, "Attributes")}
        return [
            ir.Attr(name, ir.AttributeType(item.Type()), readers[item.Type()](item))
            for name, item in sorted(items.items())
        ]

    def _value(self, name: str, info: Any) -> "ir.Value":
        """A value with the type and shape of a `fbs.TypeInfo`; without them for a sequence or map."""
        import onnx_ir as ir
        from ort_flatbuffers_py.fbs.TensorTypeAndShape import TensorTypeAndShape

        if info is None or info.ValueType() != 1:
            return ir.Value(name=name)
        tensor = TensorTypeAndShape()
        tensor.Init(info.Value().Bytes, info.Value().Pos)
        if tensor.ElemType() not in ELEMENTS:
            return ir.Value(name=name)
        kind, shape = ir.TensorType(ir.DataType(tensor.ElemType())), tensor.Shape()
        dims = None if shape is None else ir.Shape([_dim(dim.Value()) for dim in self._all(shape, "Dim")])
        return ir.Value(name=name, type=kind, shape=dims)

    def _tensor(self, table: Any) -> Any:
        """A stored tensor (`fbs.Tensor`). Weights come last in the file, so that a file cut short shows here first."""
        import numpy as np
        import onnx_ir as ir

        if table.ExternalDataOffset() >= 0:
            raise ValueError("weights in another file")
        name, dtype, dims = text(table.Name()), ir.DataType(table.DataType()), self._all(table, "Dims")
        if any(dim < 0 for dim in dims):
            raise ValueError("a dimension is negative")
        if dtype is ir.DataType.STRING:
            return ir.StringTensor(self._all(table, "StringData"), shape=ir.Shape(dims), name=name)
        data = np.empty(0, np.uint8) if table.RawDataIsNone() else table.RawDataAsNumpy()
        return tensor_of(data, dtype, ir.Shape(dims), name)


def _dim(value: Any) -> int | str | None:
    if value is None or value.DimType() != 1:
        return None if value is None else text(value.DimParam()) or None
    return int(value.DimValue())


def operator_config(path: Path, with_types: bool) -> str:
    """The operator config of an ORT-format file as ONNX Runtime writes it, without comments, which name the file.

    One line for each domain and version of an operator set.
    """
    with quiet():
        from onnxruntime.tools.ort_format_model import create_config_from_models
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves the model's file open
        target = Path(folder, "config")
        create_config_from_models([path], target, with_types)
        lines = target.read_text("utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#"))


def text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8")


def register_bindings() -> None:
    """Make `ort_flatbuffers_py` importable without `onnxruntime.tools`, which imports torch if it is
    installed.

    Raises ImportError if onnxruntime is not installed or ships no bindings.
    """
    if BINDINGS in sys.modules:
        return
    runtime = find_spec("onnxruntime")
    if runtime is None or not runtime.submodule_search_locations:
        raise ImportError("onnxruntime is not installed", name="onnxruntime")
    folder = Path(runtime.submodule_search_locations[0]) / "tools/ort_format_model" / BINDINGS
    spec = spec_from_file_location(BINDINGS, folder / "__init__.py", submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise ImportError("onnxruntime ships no flatbuffer bindings", name="onnxruntime")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[BINDINGS] = module


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
    table = _write_vector(builder, [_write_operator(builder, *entry) for entry in head.resolver])
    KernelTypeStrResolver.Start(builder)
    KernelTypeStrResolver.AddOpKernelTypeStrArgs(builder, table)
    resolver = KernelTypeStrResolver.End(builder)
    InferenceSession.Start(builder)
    InferenceSession.AddOrtVersion(builder, version)
    InferenceSession.AddModel(builder, stand_in - (head.model - head.tail))
    InferenceSession.AddKernelTypeStrResolver(builder, resolver)
    builder.Finish(InferenceSession.End(builder), b"ORTM")
    return bytes(builder.Output()[:-stand_in])


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


def _parameters(entry: Any) -> tuple[tuple[str, tuple[Argument, ...]], ...]:
    parameters = []
    for i in range(entry.KernelTypeStrArgsLength()):
        item = entry.KernelTypeStrArgs(i)
        arguments = (item.Args(j) for j in range(item.ArgsLength()))
        parameters.append(
            (item.KernelTypeStr().decode(), tuple((arg.ArgType(), arg.Index()) for arg in arguments))
        )
    return tuple(sorted(parameters))


def _write_operator(builder: Any, name: str, parameters: tuple[tuple[str, tuple[Argument, ...]], ...]) -> int:
    from ort_flatbuffers_py.fbs import ArgTypeAndIndex, KernelTypeStrArgsEntry, OpIdKernelTypeStrArgsEntry

    entries = []
    for parameter, arguments in parameters:
        offsets = []
        for kind, index in arguments:
            ArgTypeAndIndex.Start(builder)
            ArgTypeAndIndex.AddArgType(builder, kind)
            ArgTypeAndIndex.AddIndex(builder, index)
            offsets.append(ArgTypeAndIndex.End(builder))
        label, vector = builder.CreateString(parameter), _write_vector(builder, offsets)
        KernelTypeStrArgsEntry.Start(builder)
        KernelTypeStrArgsEntry.AddKernelTypeStr(builder, label)
        KernelTypeStrArgsEntry.AddArgs(builder, vector)
        entries.append(KernelTypeStrArgsEntry.End(builder))
    label, vector = builder.CreateString(name), _write_vector(builder, entries)
    OpIdKernelTypeStrArgsEntry.Start(builder)
    OpIdKernelTypeStrArgsEntry.AddOpId(builder, label)
    OpIdKernelTypeStrArgsEntry.AddKernelTypeStrArgs(builder, vector)
    return int(OpIdKernelTypeStrArgsEntry.End(builder))


def _write_vector(builder: Any, offsets: list[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data
