"""`MobileSafeRewrite`: the same function in the operators that ONNX Runtime's mobile builds contain.

A rewrite takes an `Emitter` for one node, whose last operator replaces the node. It returns False if the
equivalence cannot be shown (for example, the element type or rank is unknown); then the node stays.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnxreg.converters.onnx.graph_operators import within
from onnxreg.converters.onnx.mobile_rules import MOBILE_SAFE_OPS
from onnxreg.converters.passes.base import Facts, Pass
from onnxreg.converters.passes.tools import graph
from onnxreg.schema.core.errors import ConversionError

INTEGERS = frozenset({2, 3, 4, 5, 6, 7, 12, 13})
"""TensorProto element types without NaN: signed and unsigned integers of 8 to 64 bits."""
SELECTABLE = frozenset({1, 2, 3, 6, 7, 10, 11, 12})
"""TensorProto element types for which ONNX Runtime has Where on the CPU; for uint64 it has only Max and Min."""


class MobileSafeRewrite(Pass[Any, Any]):
    """Replace operators outside the mobile-safe set by equal expressions inside it.

    A node without a rewrite, or with types that do not allow one, stays and is reported as `unsupported`. The
    results are equal to the bit, NaN included.
    """

    id = "MobileSafeRewrite"

    def requires(self, subject: Any) -> None:
        opset = graph.default_opset(subject)
        if opset is None or opset < 15:
            raise ConversionError(f"MobileSafeRewrite needs opset 15 or later, the graph has {opset}")

    def observe(self, subject: Any) -> Facts:
        return {"operators": graph.count_operators(subject), "outputs": _outputs(subject)}

    def apply(self, subject: Any) -> Any:
        if not REWRITES.keys() & graph.count_operators(subject).keys():
            return subject
        values = graph.infer_values(subject)
        for body in within(subject.graph):
            _rewrite(body, values)
        for body in (body for function in subject.functions for body in within(function)):
            _rewrite(body, {})
        graph.clear_value_info(subject)
        return subject

    def ensures(self, before: Facts, after: Any) -> dict[str, Any]:
        if _outputs(after) != before["outputs"]:
            raise ConversionError("MobileSafeRewrite changed the outputs of the graph")
        operators = graph.count_operators(after)
        return {
            "operators_before": before["operators"],
            "operators_after": operators,
            "unsupported": sorted(operators.keys() - MOBILE_SAFE_OPS),
        }


def _outputs(subject: Any) -> list[bytes]:
    return [value.SerializeToString(deterministic=True) for value in subject.graph.output]


def _rewrite(body: Any, values: Mapping[str, Any]) -> None:
    """Rewrite the nodes of one graph or function in place.

    `values` are the main graph's values, which its subgraphs can read; in a function the same names mean other values.
    A node with an attribute that refers to a parameter of the function stays, because the parameter has no value here.
    """
    import onnx

    constants = {
        node.output[0]: onnx.numpy_helper.to_array(attribute.t)
        for node in body.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    nodes: list[Any] = []
    for node in body.node:
        is_open = any(entry.ref_attr_name for entry in node.attribute)
        rewrite = REWRITES.get(node.op_type) if graph.is_standard(node) and not is_open else None
        emitter = Emitter(node, values, constants)
        if rewrite is None or rewrite(emitter, *node.input) is False:
            nodes.append(node)
            continue
        emitter.nodes[-1].output[0] = node.output[0]
        emitter.nodes[-1].name = node.name or emitter.nodes[-1].name
        nodes += emitter.nodes
    graph.replace_nodes(body, nodes)


class Emitter:
    """Collects the nodes that replace `node`, with names made from the name of `node`; the last one makes the output.

    Args:
        values: the ValueInfoProto of each value whose type is known.
        constants: the numpy array of each small constant by value name.
    """

    def __init__(self, node: Any, values: Mapping[str, Any], constants: Mapping[str, Any]) -> None:
        self.node = node
        self.nodes: list[Any] = []
        self.constants = constants
        self._types = {name: value.type.tensor_type for name, value in values.items()}

    def op(self, name: str, *inputs: str, **attributes: Any) -> str:
        """Append an operator with one output and return the output's name."""
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

    def element(self, value: str) -> int:
        """Return the TensorProto element type of a value, 0 if the type is unknown."""
        return self._types[value].elem_type if value in self._types else 0

    def rank(self, value: str) -> int | None:
        """Return the number of axes of a value, None if the number is unknown."""
        kind = self._types.get(value)
        return len(kind.shape.dim) if kind is not None and kind.HasField("shape") else None

    def has_no_nan(self, *values: str) -> bool:
        """Return True if every value is known to have an integer type."""
        return all(self.element(value) in INTEGERS for value in values)


