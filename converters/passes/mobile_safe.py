"""`MobileSafeRewrite`: replaces operators that ONNX Runtime's mobile builds may lack.

A rewrite gets a tape (`onnx_ir.tape.Tape`), a node and its inputs. The last operator on the tape replaces the node. If
the results might differ, the rewrite returns False, and the node stays.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from onnxreg.converters.onnx.mobile_rules import MOBILE_SAFE_OPS
from onnxreg.converters.passes import models
from onnxreg.converters.passes.base import Facts, Pass
from onnxreg.schema.core.errors import ConversionError

if TYPE_CHECKING:
    import onnx_ir as ir

INTEGERS = frozenset({2, 3, 4, 5, 6, 7, 12, 13})  # the TensorProto types without NaN
SELECTABLE = frozenset({1, 2, 3, 6, 7, 10, 11, 12})


class MobileSafeRewrite(Pass[Any, Any]):
    """Replace operators outside the mobile-safe set by equal expressions inside it.

    Nodes without a rewrite stay, and are reported as `unsupported`. The results are equal to the bit.
    """

    id = "MobileSafeRewrite"

    def requires(self, subject: Any) -> None:
        opset = models.default_opset(subject)
        if opset is None or opset < 15:
            raise ConversionError(f"MobileSafeRewrite needs opset 15 or later, the graph has {opset}")

    def observe(self, subject: Any) -> Facts:
        return {"operators": models.count_operators(subject), "outputs": _outputs(subject)}

    def apply(self, subject: Any) -> Any:
        if not REWRITES.keys() & models.count_operators(subject).keys():
            return subject
        models.infer_types(subject)
        for node in [node for body in models.bodies(subject) for node in body]:
            _rewrite(node, node.graph)
        return subject

    def ensures(self, before: Facts, after: Any) -> dict[str, Any]:
        if _outputs(after) != before["outputs"]:
            raise ConversionError("MobileSafeRewrite changed the outputs of the graph")
        operators = models.count_operators(after)
        return {
            "operators_before": before["operators"],
            "operators_after": operators,
            "unsupported": sorted(operators.keys() - MOBILE_SAFE_OPS),
        }


def _outputs(subject: Any) -> list[str]:
    return [str(value) for value in subject.graph.outputs]


def _rewrite(node: "ir.Node", body: "ir.Graph") -> None:
    import onnx_ir as ir

    is_open = any(entry.is_ref() for entry in node.attributes.values())
    rewrite = None if node.domain or is_open else REWRITES.get(node.op_type)
    tape = ir.tape.Tape()
    if rewrite is None or rewrite(tape, node, *node.inputs) is False:
        return
    for index, new in enumerate(tape.nodes):
        new.name = new.outputs[0].name = f"{node.outputs[0].name}/mobile_safe/{index}_{new.op_type}"
    last = tape.nodes[-1]
    last.name = node.name or last.name
    ir.convenience.replace_nodes_and_values(body, node, [node], tape.nodes, node.outputs, last.outputs)


def const(tape: "ir.tape.Tape", values: int | Sequence[int]) -> "ir.Value":
    import numpy as np
    import onnx_ir as ir

    return tape.op("Constant", [], {"value": ir.tensor(np.asarray(values, dtype=np.int64), name="value")})


def has_no_nan(*values: "ir.Value") -> bool:
    return all(value.dtype in INTEGERS for value in values)


def less_or_equal(tape: "ir.tape.Tape", a: "ir.Value", b: "ir.Value") -> None:
    """Rewrite `a <= b` to `not b < a`; if NaN may occur, to `a < b or a = b`."""
    if has_no_nan(a, b):
        tape.op("Not", [tape.op("Less", [b, a])])
    else:
        tape.op("Or", [tape.op("Less", [a, b]), tape.op("Equal", [a, b])])


def extreme(tape: "ir.tape.Tape", inputs: Sequence["ir.Value"], is_maximum: bool) -> bool:
    """Rewrite Max or Min to a chain of choices between two inputs. NaN wins, as in ONNX Runtime."""
    result, *others = inputs
    if not {value.dtype for value in inputs} & SELECTABLE:
        return False
    if not others:
        tape.op("Identity", [result])
    for other in others:
        second = tape.op("Less", [result, other] if is_maximum else [other, result])
        if not has_no_nan(*inputs):
            second = tape.op("Or", [second, tape.op("Not", [tape.op("Equal", [other, other])])])
        result = tape.op("Where", [second, other, result])
    return True


def flatten(tape: "ir.tape.Tape", node: "ir.Node", x: "ir.Value") -> bool:
    """Rewrite `Flatten(x, k)` to `Reshape(x, [d0 * ... * d(k-1), -1])`."""
    axis = node.attributes.get_int("axis", 1)
    if axis < 0:
        return False
    if axis < 2:
        tape.op("Reshape", [x, const(tape, [0, -1] if axis else [1, -1])])
        return True
    shape = tape.op("Shape", [x])
    outer = tape.op("Gather", [shape, const(tape, [0])])
    for index in range(1, axis):
        outer = tape.op("Mul", [outer, tape.op("Gather", [shape, const(tape, [index])])])
    tape.op("Reshape", [x, tape.op("Concat", [outer, const(tape, [-1])], {"axis": 0})])
    return True


def cumulative_sum(tape: "ir.tape.Tape", node: "ir.Node", x: "ir.Value", axis: "ir.Value") -> bool:
    """Rewrite CumSum over the last axis to `x @ T`, where `T[i, j]` is 1 if `i <= j`. Only for integers."""
    import onnx_ir as ir

    constant = ir.convenience.get_const_tensor(axis) if axis.producer() else None
    rank = None if x.shape is None else x.shape.rank()
    if constant is None or rank is None or x.dtype not in (6, 7):
        return False
    if constant.numpy().item() % rank != rank - 1:
        return False
    if node.attributes.get_int("reverse", 0) or node.attributes.get_int("exclusive", 0):
        return False
    size = tape.op("Shape", [x], {"start": rank - 1})
    limit = tape.op("Squeeze", [size, const(tape, [0])])
    steps = tape.op("Range", [const(tape, 0), limit, const(tape, 1)])
    row = tape.op("Unsqueeze", [steps, const(tape, [1])])
    column = tape.op("Unsqueeze", [steps, const(tape, [0])])
    reaches = tape.op("Not", [tape.op("Less", [column, row])])
    tape.op("MatMul", [x, tape.op("Cast", [reaches], {"to": x.dtype})])
    return True


REWRITES: dict[str, Callable[..., Any]] = {
    "CumSum": cumulative_sum,
    "Flatten": flatten,
    "Greater": lambda tape, _, a, b: tape.op("Less", [b, a]),
    "GreaterOrEqual": lambda tape, _, a, b: less_or_equal(tape, b, a),
    "IsNaN": lambda tape, _, x: tape.op("Not", [tape.op("Equal", [x, x])]),
    "LessOrEqual": lambda tape, _, a, b: less_or_equal(tape, a, b),
    "Max": lambda tape, _, *inputs: extreme(tape, inputs, True),
    "Min": lambda tape, _, *inputs: extreme(tape, inputs, False),
}
"""The rewrite of each operator. Some rely on the fact that `x != x` is true only for NaN."""
