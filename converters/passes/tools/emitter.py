"""Writing replacement nodes for one node, with names derived from what they replace."""

from collections.abc import Mapping, Sequence
from typing import Any

INTEGERS = frozenset({2, 3, 4, 5, 6, 7, 12, 13})
"""TensorProto element types without NaN: signed and unsigned integers of 8 to 64 bits."""


class Emitter:
    """Collects the nodes that take the place of `node`.

    Args:
        values: the ValueInfoProto of each value whose type is known.
        constants: the numpy array of each small constant by value name.
    """

    def __init__(self, node: Any, values: Mapping[str, Any], constants: Mapping[str, Any]) -> None:
        self.node = node
        self.nodes: list[Any] = []
        self._values = values
        self._constants = constants

    def op(self, name: str, *inputs: str, **attributes: Any) -> str:
        """Append an operator of one output and return the name of that output."""
        import onnx

        output = f"{self.node.output[0]}/mobile_safe/{len(self.nodes)}_{name}"
        self.nodes.append(onnx.helper.make_node(name, list(inputs), [output], name=output, **attributes))
        return output

    def const(self, values: int | Sequence[int]) -> str:
        """Append an int64 constant, a scalar or a vector."""
        import numpy as np
        import onnx

        tensor = onnx.numpy_helper.from_array(np.asarray(values, dtype=np.int64), "value")
        return self.op("Constant", value=tensor)

    def finish(self, output: str) -> list[Any]:
        """Make the value `output` take over the name of the replaced node's output, and return the nodes."""
        last = self.nodes[-1]
        if last.output[0] != output:
            raise AssertionError("the replacement must end in the node that makes its output")
        last.output[0] = self.node.output[0]
        last.name = self.node.name or last.name
        return self.nodes

    def attribute(self, name: str, default: int) -> int:
        """An integer attribute of the node, or its default."""
        return next((int(entry.i) for entry in self.node.attribute if entry.name == name), default)

    def element(self, value: str) -> int | None:
        """The TensorProto element type of a value, None if it is not known."""
        info = self._values.get(value)
        return (info.type.tensor_type.elem_type or None) if info is not None else None

    def rank(self, value: str) -> int | None:
        """The number of axes of a value, None if it is not known."""
        info = self._values.get(value)
        if info is None or not info.type.tensor_type.HasField("shape"):
            return None
        return len(info.type.tensor_type.shape.dim)

    def constant(self, value: str) -> Any | None:
        """The numpy array of a value that is constant, else None."""
        return self._constants.get(value)

    def has_no_nan(self, *values: str) -> bool:
        """Return True if every value is known to be of an integer type."""
        return all(self.element(value) in INTEGERS for value in values)