def less_or_equal(emit: Emitter, a: str, b: str) -> None:
    """Rewrite a <= b to not b < a, or if NaN may occur to a < b or a = b, since every comparison with NaN is false."""
    if emit.has_no_nan(a, b):
        emit.op("Not", emit.op("Less", b, a))
    else:
        emit.op("Or", emit.op("Less", a, b), emit.op("Equal", a, b))


def extreme(emit: Emitter, inputs: Sequence[str], is_maximum: bool) -> bool:
    """Rewrite Max or Min to a chain over the inputs from left to right; a NaN on either side wins, as in ONNX Runtime."""
    result, *others = inputs
    if not {emit.element(value) for value in inputs} & SELECTABLE:
        return False
    if not others:
        emit.op("Identity", result)
    for other in others:
        second = emit.op("Less", *((result, other) if is_maximum else (other, result)))
        if not emit.has_no_nan(*inputs):
            second = emit.op("Or", second, emit.op("Not", emit.op("Equal", other, other)))
        result = emit.op("Where", second, other, result)
    return True


def flatten(emit: Emitter, x: str) -> bool:
    """Rewrite Flatten(x, k) to Reshape(x, [d0 * ... * d(k-1), -1]), with the leading product from the shape of x."""
    axis = graph.attribute(emit.node, "axis", 1)
    if axis < 0:
        return False
    if axis < 2:
        emit.op("Reshape", x, emit.const([0, -1] if axis else [1, -1]))
        return True
    shape = emit.op("Shape", x)
    outer = emit.op("Gather", shape, emit.const([0]))
    for index in range(1, axis):
        outer = emit.op("Mul", outer, emit.op("Gather", shape, emit.const([index])))
    emit.op("Reshape", x, emit.op("Concat", outer, emit.const([-1]), axis=0))
    return True


def cumulative_sum(emit: Emitter, x: str, axis_name: str) -> bool:
    """Rewrite CumSum over the last axis to x @ T with T[i, j] = 1 where i <= j.

    For integers only, whose sum is exact; an infinity or NaN of a float would spread through the whole product.
    """
    axis, rank, element = emit.constants.get(axis_name), emit.rank(x), emit.element(x)
    if axis is None or rank is None or element not in (6, 7) or int(axis.reshape(-1)[0]) % rank != rank - 1:
        return False
    if graph.attribute(emit.node, "reverse", 0) or graph.attribute(emit.node, "exclusive", 0):
        return False
    size = emit.op("Shape", x, start=rank - 1)
    limit = emit.op("Squeeze", size, emit.const([0]))
    steps = emit.op("Range", emit.const(0), limit, emit.const(1))
    row = emit.op("Unsqueeze", steps, emit.const([1]))
    column = emit.op("Unsqueeze", steps, emit.const([0]))
    reaches = emit.op("Not", emit.op("Less", column, row))
    emit.op("MatMul", x, emit.op("Cast", reaches, to=element))
    return True


REWRITES: dict[str, Callable[..., Any]] = {
    "CumSum": cumulative_sum,
    "Flatten": flatten,
    "Greater": lambda emit, a, b: emit.op("Less", b, a),
    "GreaterOrEqual": lambda emit, a, b: less_or_equal(emit, b, a),
    "IsNaN": lambda emit, x: emit.op("Not", emit.op("Equal", x, x)),
    "LessOrEqual": less_or_equal,
    "Max": lambda emit, *inputs: extreme(emit, inputs, True),
    "Min": lambda emit, *inputs: extreme(emit, inputs, False),
}
"""Rewrites by operator. Only NaN differs from itself, and every comparison with NaN is false; a > b is b < a."""
