"""`OnnxFloatToFloat16` and `OrtMixedPrecision`: convert to float16, and keep float32 where the values need it.

The trials of `OrtMixedPrecision` are delta debugging: Zeller and Hildebrandt, Simplifying and Isolating
Failure-Inducing Input (IEEE TSE 28(2), 2002), algorithm ddmin.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import pairwise
from typing import Any, Self

from pydantic import Field, model_validator

from onnxreg.converters.onnx.onnx_graph import within
from onnxreg.converters.passes import models, samples
from onnxreg.converters.passes.base import Facts, GraphPass, PassParams
from onnxreg.converters.passes.samples import Feed
from onnxreg.schema.core.errors import ConversionError, InputError

FLOAT, FLOAT16 = 1, 10
LARGEST, SMALLEST = 65504.0, 5.96e-08
SENTINEL = 1e30
"""Magnitudes of this or more mean infinity, as in attention masks, so clipping them loses nothing."""
INTEGERS = frozenset({"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "DynamicQuantizeMatMul"})
OLIVE = ("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "Relu", "Add")
"""The operators that Olive keeps in float32 by default."""
MAX_TRIALS = 200


class HalfPass(GraphPass):
    """A pass that converts some float32 weights to float16."""

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        if names := sorted(INTEGERS.intersection(kinds_of(subject))):
            raise InputError(
                f"{self.id}: the graph is quantized dynamically ({', '.join(names)}), and sums of integers are beyond float16",
                "take the float32 graph for each of the two: input: STEP",
            )

    def observe(self, subject: Any) -> Facts:
        before, halves = super().observe(subject), _weights_of_type(subject, FLOAT16)
        models.inline_functions(subject)
        half = FLOAT if self.params.keep_io_types else FLOAT16
        types = {name: half if kind == FLOAT else kind for name, kind in before["types"].items()}
        return {**before, "types": types, "halves": halves}

    def ensures(self, before: Facts, after: Any) -> dict[str, Any]:
        result, halves = super().ensures(before, after), _weights_of_type(after, FLOAT16)
        if halves <= before["halves"]:
            raise ConversionError(
                f"{self.id} changed nothing: {halves} weights were float16 before, and no other could become it",
                "leave this step out, or allow more: values beyond float16 and what a tolerance needs stay float32",
            )
        return {**result, "float16_weights": halves, "float32_weights": _weights_of_type(after, FLOAT)}


def _weights_of_type(model: Any, element: int) -> int:
    return sum(tensor.dtype == element for tensor in models.tensors(model))


class OnnxFloatToFloat16(HalfPass):
    """Convert float32 weights and activations to float16 with ONNX Runtime's converter.

    The graph is run on sample inputs or on random ones. Nodes with values beyond float16 stay float32. `overflowing` in
    the result names these nodes; it is null if a run on random inputs fails. `op_block_list` and `node_block_list` name
    other operators and nodes that stay float32; `op_include_list` names the only operators to convert. With
    `keep_io_types`, inputs and outputs stay float32. `min_positive_val` and `max_finite_val` limit weights' magnitudes.
    """

    id = "OnnxFloatToFloat16"
    version = 6

    class Params(PassParams):
        min_positive_val: float = Field(SMALLEST, ge=SMALLEST, lt=1)
        max_finite_val: float = Field(float(LARGEST), ge=1, le=LARGEST)
        keep_io_types: bool = True
        op_block_list: tuple[str, ...] | None = None
        node_block_list: tuple[str, ...] | None = None
        op_include_list: tuple[str, ...] | None = None

        @model_validator(mode="after")
        def _is_one_way(self) -> Self:
            blocks = self.op_block_list is not None or self.node_block_list is not None
            if blocks and self.op_include_list is not None:
                raise ValueError("block lists and include lists exclude each other")
            return self

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        models.refuse_unknown("operator", self.params.op_include_list, models.count_operators(subject))
        models.refuse_unknown("node", self.params.node_block_list, models.node_names(subject))

    def apply(self, subject: Any) -> Any:
        params, beyond = self.params, set[str]()
        self.found["overflowing"] = None
        with nullcontext() if self.data else suppress(ConversionError, InputError):
            beyond = overflowing(subject, self.data or samples.draw(subject))
            self.found["overflowing"] = sorted(beyond)
        operators, nodes = params.op_block_list, {*(params.node_block_list or ()), *beyond}
        if params.op_include_list is not None:
            models.name_nodes(subject)
            kinds = kinds_of(subject)
            included = {name for kind in params.op_include_list for name in kinds.get(kind, ())}
            if included & beyond:
                raise ConversionError(
                    f"{self.id}: values of {', '.join(sorted(included & beyond))[:200]} are beyond float16 on the samples",
                    "leave them out of the include list, or use OrtMixedPrecision",
                )
            operators = ()
            nodes |= models.node_names(subject) - included
        bounds = params.min_positive_val, params.max_finite_val
        return to_float16(subject, operators, nodes, params.keep_io_types, *bounds)


class OrtMixedPrecision(HalfPass):
    """Convert to float16, except for the nodes that must stay float32 to keep the outputs accurate.

    The operators of `op_block_list`, and nodes with values beyond float16 (`overflowing`), always stay float32. With
    `search`, trials find a minimal set of other nodes, first by operators, then by nodes. If 200 trials are not enough,
    `minimal` in the result is false. `atol` is the allowed distance of an output, as a share of its largest value.
    """

    id = "OrtMixedPrecision"
    version = 5

    class Params(PassParams):
        op_block_list: tuple[str, ...] | None = None
        atol: float = Field(1e-2, gt=0)
        search: bool = True
        keep_io_types: bool = True

    def apply(self, subject: Any) -> Any:
        models.name_nodes(subject)
        feeds = samples.draw(subject) if self.data is None else self.data
        expected = samples.all_outputs(subject, feeds, "the graph that OrtMixedPrecision was given")
        beyond, kinds = overflowing(subject, feeds), kinds_of(subject)
        listed = self.params.op_block_list
        blocked = (() if self.params.search else OLIVE) if listed is None else listed
        forced = beyond.union(*(kinds.get(kind, ()) for kind in blocked))
        distances: dict[frozenset[str], float] = {}
        is_over = False

        def convert(model: Any, names: Iterable[str]) -> Any:
            return to_float16(model, None, forced.union(names), self.params.keep_io_types)

        def is_near(names: Iterable[str]) -> bool:
            nonlocal is_over
            tried = frozenset(names)
            if tried not in distances:
                is_over = is_over or len(distances) >= MAX_TRIALS
                if is_over:
                    return False
                try:
                    outputs = samples.all_outputs(convert(subject, tried), feeds, "the trial")
                    distances[tried] = samples.relative_distance(expected, outputs, "the trial")
                except ConversionError:
                    distances[tried] = float("inf")
            return bool(distances[tried] <= self.params.atol)

        free = {kind: [name for name in names if name not in forced] for kind, names in kinds.items()}
        usual = [kind for kind in OLIVE if free.get(kind) and listed is None]
        every = [*usual, *(kind for kind in sorted(free) if kind not in usual)]

        def nodes(some: Iterable[str]) -> list[str]:
            return [name for kind in some for name in free[kind]]

        starts: list[list[str]] = [[], usual, every] if self.params.search else [[]]
        start = next((some for some in starts if is_near(nodes(some))), None)
        if start is None:
            raise ConversionError(
                f"{self.id}: no choice of float32 operators keeps the outputs within {self.params.atol:g}",
                "allow more with atol" if self.params.search else "let search find which operators matter",
            )
        chosen = minimize(nodes(minimize(start, lambda some: is_near(nodes(some)))), is_near)
        self.found = {
            "float32_nodes": sorted({*chosen, *forced}),
            "overflowing": sorted(beyond),
            "trials": len(distances),
            "minimal": self.params.search and not is_over,
            "distance": float(f"{distances[frozenset(chosen)]:.6g}"),
        }
        return convert(subject, chosen)


def minimize(all_names: Sequence[str], holds: Callable[[list[str]], bool]) -> list[str]:
    """Return a minimal part of `all_names` for which `holds` is true. `holds(all_names)` must be true."""
    names, parts = list(all_names), 2
    if names and holds([]):
        return []
    while len(names) > 1:
        edges = [len(names) * index // parts for index in range(parts + 1)]
        slices = [(start, end) for start, end in pairwise(edges) if start < end]
        subsets = ([*names[:start], *names[end:]] for start, end in reversed(slices))
        smaller = next((subset for subset in subsets if holds(subset)), None)
        if smaller is not None:
            names, parts = smaller, max(parts - 1, 2)
        elif parts >= len(names):
            break
        else:
            parts = min(2 * parts, len(names))
    return names


def to_float16(
    model: Any,
    operators: Collection[str] | None = None,
    nodes: Collection[str] = (),
    keep_io_types: bool = True,
    smallest: float = SMALLEST,
    largest: float = LARGEST,
) -> Any:
    """Return a float16 copy of a model, which must have no local functions.

    `operators` and `nodes` stay float32. If `operators` is None, ONNX Runtime's list is used. The magnitudes of weights
    other than zero are limited to `smallest` and `largest`.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    nodes, proto = {*nodes, *crashing_transposes(model)}, models.to_proto(model)
    proto.graph.value_info.extend(models.infer_types(model).value_info)
    with models.tool("float16", "ONNX Runtime could not convert the graph to float16"):
        half = convert_float_to_float16(
            proto,
            min_positive_val=smallest,
            max_finite_val=largest,
            keep_io_types=keep_io_types,
            disable_shape_infer=True,
            op_block_list=operators,
            node_block_list=nodes,
        )
    for body in within(half.graph):  # the converter adds an equal Cast for each reader
        single = {tuple(node.output): node for node in body.node}
        del body.node[:]
        body.node.extend(single.values())
    converted = models.from_tool(half)
    converted.graph.sort()
    _join_float32(converted.graph)
    return converted


