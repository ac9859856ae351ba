"""`MobileSafeRewrite`: the same function in the operators that ONNX Runtime's mobile builds carry."""

from collections.abc import Mapping
from typing import Any

from onnxreg.converters.onnx.mobile_operators import MOBILE_SAFE_OPS
from onnxreg.converters.passes import base
from onnxreg.converters.passes.tools import graph
from onnxreg.converters.passes.tools.emitter import Emitter
from onnxreg.converters.passes.tools.mobile_rewrites import REWRITES
from onnxreg.schema.core.errors import ConversionError


class MobileSafeRewrite(base.Pass[Any, Any]):
    """Replace operators outside the mobile-safe set by equal expressions inside it.

    A node without a rewrite, or whose types do not allow one, stays as it is and is reported as `unsupported`.
    Semantics are kept to the bit, NaN included.
    """

    id = "MobileSafeRewrite"

    def requires(self, subject: Any) -> None:
        opset = graph.default_opset(subject)
        if opset is None or opset < 15:
            raise ConversionError(f"MobileSafeRewrite needs opset 15 or later, the graph has {opset}")

    def observe(self, subject: Any) -> Mapping[str, Any]:
        outputs = [value.SerializeToString(deterministic=True) for value in subject.graph.output]
        return {"operators": graph.count_operators(subject), "outputs": outputs}

    def apply(self, subject: Any) -> Any:
        if not REWRITES.keys() & graph.count_operators(subject).keys():
            return subject
        values = graph.infer_values(subject)
        for container in graph.within(subject.graph):
            _rewrite(container, values)
        for function in subject.functions:
            for container in graph.within(function):
                _rewrite(container, {})
        graph.clear_value_info(subject)
        return subject

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        if [value.SerializeToString(deterministic=True) for value in after.graph.output] != before["outputs"]:
            raise ConversionError("MobileSafeRewrite changed the outputs of the graph")
        operators = graph.count_operators(after)
        unsupported = sorted(operators.keys() - MOBILE_SAFE_OPS)
        return {
            "operators_before": before["operators"],
            "operators_after": operators,
            "unsupported": unsupported,
        }


def _rewrite(container: Any, values: Mapping[str, Any]) -> None:
    """Rewrite the nodes of one graph or function in place.

    `values` are the main graph's, which its subgraphs see too; names in a function mean other values. A node whose
    attributes are a function's parameters stays: they have no value here.
    """
    import onnx

    constants = {
        node.output[0]: onnx.numpy_helper.to_array(attribute.t)
        for node in container.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    nodes: list[Any] = []
    for node in container.node:
        standard = node.domain in ("", "ai.onnx") and not any(entry.ref_attr_name for entry in node.attribute)
        rewrite = REWRITES.get(node.op_type) if standard else None
        replacement = rewrite(Emitter(node, values, constants)) if rewrite else None
        nodes.extend([node] if replacement is None else replacement)
    if len(nodes) != len(container.node) or any(
        a is not b for a, b in zip(nodes, container.node, strict=True)
    ):
        copies = [graph.copy(node) for node in nodes]
        del container.node[:]
        container.node.extend(copies)
