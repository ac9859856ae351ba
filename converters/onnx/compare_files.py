"""Compare two model files: facts, stored tensors, nodes. Memory stays flat: tensor by tensor.

Nodes are paired by their digest (they compute the same from the same), else by the name of their first output, else by
operator and weights; a pair differs if operator, attributes or the sources of the inputs do. So does an output of the
graph that another node computes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import sqrt
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from onnxreg.converters.onnx import onnx_graph
from onnxreg.converters.onnx.elements import restore, scale_axes
from onnxreg.converters.onnx.facts import contract
from onnxreg.converters.onnx.graph_operators import DEFAULT_DOMAIN, qualified_name
from onnxreg.converters.onnx.semantic import (
    attribute_form,
    digest_nodes,
    function_digest,
    stored_tensors,
)
from onnxreg.converters.onnx.tensors import Arrays, digest_of, dims_of, is_numeric, type_of
from onnxreg.schema.compare.graphs import FactChange, GraphDiff, NodeChange, TensorChange, TensorForm
from onnxreg.schema.compare.json_changes import match
from onnxreg.schema.manifest.parts import TensorSpec

Item = tuple[str, Any, frozenset[str]]
"""A node with its digest and the names of the weights that it reads."""
Side = tuple[list[Item], Any]  # nodes and outputs of a graph
BLOCK_ELEMENTS = 2**18
"""Elements that are subtracted at once."""
Tensors = Mapping[str, Any]
"""`onnx_ir.TensorProtocol` by name."""
Verb = Literal["changed", "retyped"]


def compare_models(old: Path, new: Path) -> GraphDiff:
    """Open two ONNX or two ORT-format files and say what differs.

    Functions and subgraphs are compared as wholes. Raises InputError, naming the file, for one that cannot be read.
    """
    (before, old_facts, old_items), (after, new_facts, new_items) = _open(old), _open(new)
    tensors, equal_tensors = _compare_tensors(stored_tensors(before), stored_tensors(after))
    renamed = {item.old.name: item.name for item in tensors if item.change == "renamed" and item.old}
    nodes, equal_nodes = _compare_nodes((old_items, before.outputs), (new_items, after.outputs), renamed)
    facts = [
        FactChange(name=name, old=old_facts.get(name), new=new_facts.get(name))
        for name in sorted(old_facts.keys() | new_facts.keys())
        if old_facts.get(name) != new_facts.get(name)
    ]
    return GraphDiff(
        facts=tuple(facts),
        tensors=tuple(tensors),
        equal_tensors=equal_tensors,
        nodes=tuple(nodes),
        equal_nodes=equal_nodes,
    )


def _compare_nodes(old: Side, new: Side, renamed: Mapping[str, str]) -> tuple[list[NodeChange], int]:
    """The changes in the order of the new graph, then those of outputs, then removed nodes; and how many nodes are equal.

    `renamed`: the new names of weights that are only called otherwise.
    """
    (before, old_outputs), (after, new_outputs) = old, new
    pairs, removed, added = match(before, after, (_by_digest, _by_output, _by_weights))
    partner = {before[i][1]: after[j][1] for _, i, j in pairs}

    def same(one: Any, other: Any) -> bool:
        """Tell if two values have the same origin, given the pairs of nodes."""
        if one is None or other is None:
            return one is other
        maker = one.producer()
        if maker is None:
            return other.producer() is None and renamed.get(one.name, one.name) == other.name
        return partner.get(maker, maker) is other.producer() and one.index() == other.index()

    changed = {j: _change("added", after[j][1]) for _, j in added}
    for _, i, j in pairs:
        if before[i][0] != after[j][0]:
            differences = tuple(_node_differences(before[i][1], after[j][1], same))
            if differences:
                changed[j] = _change("changed", after[j][1], differences)
    changes = [changed[j] for j in sorted(changed)]
    outputs = {value.name: value for value in old_outputs}
    changes += [
        NodeChange(change="changed", name=value.name or "", operator="output", what=("inputs",))
        for value in new_outputs
        if value.name in outputs and not same(outputs[value.name], value)
    ]
    changes += [_change("removed", before[i][1]) for _, i in removed]
    return changes, len(pairs) - (len(changed) - len(added))


def _compare_tensors(old: Tensors, new: Tensors) -> tuple[list[TensorChange], int]:
    """The changes, the largest relative difference first, and how many tensors are equal."""
    both = [name for name in old if name in new]
    changes = [change for name in both if (change := _compare_tensor(name, old, new)) is not None]
    equal = len(both) - len(changes)
    changes.sort(key=lambda change: -(change.relative_l2 or 0.0))
    return [*changes, *_unpaired_tensors(old, new)], equal


def _open(path: Path) -> tuple[ir.Graph, dict[str, str], list[Item]]:
    """A model's graph, whose tensors can be read, its facts by name as texts, and its nodes."""
    model = onnx_graph.read_model(path)
    inputs, outputs = contract(model)
    with onnx_graph.valid_graph(path):
        functions = {
            f"function {item.domain}:{item.name}": function_digest(item) for item in model.functions.values()
        }
        items = _items(model.graph)
        for tensor in filter(is_numeric, stored_tensors(model.graph).values()):
            tensor.numpy()
    facts = {
        **_specs("input", inputs),
        **_specs("output", outputs),
        **{f"opset {domain or DEFAULT_DOMAIN}": str(opset) for domain, opset in model.opset_imports.items()},
        **{f"metadata {key}": value for key, value in model.metadata_props.items()},
        **functions,
        "IR version": str(model.ir_version),
        "ORT format": str(model.meta.get("ort_format", "")),
        "producer": f"{model.producer_name or ''} {model.producer_version or ''}".strip(),
        "model version": str(model.model_version or 0),
        "domain": model.domain or "",
        "description": model.doc_string or "",
        "graph name": model.graph.name or "",
    }
    return model.graph, facts, items


