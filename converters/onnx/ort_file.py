"""Read ORT-format files (onnxruntime/core/flatbuffers/schema/ort.fbs) into `onnx_ir`."""

import mmap
import struct
import sys
from collections import ChainMap
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.converters.onnx.onnx_graph import opening
from onnxreg.converters.onnx.tensors import ELEMENTS, tensor_of
from onnxreg.schema.core.errors import InputError, missing_extra, unreadable
from onnxreg.schema.core.files import HEAD_BYTES, check_content

if TYPE_CHECKING:
    import onnx_ir as ir

MAX_NODES = 1_000_000
MAX_DEPTH = 32
MIN_ELEMENT_BYTES = 4
BINDINGS = "ort_flatbuffers_py"
_MALFORMED = (struct.error, IndexError, KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""The errors of the bindings for bytes that are not a valid flatbuffer."""


def read_ort(path: Path) -> "ir.Model":
    """Read an ORT-format file. Weights are mapped. `meta["ort_format"]` is the version of the format.

    The `version` of a node is the since-version of its operator. Raises InputError if the file is not valid.
    """
    try:
        import onnx_ir as ir

        register_bindings()
        from ort_flatbuffers_py.fbs.InferenceSession import InferenceSession
    except ImportError as error:
        raise missing_extra("onnxruntime", "onnx", "reading an .ort file") from error
    opening(path)
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        check_content(data[:HEAD_BYTES], path.name)
        if not InferenceSession.InferenceSessionBufferHasIdentifier(data, 0):
            raise ValueError("no ORTM identifier")
        session, reader = InferenceSession.GetRootAs(data), _Reader(len(data))
        table = session.Model()
        graph = reader.graph(table.Graph(), ChainMap(), 0)
        imports = reader.all(table, "OpsetImport")
        graph.opset_imports.update({text(item.Domain()): item.Version() for item in imports})
        model = ir.Model(graph, ir_version=table.IrVersion())
        model.meta["ort_format"] = int(session.OrtVersion().decode("ascii"))
        return model
    except OSError as error:
        raise unreadable(path.name, error) from error
    except _MALFORMED as error:
        hint = "check its size against the source, or convert the .onnx file again"
        raise InputError(f"{path.name} is not an ORT-format file, or is cut short", hint) from error


class _Reader:
    """Builds `onnx_ir` graphs from the tables of a file of `size` bytes. Raises ValueError for forged tables."""

    def __init__(self, size: int) -> None:
        self._left = size // MIN_ELEMENT_BYTES
        self._nodes = 0

    def all(self, table: Any, name: str) -> list[Any]:
        """Return the elements of a table's vector. Raise ValueError if the total of all vectors exceeds the file."""
        length = getattr(table, f"{name}Length")()
        self._left -= length
        if self._left < 0:
            raise ValueError("vectors are longer than the file")
        return list(map(getattr(table, name), range(length)))

    def graph(self, table: Any, outer: "ChainMap[str, ir.Value]", depth: int) -> "ir.Graph":
        import onnx_ir as ir

        self._nodes += table.NodesLength()
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            raise ValueError("too many nodes, or subgraphs in each other")
        types = {text(info.Name()): info.Type() for info in self.all(table, "NodeArgs")}
        values: dict[str, ir.Value] = {}
        scope = outer.new_child(values)

        def value(name: str) -> ir.Value:
            return values.get(name) or values.setdefault(name, self._value(name, types.get(name)))

        def operand(name: bytes) -> ir.Value | None:
            return scope.get(text(name)) or value(text(name)) if name else None

        inputs = [value(text(name)) for name in self.all(table, "Inputs")]
        stored = []
        for tensor in map(self._tensor, self.all(table, "Initializers")):
            stored.append(value(tensor.name))
            if stored[-1].const_value is not None:
                raise ValueError(f"two stored tensors have the name {tensor.name[:80]!r}")
            stored[-1].const_value = tensor
            stored[-1].dtype, stored[-1].shape = tensor.dtype, tensor.shape
        items = [(item, self.all(item, "Outputs")) for item in self.all(table, "Nodes")]
        results = [[value(text(name)) if name else ir.Value(name="") for name in names] for _, names in items]
        nodes = [
            ir.Node(
                text(item.Domain()),
                text(item.OpType()),
                list(map(operand, self.all(item, "Inputs"))),
                self._attributes(item, scope, depth),
                outputs=outputs,
                version=item.SinceVersion(),
                name=text(item.Name()),
            )
            for (item, _), outputs in zip(items, results, strict=True)
        ]
        outputs = map(operand, self.all(table, "Outputs"))
        return ir.Graph(inputs, [one for one in outputs if one], nodes=nodes, initializers=stored)

    def _attributes(self, node: Any, scope: "ChainMap[str, ir.Value]", depth: int) -> list["ir.Attr"]:
        import onnx_ir as ir

        def graph(table: Any) -> ir.Graph:
            return self.graph(table, scope, depth + 1)

        readers: dict[int, Callable[[Any], Any]] = {
            1: lambda item: float(item.F()),
            2: lambda item: int(item.I()),
            3: lambda item: item.S() or b"",
            4: lambda item: self._tensor(item.T()),
            5: lambda item: graph(item.G()),
            6: lambda item: list(map(float, self.all(item, "Floats"))),
            7: lambda item: list(map(int, self.all(item, "Ints"))),
            8: lambda item: self.all(item, "Strings"),
            9: lambda item: list(map(self._tensor, self.all(item, "Tensors"))),
            10: lambda item: list(map(graph, self.all(item, "Graphs"))),
        }
        items = {text(item.Name()): item for item in self.all(node, "Attributes")}
        return [
            ir.Attr(name, ir.AttributeType(item.Type()), readers[item.Type()](item))
            for name, item in sorted(items.items())
        ]

    def _value(self, name: str, info: Any) -> "ir.Value":
        import onnx_ir as ir
        from ort_flatbuffers_py.fbs.TensorTypeAndShape import TensorTypeAndShape

        if info is None or info.ValueType() != 1:
            return ir.Value(name=name)
        tensor = TensorTypeAndShape()
        tensor.Init(info.Value().Bytes, info.Value().Pos)
        if tensor.ElemType() not in ELEMENTS:
            return ir.Value(name=name)
        kind, shape = ir.TensorType(ir.DataType(tensor.ElemType())), tensor.Shape()
        dims: list[int | str | None] = []
        for dim in () if shape is None else (item.Value() for item in self.all(shape, "Dim")):
            is_number = dim is not None and dim.DimType() == 1
            dims.append(int(dim.DimValue()) if is_number else (text(dim.DimParam()) or None) if dim else None)
        return ir.Value(name=name, type=kind, shape=None if shape is None else ir.Shape(dims))

    def _tensor(self, table: Any) -> Any:
        import numpy as np
        import onnx_ir as ir

        if table.ExternalDataOffset() >= 0:
            raise ValueError("weights in another file")
        name, dtype, dims = text(table.Name()), ir.DataType(table.DataType()), self.all(table, "Dims")
        if any(dim < 0 for dim in dims):
            raise ValueError("a dimension is negative")
        if dtype is ir.DataType.STRING:
            return ir.StringTensor(self.all(table, "StringData"), shape=ir.Shape(dims), name=name)
        data = np.empty(0, np.uint8) if table.RawDataIsNone() else table.RawDataAsNumpy()
        return tensor_of(data, dtype, ir.Shape(dims), name)


def text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8")


def register_bindings() -> None:
    """Make onnxruntime's module `ort_flatbuffers_py` importable. Raise ImportError if the module is not installed."""
    if BINDINGS in sys.modules:
        return
    runtime = find_spec("onnxruntime")
    homes = (runtime and runtime.submodule_search_locations) or ()
    spec = PathFinder.find_spec(BINDINGS, [f"{home}/tools/ort_format_model" for home in homes])
    if spec is None or spec.loader is None:
        raise ImportError("onnxruntime with its flatbuffer bindings is not installed", name="onnxruntime")
    module = sys.modules[BINDINGS] = module_from_spec(spec)
    spec.loader.exec_module(module)
