"""`OrtTransformersOptimization`: subgraphs of transformers become single operators of ONNX Runtime."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import NonNegativeInt

from onnxreg.converters.onnx.onnx_graph import CONTRIB_DOMAIN
from onnxreg.converters.onnx.quiet import quiet
from onnxreg.converters.passes import base
from onnxreg.converters.passes.base import GraphPass
from onnxreg.converters.passes.tools import graph, model_file
from onnxreg.converters.runtime.sessions import silent_runtime
from onnxreg.converters.source.toolchain import refuse_missing
from onnxreg.schema.core.errors import ConversionError, InputError, why


class TransformersOptimizationParams(base.PassParams, title="Params"):
    model_type: str = "bert"
    num_heads: NonNegativeInt = 0
    hidden_size: NonNegativeInt = 0
    opt_level: Literal[0, 1, 2, 99] | None = None
    only_onnxruntime: bool = False


class OrtTransformersOptimization(GraphPass):
    """Fuse with the transformer optimizer of ONNX Runtime.

    `model_type` picks the fusions (`bert`, `gpt2`, `vit`, ...); `num_heads` and `hidden_size` are read from the graph
    if 0. `opt_level` is how far ONNX Runtime optimizes the graph before that: 0 not at all, 1 basic, 2 extended,
    99 all; with `only_onnxruntime` nothing else is done. What was fused is counted in `fused`; that it is empty is
    a result, not an error: `fusions` says 0.
    """

    id = "OrtTransformersOptimization"
    tolerance = 1e-3

    Params = TransformersOptimizationParams

    def requires(self, subject: Any) -> None:
        from onnxruntime.transformers.optimizer import MODEL_TYPES

        super().requires(subject)
        if self.params.model_type not in MODEL_TYPES:
            model_types = ", ".join(sorted(MODEL_TYPES))
            raise InputError(f"{self.id}: no model type {self.params.model_type!r}", f"one of {model_types}")

    def observe(self, subject: Any) -> Mapping[str, Any]:
        return {**super().observe(subject), "operators": graph.count_operators(subject)}

    def apply(self, subject: Any) -> Any:
        from onnxruntime.transformers.optimizer import optimize_model

        with model_file.scratch() as directory, quiet(), silent_runtime():
            source = directory / "model.onnx"
            model_file.save(subject, source)
            try:
                optimized = optimize_model(str(source), **self.params.model_dump()).model
            except Exception as error:
                refuse_missing(error, "the transformer optimizer of ONNX Runtime")
                raise ConversionError(f"ONNX Runtime could not optimize the graph: {why(error)}") from error
        graph.clear_value_info(optimized)
        if all(entry.domain != CONTRIB_DOMAIN for entry in optimized.opset_import):
            optimized.opset_import.add(domain=CONTRIB_DOMAIN, version=1)  # as the optimizer's own `save` does
        graph.drop_unused_imports(optimized)
        graph.drop_unread_weights(optimized)
        return optimized

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        result, earlier = super().ensures(before, after), before["operators"]
        operators = graph.count_operators(after)
        fused = {
            name: count - earlier.get(name, 0)
            for name, count in operators.items()
            if name.startswith(f"{CONTRIB_DOMAIN}:") and count > earlier.get(name, 0)
        }
        nodes = {"before": sum(earlier.values()), "after": sum(operators.values())}
        return {**result, "fused": fused, "fusions": sum(fused.values()), "nodes": nodes}