def _specs(side: str, specs: Iterable[TensorSpec]) -> dict[str, str]:
    """`{"input ids": "int64[batch, sequence]"}`"""
    return {f"{side} {spec.name}": f"{spec.dtype}{spec.shape_text}" for spec in specs}


def _items(graph: ir.Graph) -> list[Item]:
    return [
        (digest, node, frozenset(one.name or "" for one in node.inputs if one and one.is_initializer()))
        for digest, node in zip(digest_nodes(graph)[1], graph, strict=True)
    ]


def _by_digest(item: Item, _: int) -> str:
    return item[0]


def _by_output(item: Item, _: int) -> str:
    return _node_name(item[1])


def _by_weights(item: Item, index: int) -> str:
    """A node without weights has nothing of its own to be known by."""
    return f"{qualified_name(item[1])} {sorted(item[2])}" if item[2] else f"#{index} {item[0]}"


def _node_differences(old: ir.Node, new: ir.Node, same: Callable[[Any, Any], bool]) -> Iterator[str]:
    if (old.op_identifier(), old.version) != (new.op_identifier(), new.version):
        yield "operator"
    if len(old.inputs) != len(new.inputs) or not all(map(same, old.inputs, new.inputs)):
        yield "inputs"
    if [bool(value.name) for value in old.outputs] != [bool(value.name) for value in new.outputs]:
        yield "outputs"
    for name in sorted(old.attributes.keys() | new.attributes.keys()):
        sides = [node.attributes[name] for node in (old, new) if name in node.attributes]
        if len(sides) == 1 or attribute_form(sides[0]) != attribute_form(sides[1]):
            yield name


def _change(
    verb: Literal["added", "removed", "changed"], node: ir.Node, differences: tuple[str, ...] = ()
) -> NodeChange:
    return NodeChange(change=verb, name=_node_name(node), operator=qualified_name(node), what=differences)


def _node_name(node: ir.Node) -> str:
    return next((value.name for value in node.outputs if value.name), node.name or "")


