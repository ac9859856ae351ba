"""`MergeDecoders`: merges two graphs of a decoder into a graph with an If, in the form that Transformers.js loads."""

from collections.abc import Iterable
from typing import Any

from pydantic import Field

from onnxreg.converters.passes import models
from onnxreg.converters.passes.base import Facts, GraphPass, PassParams
from onnxreg.schema.core.errors import ConversionError, InputError

SWITCH = "use_cache_branch"
PAST, PRESENT = "past_key_values.", "present."


class MergeDecoders(GraphPass):
    """Merge a decoder's graph for the first token with its graph for later tokens.

    `with_past` names the step that made the graph for later tokens. If the input `use_cache_branch` is true, that graph
    runs, otherwise the graph for the first token. Equal weights are stored once. The merged graph is compared with the
    two graphs on sample inputs. These belong to the part of the source that `part` names.
    """

    id = "MergeDecoders"
    version = 2
    second = "with_past"
    tolerance = 1e-6

    class Params(PassParams):
        with_past: str = Field(min_length=1)
        part: str | None = None

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        super().requires(self.second_graph)
        if SWITCH in {value.name for value in subject.graph.inputs}:
            raise InputError(f"{self.id}: the graph has an input {SWITCH}: it is merged already")
        if models.default_opset(subject) != models.default_opset(self.second_graph):
            raise InputError(f"{self.id}: the two graphs have different opsets", "export both to one opset")

    def apply(self, subject: Any) -> Any:
        import onnx_ir as ir
        from onnx_ir.passes import common

        for model in (subject, self.second_graph):
            models.inline_functions(model)
        first, second = subject, self.second_graph
        for model in (first, second):
            _make_unsigned(model.graph)
        inputs: dict[str, ir.Value] = {}
        for value in (*first.graph.inputs, *second.graph.inputs):
            inputs.setdefault(value.name, value)
        switch = ir.Value(name=SWITCH, type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([1]))
        results = {value.name: value.shape for value in first.graph.outputs}
        later = {value.name: value.shape for value in second.graph.outputs}
        weights = list(first.graph.initializers.values())
        first.graph.initializers.clear()
        for value in weights:
            if value.name in second.graph.initializers:
                value.name = f"first.{value.name}"
            first.graph.initializers.add(value)
        branches = {
            "then_branch": _branch(second.graph, "next.", inputs, results),
            "else_branch": _branch(first.graph, "first.", inputs, results),
        }
        choice = ir.node("If", [switch], branches, num_outputs=len(results), name="use_cache")
        outputs = zip(choice.outputs, first.graph.outputs, results.items(), strict=True)
        for value, own, (name, shape) in outputs:
            value.name, value.type = name, own.type
            pairs = zip(shape, later.get(name, shape), strict=True)  # two names: a new name
            value.shape = ir.Shape([a if a == b or isinstance(b, int) else f"present_{a}" for a, b in pairs])
        taken, opsets = [*inputs.values(), switch], second.graph.opset_imports | first.graph.opset_imports
        name = "decoder_model_merged"
        merged = ir.Graph(taken, choice.outputs, nodes=[choice], opset_imports=opsets, name=name)
        both = ir.Model(merged, ir_version=max(first.ir_version, second.ir_version))
        common.LiftSubgraphInitializersToMainGraphPass()(both)
        common.DeduplicateHashedInitializersPass()(both)
        both.producer_name, both.producer_version = subject.producer_name, subject.producer_version
        models.clear_metadata(both)
        return both

    def observe(self, subject: Any) -> Facts:
        before = super().observe(subject)
        taken, given = before["names"]
        further = [value.name for value in self.second_graph.graph.inputs if value.name not in taken]
        types = {**super().observe(self.second_graph)["types"], **before["types"], SWITCH: 9}
        names = [*taken, *further, SWITCH], given
        weights = before["weight_bytes"] + models.weight_bytes(self.second_graph)
        return {**before, "names": names, "types": types, "weight_bytes": weights}


def _make_unsigned(body: Any) -> None:
    """Store the INT8 weights and zero points of MatMulInteger and ConvInteger as UINT8, larger by 128.

    On x86 processors without VNNI, products with INT8 weights overflow. ONNX Runtime's `session.x64quantprecision` does
    not prevent this in a merged graph, whose branches read the weights from the main graph.
    """
    import numpy as np
    import onnx_ir as ir

    for node in ir.traversal.RecursiveGraphIterator(body):
        if node.op_type not in ("MatMulInteger", "ConvInteger") or len(node.inputs) < 4:
            continue
        pair: list[Any] = [node.inputs[1], node.inputs[3]]
        uses = {(use.node.op_type, use.idx) for value in pair for use in value.uses()}
        is_stored = all(value.is_initializer() and value.dtype == ir.DataType.INT8 for value in pair)
        if is_stored and uses <= {(node.op_type, 1), (node.op_type, 3)}:
            for value in pair:
                codes = (value.const_value.numpy().astype(np.int16) + 128).astype(np.uint8)
                value.const_value = ir.tensor(codes, name=value.name)
                value.dtype = ir.DataType.UINT8


def _branch(body: Any, prefix: str, inputs: Any, results: Iterable[str]) -> Any:
    """Turn a graph into a branch of the If. The branch reads the outer graph's `inputs` and returns `results`."""
    import onnx_ir as ir

    own_outputs: dict[str, Any] = {value.name: value for value in body.outputs}
    for node in ir.traversal.RecursiveGraphIterator(body):
        for value in node.outputs:
            value.name = f"{prefix}{value.name}"
        node.name = f"{prefix}{node.name}"
    for value in list(body.inputs):
        value.replace_all_uses_with(inputs[value.name])
    body.inputs.clear()
    body.outputs.clear()
    for name in results:
        result = own_outputs.get(name)
        if result is None or result.producer() is None:  # a branch must compute its outputs itself
            source = inputs.get(f"{PAST}{name.removeprefix(PRESENT)}" if result is None else name)
            if source is None:
                raise ConversionError(f"MergeDecoders: only one of the two graphs gives {name}")
            copy = ir.node("Identity", [source], outputs=[ir.Value(name=f"{prefix}{name}")])
            body.append(copy)
            result = copy.outputs[0]
        body.outputs.append(result)
    return body
