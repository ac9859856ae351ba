"""The contract of passes that quantize stored weights: all weights they are asked for, or they fail."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from onnxreg.converters.onnx.elements import tensor_bytes
from onnxreg.converters.passes.graph_pass import Facts, GraphPass
from onnxreg.converters.passes.tools import graph, matmul_weights
from onnxreg.schema.core.errors import ConversionError


class QuantizationPass(GraphPass):
    """Every constant weight of its `products` is quantized, those of the parameter `nodes_to_exclude` left out.

    What `observe` finds of them are the facts `factors`, by name.
    """

    @property
    @abstractmethod
    def products(self) -> frozenset[str]:
        """The operators whose weights are quantized."""

    @property
    def lack(self) -> str:
        """The message for a graph without such a weight."""
        return f"the graph has no {' or '.join(sorted(self.products))} with constant weights"

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        graph.refuse_unknown("node", self.params.nodes_to_exclude, graph.node_names(subject))

    def observe(self, subject: Any) -> Facts:
        graph.inline_functions(subject)
        before = super().observe(subject)
        self.prepare(subject)
        factors = self.factors(subject)
        size = sum(tensor_bytes(one.tensor) for one in factors.values())
        return {**before, "factors": factors, "quantized_bytes": size}

    def prepare(self, subject: Any) -> None:
        """Change the graph before its weights are looked for. The default changes nothing."""

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        if not before["factors"]:
            raise ConversionError("quantization reached none of the weights", self.lack)
        if left := sorted(self.factors(after)):
            raise ConversionError(f"quantization left weights in floating point: {', '.join(left)}")
        counts = {"weights": len(before["factors"]), "quantized_bytes": before["quantized_bytes"]}
        return {**result, **counts}

    def factors(self, subject: Any) -> dict[str, matmul_weights.Factor]:
        """The weights that are to be quantized, by name."""
        return matmul_weights.factors(subject, self.products, self.params.nodes_to_exclude)