def _compare_tensor(name: str, old: Tensors, new: Tensors) -> TensorChange | None:
    one, other = old[name], new[name]
    verb: Verb = "changed" if type_of(one) == type_of(other) else "retyped"
    if dims_of(one) != dims_of(other):
        return TensorChange(change="reshaped", old=_tensor_form(one), new=_tensor_form(other))
    if not (is_numeric(one) and is_numeric(other)):
        equal = verb == "changed" and digest_of(one) == digest_of(other)
        return None if equal else TensorChange(change=verb, old=_tensor_form(one), new=_tensor_form(other))
    if verb == "changed" and _same_bytes(one.numpy(), other.numpy()):
        return None
    pair = _dequantized(name, old, new)
    max_abs, relative = _distance(*(pair or (one.numpy(), other.numpy())))
    return TensorChange(
        change=verb,
        old=_tensor_form(one),
        new=_tensor_form(other),
        max_abs=max_abs,
        relative_l2=relative,
        dequantized=pair is not None,
    )


def _unpaired_tensors(old: Tensors, new: Tensors) -> Iterator[TensorChange]:
    """Yield the tensors of one side only; the same form and bytes under another name is a tensor renamed."""
    waiting: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for name in old.keys() - new.keys():
        waiting[_tensor_identity(old[name])].append(name)
    for names in waiting.values():
        names.sort(reverse=True)
    for name in sorted(new.keys() - old.keys()):
        old_names = waiting.get(_tensor_identity(new[name]))
        form = _tensor_form(new[name])
        if old_names:
            yield TensorChange(change="renamed", old=_tensor_form(old[old_names.pop()]), new=form)
        else:
            yield TensorChange(change="added", old=None, new=form)
    for name in sorted(name for names in waiting.values() for name in names):
        yield TensorChange(change="removed", old=_tensor_form(old[name]), new=None)


def _tensor_identity(tensor: Any) -> tuple[Any, ...]:
    return type_of(tensor), dims_of(tensor), digest_of(tensor)


def _tensor_form(tensor: Any) -> TensorForm:
    return TensorForm(name=tensor.name, dtype=type_of(tensor), dims=dims_of(tensor))


def _same_bytes(one: Any, other: Any) -> bool:
    """Also of NaN, and of zeros of either sign."""
    return all(a.tobytes() == b.tobytes() for a, b in _blocks(one, other))


def _blocks(one: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    one, other = one.reshape(-1), other.reshape(-1)
    for start in range(0, one.size, BLOCK_ELEMENTS):
        yield one[start : start + BLOCK_ELEMENTS], other[start : start + BLOCK_ELEMENTS]


def _distance(one: Any, other: Any) -> tuple[float | None, float | None]:
    """Largest absolute difference, and L2 norm of the difference over that of the first; None if not
    finite."""
    largest = difference = length = 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        for a, b in _blocks(one, other):
            a, b = a.astype(np.float64), b.astype(np.float64)
            apart = np.abs(b - a)
            largest = max(largest, float(apart.max()))
            difference += float(apart @ apart)
            length += float(a @ a)
    relative = sqrt(difference / length) if length and np.isfinite([difference, length]).all() else None
    return largest if np.isfinite([largest, difference]).all() else None, relative


def _dequantized(name: str, old: Tensors, new: Tensors) -> tuple[Any, Any] | None:
    """The values of `<stem>_quantized` on both sides, by `<stem>_scale` and `<stem>_zero_point`."""
    stem = name.removesuffix("_quantized")
    if stem == name or not all(f"{stem}_scale" in side for side in (old, new)):
        return None
    restored = [_restored(stem, Arrays(side)) for side in (old, new)]
    return (restored[0], restored[1]) if all(value is not None for value in restored) else None


def _restored(stem: str, arrays: Mapping[str, Any]) -> Any:
    """Along the last axis that the scale fits, if it has several values: the columns of a matrix product."""
    value, scale = arrays[f"{stem}_quantized"], arrays[f"{stem}_scale"]
    zero_point = arrays.get(f"{stem}_zero_point")
    axes = scale_axes(value, scale)
    fits = axes and (zero_point is None or zero_point.size == scale.size)
    return restore(value, scale, zero_point, axes[-1])[0] if fits else None
