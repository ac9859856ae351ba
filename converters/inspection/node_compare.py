"""Which nodes differ between two graphs.

Nodes are paired by their digest (they compute the same from the same), else by the name of their first output, else by
operator and weights; a pair differs where operator, attributes or the sources of the inputs do.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from onnxreg.converters.inspection.dataflow import Dataflow, Node, digest_nodes, plain
from onnxreg.schema.changes import match
from onnxreg.schema.deep import NodeChange


def compare_nodes(old: Dataflow, new: Dataflow) -> tuple[list[NodeChange], int]:
    """The changes in the order of the new graph, removed nodes last, and how many nodes are equal."""
    before, after = _items(old), _items(new)
    pairs, removed, added = match(before, after, (_by_digest, _by_output, _by_weights))
    partner = {i: j for _, i, j in pairs}
    sources, targets = _sources(old), _sources(new)
    found: list[tuple[int, NodeChange]] = []
    for _, i, j in pairs:
        (digest, one, _), (other_digest, other, _) = before[i], after[j]
        known = [_moved(sources.get(name, name), partner) for name in one.inputs]
        same_inputs = known == [targets.get(name, name) for name in other.inputs]
        what = () if digest == other_digest else tuple(_differences(one, other, same_inputs))
        if what:
            found.append((j, _change("changed", other, what)))
    found += [(j, _change("added", new.nodes[j])) for _, j in added]
    changes = [change for _, change in sorted(found, key=lambda item: item[0])]
    changes += [_change("removed", old.nodes[i]) for _, i in removed]
    return changes, len(pairs) - sum(change.change == "changed" for change in changes)


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


def _sources(graph: Dataflow) -> dict[str, Any]:
    """Where each value comes from: the node's index and the output's."""
    return {name: (i, at) for i, node in enumerate(graph.nodes) for at, name in enumerate(node.outputs)}


def _moved(source: Any, partner: dict[int, int]) -> Any:
    """An old value's source, by the index that its node has in the new graph."""
    return (partner.get(source[0]), source[1]) if isinstance(source, tuple) else source


def _differences(old: Node, new: Node, same_inputs: bool) -> Iterator[str]:
    if old.operator != new.operator:
        yield "operator"
    if not same_inputs:
        yield "inputs"
    if len(old.outputs) != len(new.outputs):
        yield "outputs"
    for name in sorted(old.attributes.keys() | new.attributes.keys()):
        sides: Sequence[Any] = [node.attributes.get(name) for node in (old, new)]
        if None in sides or plain(sides[0]) != plain(sides[1]):
            yield name


def _change(verb: Any, node: Node, what: tuple[str, ...] = ()) -> NodeChange:
    return NodeChange(change=verb, name=_name(node), operator=node.kind, what=what)


def _name(node: Node) -> str:
    return next((name for name in node.outputs if name), node.name)
