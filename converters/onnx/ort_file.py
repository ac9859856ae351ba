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
from collections import ChainMap, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.elements import ELEMENTS
from onnxreg.converters.onnx.external_data import opening
from onnxreg.converters.onnx.graph_operators import DEFAULT_DOMAIN, Constant, OperatorUse, Value
from onnxreg.converters.onnx.internals import table_position
from onnxreg.converters.onnx.quiet import quiet
from onnxreg.schema.core.errors import ConversionError, InputError, missing_extra, unreadable
from onnxreg.schema.core.given_file import HEAD_BYTES, check_content

MAX_NODES = 1_000_000
MAX_DEPTH = 32
MIN_ELEMENT_BYTES = 4
"""Bytes of the smallest element of the vectors that are counted."""
BINDINGS = "ort_flatbuffers_py"
PROVEN_RUNTIMES = frozenset({"1.31.1"})
"""ONNX Runtime versions whose canonical files were shown to parse to equal content and to give bit-equal outputs."""
ALIGNMENT_BYTES = 16
"""At least the alignment of every vector in the model, so that moving the model's end never misaligns it."""
Operators = dict[tuple[str, int], set[str]]
"""The names of the operators used, by domain and version of the operator set."""
Argument = tuple[int, int]
"""(0 for an input or 1 for an output, position)."""
Resolver = tuple[tuple[str, tuple[tuple[str, tuple[Argument, ...]], ...]], ...]
"""Per operator id, per type parameter, the arguments that have that type. Sorted by id and by parameter."""
_TENSOR, _GRAPH, _GRAPHS, _INT = 4, 5, 10, 2
_MALFORMED = (struct.error, IndexError, KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""The errors of the bindings on bytes that are not a flatbuffer: they check no offset."""
_VECTORS = ("Floats", "Ints", "Strings", "Tensors", "Graphs")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the bindings raise on malformed bytes into an InputError naming `path`."""
    try:
        yield
    except _MALFORMED as error:
        raise InputError(
            f"{path.name} is not an ORT-format file, or is cut short",
            "check its size against the source, or convert the .onnx file again",
        ) from error


def load_ort(path: Path) -> Any:
    """The root table (`fbs.InferenceSession`) of an ORT-format file, mapped into memory.

    To be called, as everything that reads from it, inside `reading(path)`.
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


def check_extent(graph: Any, size: int) -> None:
    """Raise ValueError if the vectors of an `fbs.Graph` have more elements than a file of `size` bytes can
    hold.

    Each element of an honest file has bytes of its own. Tables that are referred to again and again, or that
    contain themselves, would be read without end.
    """
    left = size // MIN_ELEMENT_BYTES
    for length in _lengths(graph, 0):
        left -= length
        if left < 0:
            raise ValueError("vectors are longer than the file")


def format_version(session: Any) -> int:
    """The number of the ORT format, stored as a decimal string (`"6"` since onnxruntime 1.16)."""
    return int(session.OrtVersion().decode("ascii"))


def opset_imports(session: Any) -> dict[str, int]:
    """Domain to version, sorted; the converter lists every domain that its runtime registers."""
    model = session.Model()
    imports = [model.OpsetImport(index) for index in range(model.OpsetImportLength())]
    return dict(sorted((text(item.Domain()) or DEFAULT_DOMAIN, item.Version()) for item in imports))


def tensors(graph: Any) -> Iterator[Any]:
    """The initializers (`fbs.Tensor`) of one graph."""
    for index in range(graph.InitializersLength()):
        yield graph.Initializers(index)


def value_types(graph: Any) -> dict[str, Any]:
    """Each named value of one graph with its `fbs.TypeInfo`."""
    infos = (graph.NodeArgs(index) for index in range(graph.NodeArgsLength()))
    return {text(info.Name()): info.Type() for info in infos if info.Type() is not None}


def graph_inputs(graph: Any) -> list[str]:
    """The names of the inputs that a caller feeds."""
    stored = {text(tensor.Name()) for tensor in tensors(graph)}
    names = [text(graph.Inputs(index)) for index in range(graph.InputsLength())]
    return [name for name in names if name not in stored]


def graph_outputs(graph: Any) -> list[str]:
    return [text(graph.Outputs(index)) for index in range(graph.OutputsLength())]


def tensor_type(info: Any) -> Any | None:
    """The `fbs.TensorTypeAndShape` of a `TypeInfo`, or None for a sequence or map."""
    from ort_flatbuffers_py.fbs.TensorTypeAndShape import TensorTypeAndShape

    if info is None or info.ValueType() != 1:
        return None
    table = TensorTypeAndShape()
    table.Init(info.Value().Bytes, info.Value().Pos)
    return table


def operator_uses(session: Any) -> list[OperatorUse]:
    """Every node of the file in stored order, subgraphs included, those of one node by attribute name.

    The converter writes attributes in the order of a hash table; there are no functions in this format.
    """
    uses: list[OperatorUse] = []
    _walk(session.Model().Graph(), ChainMap(), uses, 0)
    return uses


def operator_config(path: Path, with_types: bool) -> str:
    """Return the operator config of an ORT-format file, one line for each domain and version of an operator set.

    It is what `create_config_from_models` of onnxruntime writes, without comments. That function reads the whole file and
    copies it once more; this one maps it and asks the same `OperatorTypeUsageManager` for the types. It took a twentieth of
    the export of a small encoder. Source: onnxruntime/tools/ort_format_model/utils.py

    Raise InputError if the file is not one.
    """
    with quiet():
        from onnxruntime.tools.ort_format_model.operator_type_usage_processors import OperatorTypeUsageManager

    types = OperatorTypeUsageManager()
    operators: Operators = defaultdict(set)
    with reading(path):
        _add_operators(load_ort(path).Model().Graph(), {}, operators, types)
    lines = []
    for (domain, version), names in sorted(operators.items()):
        entries = (
            name + ((types.get_config_entry(domain, name) or "") if with_types else "")
            for name in sorted(names)
        )
        lines.append(f"{domain};{version};{','.join(entries)}\n")
    return "".join(lines)


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


def _walk(graph: Any, outer: ChainMap[str, Value], uses: list[OperatorUse], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError("subgraphs are nested too deep")
    values = outer.new_child({name: Value(_element(info)) for name, info in value_types(graph).items()})
    for tensor in tensors(graph):
        element = ELEMENTS.get(tensor.DataType())
        dims = tuple(tensor.Dims(index) for index in range(tensor.DimsLength()))
        name = text(tensor.Name())
        _check_stored(tensor)
        values[name] = Value(element, Constant(name, element, dims))
    for index in range(graph.NodesLength()):
        node = graph.Nodes(index)
        attributes = [node.Attributes(at) for at in range(node.AttributesLength())]
        uses.append(_use(node, attributes, values))
        if len(uses) > MAX_NODES:
            raise ValueError("too many nodes")
        for attribute in sorted(attributes, key=lambda item: text(item.Name())):
            for subgraph in _subgraphs(attribute):
                _walk(subgraph, values, uses, depth + 1)


def _check_stored(tensor: Any) -> None:
    """Weights come last in the file, so that a file cut short shows here first."""
    if tensor.ExternalDataOffset() >= 0:
        raise ValueError("weights in another file")
    tensor.RawDataAsNumpy()


def _use(node: Any, attributes: list[Any], values: ChainMap[str, Value]) -> OperatorUse:
    return OperatorUse(
        text(node.Domain()) or DEFAULT_DOMAIN,
        text(node.OpType()),
        node.SinceVersion(),
        tuple(values.get(text(node.Inputs(index))) for index in range(node.InputsLength())),
        tuple(values.get(text(node.Outputs(index))) for index in range(node.OutputsLength())),
        {text(item.Name()): item.I() if item.Type() == _INT else None for item in attributes},
    )


def _subgraphs(attribute: Any) -> list[Any]:
    if attribute.Type() == _GRAPH:
        return [attribute.G()]
    if attribute.Type() == _GRAPHS:
        return [attribute.Graphs(index) for index in range(attribute.GraphsLength())]
    return []


def _element(info: Any) -> Any:
    table = tensor_type(info)
    return ELEMENTS.get(table.ElemType()) if table else None


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


def _lengths(graph: Any, depth: int) -> Iterator[int]:
    """The length of each vector, before its elements are read."""
    if depth > MAX_DEPTH:
        raise ValueError("subgraphs are nested too deep")
    yield graph.InputsLength() + graph.OutputsLength() + graph.InitializersLength()
    for index in range(graph.InitializersLength()):
        yield from _tensor_lengths(graph.Initializers(index))
    yield graph.NodeArgsLength()
    for index in range(graph.NodeArgsLength()):
        yield _type_rank(graph.NodeArgs(index).Type())
    yield graph.NodesLength()
    for index in range(graph.NodesLength()):
        yield from _node_lengths(graph.Nodes(index), depth)


def _node_lengths(node: Any, depth: int) -> Iterator[int]:
    yield node.InputsLength() + node.OutputsLength() + node.AttributesLength()
    for index in range(node.AttributesLength()):
        attribute = node.Attributes(index)
        yield sum(getattr(attribute, f"{kind}Length")() for kind in _VECTORS)
        tensors = [attribute.Tensors(at) for at in range(attribute.TensorsLength())]
        for tensor in (attribute.T(), *tensors):
            if tensor is not None:
                yield from _tensor_lengths(tensor)
        graphs = [attribute.Graphs(at) for at in range(attribute.GraphsLength())]
        for graph in (attribute.G(), *graphs):
            if graph is not None:
                yield 1
                yield from _lengths(graph, depth + 1)


def _tensor_lengths(tensor: Any) -> Iterator[int]:
    """Numbers in the file must be as many bytes as their shape needs."""
    yield tensor.DimsLength() + tensor.StringDataLength()
    elements = 1
    for index in range(tensor.DimsLength()):
        elements *= tensor.Dims(index)
        if tensor.Dims(index) < 0:
            raise ValueError("a dimension is negative")
    element = ELEMENTS.get(tensor.DataType())
    bits = element.bits if element is not None and tensor.ExternalDataOffset() < 0 else 0
    if tensor.RawDataLength() * 8 < elements * bits:
        raise ValueError("a tensor has fewer bytes than its shape needs")


def _type_rank(info: Any) -> int:
    tensor = tensor_type(info)
    shape = None if tensor is None else tensor.Shape()
    return 0 if shape is None else int(shape.DimLength())


def _add_operators(graph: Any, outer: dict[bytes, Any], operators: Operators, types: Any) -> None:
    """Add the operators of a graph and of its subgraphs. `outer`: the type of each value of the graphs around it."""
    infos = (graph.NodeArgs(index) for index in range(graph.NodeArgsLength()))
    values = {**outer, **{info.Name(): info.Type() for info in infos}}
    for index in range(graph.NodesLength()):
        node = graph.Nodes(index)
        domain = text(node.Domain()) or DEFAULT_DOMAIN
        operators[domain, node.SinceVersion()].add(text(node.OpType()))
        types.process_node(node, values)
        for at in range(node.AttributesLength()):
            for subgraph in _subgraphs(node.Attributes(at)):
                _add_operators(subgraph, values, operators, types)
