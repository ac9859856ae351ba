"""Check that the tables of an ORT-format file fit in it: the bindings follow every offset and length."""

from collections.abc import Iterator
from typing import Any

from onnxreg.converters.onnx.elements import ELEMENTS
from onnxreg.converters.onnx.ort.ort_graph import MAX_DEPTH, tensor_type

MIN_ELEMENT_BYTES = 4
"""Bytes of the smallest element of the vectors that are counted."""
_VECTORS = ("Floats", "Ints", "Strings", "Tensors", "Graphs")


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


def _lengths(graph: Any, depth: int) -> Iterator[int]:
    """The length of each vector, before its elements are read."""
    if depth > MAX_DEPTH:
        raise ValueError("subgraphs are nested too deep")
    yield graph.InputsLength() + graph.OutputsLength() + graph.InitializersLength()
    for index in range(graph.InitializersLength()):
        yield from _tensor(graph.Initializers(index))
    yield graph.NodeArgsLength()
    for index in range(graph.NodeArgsLength()):
        yield _rank(graph.NodeArgs(index).Type())
    yield graph.NodesLength()
    for index in range(graph.NodesLength()):
        yield from _node(graph.Nodes(index), depth)


def _node(node: Any, depth: int) -> Iterator[int]:
    yield node.InputsLength() + node.OutputsLength() + node.AttributesLength()
    for index in range(node.AttributesLength()):
        attribute = node.Attributes(index)
        yield sum(getattr(attribute, f"{kind}Length")() for kind in _VECTORS)
        tensors = [attribute.Tensors(at) for at in range(attribute.TensorsLength())]
        for tensor in (attribute.T(), *tensors):
            if tensor is not None:
                yield from _tensor(tensor)
        graphs = [attribute.Graphs(at) for at in range(attribute.GraphsLength())]
        for graph in (attribute.G(), *graphs):
            if graph is not None:
                yield 1
                yield from _lengths(graph, depth + 1)


def _tensor(tensor: Any) -> Iterator[int]:
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


def _rank(info: Any) -> int:
    tensor = tensor_type(info)
    shape = None if tensor is None else tensor.Shape()
    return 0 if shape is None else int(shape.DimLength())
