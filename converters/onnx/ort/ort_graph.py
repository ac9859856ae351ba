"""Reading an ORT-format file (a flatbuffer) through the bindings that onnxruntime ships."""

import mmap
import struct
import sys
from collections import ChainMap
from collections.abc import Iterator
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import TracebackType
from typing import Any

from onnxreg.converters.onnx.elements import ELEMENTS
from onnxreg.converters.onnx.graph_operators import DEFAULT_DOMAIN, Constant, OperatorUse, Value
from onnxreg.converters.onnx.open_notice import opening
from onnxreg.schema.core.errors import InputError, missing_extra, unreadable

MAX_NODES = 1_000_000
MAX_DEPTH = 32
_TENSOR, _GRAPH, _GRAPHS, _INT = 4, 5, 10, 2
_MALFORMED = (struct.error, IndexError, KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""The errors of the bindings on bytes that are not a flatbuffer: they check no offset."""


class reading:  # noqa: N801
    """Context manager that turns what the bindings raise on malformed bytes into an InputError naming `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, _MALFORMED):
            raise InputError(
                f"{self._path.name} is not an ORT-format file, or is cut short",
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
    if not InferenceSession.InferenceSessionBufferHasIdentifier(data, 0):
        raise ValueError("no ORTM identifier")
    return InferenceSession.GetRootAs(data)


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
            for subgraph in subgraphs(attribute):
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


def subgraphs(attribute: Any) -> list[Any]:
    if attribute.Type() == _GRAPH:
        return [attribute.G()]
    if attribute.Type() == _GRAPHS:
        return [attribute.Graphs(index) for index in range(attribute.GraphsLength())]
    return []


def _element(info: Any) -> Any:
    table = tensor_type(info)
    return ELEMENTS.get(table.ElemType()) if table else None


def text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8")


NAME = "ort_flatbuffers_py"


def register_bindings() -> None:
    """Make `ort_flatbuffers_py` importable without `onnxruntime.tools`, which imports torch if it is
    installed.

    Raises ImportError if onnxruntime is not installed or ships no bindings.
    """
    if NAME in sys.modules:
        return
    runtime = find_spec("onnxruntime")
    if runtime is None or not runtime.submodule_search_locations:
        raise ImportError("onnxruntime is not installed", name="onnxruntime")
    folder = Path(runtime.submodule_search_locations[0]) / "tools/ort_format_model" / NAME
    spec = spec_from_file_location(NAME, folder / "__init__.py", submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise ImportError("onnxruntime ships no flatbuffer bindings", name="onnxruntime")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[NAME] = module
