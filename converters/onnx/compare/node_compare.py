"""Compare the nodes of two graphs.

Nodes are paired by their digest (they compute the same from the same), else by the name of their first output, else by
operator and weights; a pair differs if operator, attributes or the sources of the inputs do. So does an output of the
graph that another node computes.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

from onnxreg.converters.onnx.compare.dataflow import Dataflow, Node, digest_nodes, plain
from onnxreg.schema.compare.graphs import NodeChange
from onnxreg.schema.compare.json_changes import match


def compare_nodes(old: Dataflow, new: Dataflow, renamed: Mapping[str, str]) -> tuple[list[NodeChange], int]:
    """The changes in the order of the new graph, then those of outputs, then removed nodes; and how many nodes are equal.

    `renamed`: the new names of weights that are only called otherwise.
    """
    before, after = _items(old), _items(new)
    pairs, removed, added = match(before, after, (_by_digest, _by_output, _by_weights))
    follow = _Sources(old, new, {i: j for _, i, j in pairs}, renamed)
    changed = {j: _change("added", new.nodes[j]) for _, j in added}
    for _, i, j in pairs:
        differences = (
            () if before[i][0] == after[j][0] else tuple(_differences(old.nodes[i], new.nodes[j], follow))
        )
        if differences:
            changed[j] = _change("changed", new.nodes[j], differences)
    changes = [changed[j] for j in sorted(changed)]
    changes += [
        NodeChange(change="changed", name=name, operator="output", what=("inputs",))
        for name in new.outputs
        if name in old.outputs and not follow.same(name, name)
    ]
    changes += [_change("removed", old.nodes[i]) for _, i in removed]
    return changes, len(pairs) - (len(changed) - len(added))


Item = tuple[str, Node, frozenset[str]]
"""A node with its digest and the names of the weights that it reads."""


def _items(graph: Dataflow) -> list[Item]:
    digests = digest_nodes(graph)[1]
    weights = graph.tensors.keys()
    return [
        (digest, node, frozenset(weights & set(node.inputs)))
        for digest, node in zip(digests, graph.nodes, strict=True)
    ]


def _by_digest(item: Item, _: int) -> str:
    return item[0]


def _by_output(item: Item, _: int) -> str:
    return _name(item[1])


def _by_weights(item: Item, index: int) -> str:
    """A node without weights has nothing of its own to be known by."""
    return f"{item[1].kind} {sorted(item[2])}" if item[2] else f"#{index} {item[0]}"


class _Sources:
    """Compare the origins of values in the old and the new graph, given the pairs of nodes."""

    def __init__(
        self, old: Dataflow, new: Dataflow, partner: Mapping[int, int], renamed: Mapping[str, str]
    ) -> None:
        self._old, self._new = _makers(old), _makers(new)
        self._partner = partner
        self._renamed = renamed

    def same(self, old: str, new: str) -> bool:
        maker = self._old.get(old)
        if maker is None:
            return new not in self._new and self._renamed.get(old, old) == new
        return (self._partner.get(maker[0]), maker[1]) == self._new.get(new)


def _makers(graph: Dataflow) -> dict[str, tuple[int, int]]:
    """The node that computes each value, by its index, and the place among its outputs."""
    return {
        name: (i, at) for i, node in enumerate(graph.nodes) for at, name in enumerate(node.outputs) if name
    }


def _differences(old: Node, new: Node, follow: _Sources) -> Iterator[str]:
    if old.operator != new.operator:
        yield "operator"
    if len(old.inputs) != len(new.inputs) or not all(map(follow.same, old.inputs, new.inputs)):
        yield "inputs"
    if list(map(bool, old.outputs)) != list(map(bool, new.outputs)):
        yield "outputs"
    for name in sorted(old.attributes.keys() | new.attributes.keys()):
        sides = [node.attributes[name] for node in (old, new) if name in node.attributes]
        if len(sides) == 1 or plain(sides[0]) != plain(sides[1]):
            yield name


def _change(
    verb: Literal["added", "removed", "changed"], node: Node, differences: tuple[str, ...] = ()
) -> NodeChange:
    return NodeChange(change=verb, name=_name(node), operator=node.kind, what=differences)


def _name(node: Node) -> str:
    return next((name for name in node.outputs if name), node.name)