def crashing_transposes(model: Any) -> Iterator[str]:
    """Yield the name of each Transpose whose result a MatMul multiplies by a stored matrix.

    ONNX Runtime (1.31, x86-64) crashes when it loads a graph in which such a Transpose and its MatMul are float16.
    """
    for product in model.graph:
        if product.op_type != "MatMul" or not product.inputs[1].is_initializer():
            continue
        node = product.inputs[0].producer()
        while node is not None and node.op_type in ("Squeeze", "Unsqueeze", "Identity", "Cast"):
            node = node.inputs[0].producer()
        if node is not None and node.op_type == "Transpose":
            models.name_nodes(model)
            yield node.name


def _join_float32(body: Any) -> None:
    """Connect float32 nodes directly, without the converter's Casts to float16 and back."""
    for node in body:
        halved = node.inputs[0].producer() if _is_cast(node, FLOAT) else None
        if halved is None or not _is_cast(halved, FLOAT16):
            continue
        if node.outputs[0].is_graph_output():
            node.op_type = "Identity"
            node.attributes.clear()
            node.replace_input_with(0, halved.inputs[0])
        else:
            node.outputs[0].replace_all_uses_with(halved.inputs[0])
    for node in reversed(body):
        value = node.outputs[0]
        if node.op_type == "Cast" and not value.is_graph_output() and not value.uses():
            body.remove(node, safe=True)


def _is_cast(node: Any, element: int) -> bool:
    starts, ends = ("graph_input_cast", "graph_output_cast"), ("_cast_to_fp16_node", "_cast_to_fp32_node")
    is_inserted = node.name.startswith(starts) or node.name.endswith(ends)
    return bool(is_inserted and node.op_type == "Cast" and node.attributes["to"].value == element)


def overflowing(subject: Any, feeds: Sequence[Feed]) -> set[str]:
    """Return the names of the main graph's nodes that make or read a value beyond float16. Name unnamed nodes."""
    import numpy as np

    models.infer_types(subject)
    computed = (value for node in subject.graph if node.op_type != "Constant" for value in node.outputs)
    names = [value.name for value in computed if models.is_tensor(value) and value.dtype == FLOAT]
    beyond: set[str] = set()
    for name, array in samples.inner_values(subject, names, feeds, "the graph, with all values as outputs"):
        sizes = np.abs(array[np.isfinite(array) & (np.abs(array) < SENTINEL)])
        if sizes.max(initial=0) > LARGEST:
            beyond.add(name)
    if beyond:
        models.name_nodes(subject)
    values = {value for node in subject.graph for value in node.outputs if value.name in beyond}
    return {node.name for node in subject.graph if values.intersection((*node.inputs, *node.outputs))}


def kinds_of(subject: Any) -> Mapping[str, list[str]]:
    names: dict[str, list[str]] = {}
    for node in subject.graph.all_nodes():
        names.setdefault(node.op_type, []).append(node.name)
    return names
